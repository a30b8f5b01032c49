"""Watches a job as its page does, until it ends: `python -m benchmarks.watcher ADDRESS`.

It imports little, to be there soon.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from http.client import HTTPException, HTTPResponse


def watch(entrance: str) -> None:
    """Hold the stream of events, and ask for the job and its timeline whenever something is new."""
    url, _, token = entrance.partition("?token=")

    def opened(path: str) -> HTTPResponse:
        request = urllib.request.Request(f"{url}api/{path}", headers={"Authorization": f"Bearer {token}"})
        found: HTTPResponse = urllib.request.urlopen(request)
        return found

    with opened("events") as stream:
        for line in stream:
            if line.startswith(b"data: {") and (jobs := json.loads(line[6:]).get("all")):
                for path in (f"jobs/{jobs[0]}", f"jobs/{jobs[0]}/timeline?newest=200&bars=240"):
                    with opened(path) as answer:
                        answer.read()


if __name__ == "__main__":
    try:
        watch(sys.argv[1])
    except (OSError, HTTPException):
        # The job has ended.
        sys.exit(0)
