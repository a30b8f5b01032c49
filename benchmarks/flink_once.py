"""Jobs of Flink, one after the other, in one JVM that stays warm as Spark's does. Runs with the Python of
`.flink/venv`, and imports nothing of ours.

Each line of the input is a job: `{"settings": {...}, "tables": [...], "insert": "..."}`. Each is answered by a line
`seconds 1.234`: Flink's own net runtime, without planning and without the start of its cluster, until the last
transaction is committed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

PARALLELISM = 2


def main(jars: Path) -> None:
    """Until the input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        config = environment.get_config()
        config.set("pipeline.jars", ";".join(jar.as_uri() for jar in sorted(jars.glob("*.jar"))))
        config.set("parallelism.default", str(PARALLELISM))
        for name, value in job["settings"].items():
            config.set(name, value)
        for statement in job["tables"]:
            environment.execute_sql(statement)
        running = environment.execute_sql(job["insert"])
        running.wait()
        milliseconds = running.get_job_client().get_job_execution_result().result().get_net_runtime()
        print(f"seconds {milliseconds / 1000}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
