"""`onceward state answer`: the state of checkpoints, question by question, from one Spark. The dashboard starts it.

Lines go both ways, each a JSON object: first `{"ready": true}`, then an answer for every question. It ends when its
standard input does, which is so when whoever has started it is gone, however that came about.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onceward.cli.session import spark_log, spark_session
from onceward.errors import ConfigurationError, OncewardError
from onceward.spark.cause import text_of
from onceward.storage import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = (
    "spark.ui.enabled=false",
    "spark.ui.showConsoleProgress=false",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.host=127.0.0.1",
)
_POLITE: Final = 10


def answer_questions() -> None:
    """Until nobody asks any more. A job on the same host goes first."""
    os.nice(_POLITE)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    with spark_log("state-answers") as log_file:
        spark = spark_session("onceward state", master="local[2]", settings=_SETTINGS, log_file=log_file)
        _say({"ready": True})
        while True:
            _say(_answer(spark, asked.get()))


def _listen(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line)
    # Whatever is being read is wanted by nobody. Java ends with us.
    os._exit(0)


def _say(document: Mapping[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def _answer(spark: SparkSession, line: str) -> dict[str, Any]:
    try:
        return _rows(spark, json.loads(line))
    except OncewardError as error:
        return {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    except Exception as error:
        # Of Spark, or of a file that went meanwhile: it is what the person came to see, and the next question may do.
        if _is_gone(spark):
            sys.exit(1)
        told = text_of(error).partition("\n")[0][:500]
        return {"error": type(error).__name__, "message": told, "hint": "choose a newer epoch, or look again"}


def _is_gone(spark: SparkSession) -> bool:
    """Whether its JVM has ended: then it answers nothing any more."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:
        return True


def _rows(spark: SparkSession, question: Mapping[str, Any]) -> dict[str, Any]:
    from onceward.observe.state import columns_of, first_cells
    from onceward.observe.state_export import state_of, with_key
    from onceward.observe.state_views import frame_of

    most = int(question["rows"])
    with state_of(local_path(question["path"]), operator=str(question["operator"]), epoch=question["epoch"]) as found:
        for view in found.views:
            if view.part == question["part"]:
                frame = with_key(frame_of(spark, found.root, view, found.epoch), question["keys"])
                told = first_cells(frame, most + 1)
                more = len(told) > most
                return {"epoch": found.epoch, "columns": columns_of(frame), "rows": told[:most], "has_more": more}
    raise ConfigurationError(f"the operator has no part {question['part']!r}", hint="load the page again")
