"""A driver without Spark, for the tests of the supervisor: lives by a script, one line of it a life.

It speaks to the supervisor as `onceward.restart.wire` says, by hand: importing onceward would cost seconds a life.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

WORK = Path(sys.argv[1])
SAID, LIFELINE = map(int, os.environ["ONCEWARD_SUPERVISOR"].split(":"))
# Becomes the "JVM": in a process group of its own, deaf to everything but SIGKILL.
DEAF = "import os, signal, threading; os.setpgid(0, 0); signal.signal(15, signal.SIG_IGN); print(1, flush=True); threading.Event().wait()"  # noqa: E501


def say(**message: object) -> None:
    os.write(SAID, json.dumps(message).encode() + b"\n")


def note(name: str, line: object) -> None:
    with (WORK / name).open("a") as file:
        file.write(f"{line}\n")


def beat() -> None:
    while True:
        say(beat=True)
        threading.Event().wait(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> None:
    lives = json.loads((WORK / "script").read_text())
    starts = WORK / "starts"
    number = len(starts.read_text().splitlines()) if starts.exists() else 0
    for line in (WORK / "children").read_text().split() if (WORK / "children").exists() else []:
        assert not is_running(int(line)), "the life before left something behind"
    note("starts", " ".join(sys.argv[2:]))
    note("environment", os.environ.get("NOTIFY_SOCKET"))
    for act in lives[min(number, len(lives) - 1)]:
        match act:
            case "beat":
                threading.Thread(target=beat, daemon=True).start()
            case "beat once":
                say(beat=True)
            case "ready":
                say(ready=True)
            case "stopping":
                say(stopping=True)
            case "child":
                child = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
                child.stdout.readline()
                note("children", child.pid)
            case "stop child":
                os.kill(child.pid, signal.SIGSTOP)
            case "deaf":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case "ends when told":
                signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            case "wait":
                note("waiting", os.getpid())
                threading.Event().wait()
            case "wait for the supervisor's end":
                note("waiting", os.getpid())
                os.read(LIFELINE, 1)
                note("orphaned", os.getpid())
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case {"fail": kind, "code": code}:
                say(failed={"error": kind, "message": "long", "first_line": "away", "exit_code": code})
                os._exit(code)
            case int(code):
                os._exit(code)


main()
