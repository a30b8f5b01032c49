"""State: operators by name from files alone, and a process that is asked for entries without anybody waiting for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_client import Client
from dashboard_client import client_of

from onceward.contracts.events import StateSize
from onceward.dashboard import Place
from onceward.dashboard.flow import flow, operators_of
from onceward.dashboard.reader import Answer, Pending, Question, StateReader
from onceward.errors import ConfigurationError
from onceward.history import EpochRecord
from onceward.identity import RunId
from onceward.operators import Column, Operator, SourceInfo, Topology

ONE = Question("/checkpoint", 0, "", 7, ("app=maps",), 50)

SPEAKS = """
import json, sys
print("a library says something")
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print("[1, 2]")
    answer = {"epoch": asked["epoch"], "columns": ["app"], "rows": [asked["keys"]], "has_more": False}
    print(json.dumps(answer), flush=True)
"""
DIES = "import json, sys; print(json.dumps({'ready': True}), flush=True); sys.stdin.readline()"
NEVER_READY = "import sys; sys.exit(3)"
SILENT = "import json, sys; print(json.dumps({'ready': True}), flush=True); sys.stdin.read()"


def speaking(program: str, **limits: float) -> StateReader:
    return StateReader((sys.executable, "-c", program), **limits)


def answer_of(reader: StateReader, question: Question = ONE) -> Answer:
    """Asked for again and again, as the page does."""
    while isinstance(found := reader.ask(question), Pending):
        worker = reader._worker
        if worker is not None:
            worker.join(0.02)
    return found


def test_a_question_is_answered_by_a_process_that_stays_and_nobody_waits_meanwhile() -> None:
    reader = speaking(SPEAKS)
    first = reader.ask(ONE)
    assert isinstance(first, Pending)
    assert first.stage == "starting"
    assert answer_of(reader)["rows"] == [["app=maps"]]
    assert reader.ask(ONE) == answer_of(reader), "kept"
    other = Question("/checkpoint", 0, "", 8, (), 50)
    assert answer_of(reader, other)["epoch"] == 8


def test_the_process_ends_when_nobody_asks_and_the_next_question_begins_another() -> None:
    reader = speaking(SPEAKS, idle_s=0.01)
    answer_of(reader)
    worker = reader._worker
    if worker is not None:
        worker.join()
    assert not reader.is_warm
    assert answer_of(reader, Question("/checkpoint", 1, "", 7, (), 50))["epoch"] == 7


@pytest.mark.parametrize("program", [DIES, NEVER_READY, "this is no program"])
def test_a_process_that_ends_is_told_once_with_the_command_and_then_begun_anew(program: str) -> None:
    reader = speaking(program)
    answer = answer_of(reader)
    assert answer["error"] == "NoSpark"
    assert answer["hint"] == "onceward state show /checkpoint --operator 0"
    assert isinstance(reader.ask(ONE), Pending)


def test_a_process_that_says_nothing_is_given_up() -> None:
    assert answer_of(speaking(SILENT, limit_s=0.2))["error"] == "NoSpark"


def test_a_command_that_is_not_there_is_told() -> None:
    assert answer_of(StateReader(("/nowhere/python",)))["error"] == "NoSpark"


def test_only_so_many_may_wait() -> None:
    reader = speaking(SILENT)
    for epoch in range(8):
        reader.ask(Question("/checkpoint", 0, "", epoch, (), 50))
    with pytest.raises(ConfigurationError, match="at once"):
        reader.ask(Question("/checkpoint", 0, "", 9, (), 50))
    worker = reader._worker
    assert worker is not None


DEDUPE = Operator(1, "dedupe", "first view", (Column("user", "string"),), 4, ("default",))
COUNT = Operator(0, "stateStoreSave", None, (Column("app", "string"),), 4, ("default",))
BOTH = Topology((DEDUPE, COUNT), (SourceInfo(0, "kafka", "views"),), ("pv",))


def record(*sizes: StateSize, sources: dict[str, str] | None = None) -> EpochRecord:
    return EpochRecord(5, RunId("a"), "settled", state=sizes, sources=sources or {}, rows=3, input_rows=9)


def test_operators_are_in_the_order_data_flows_with_the_sizes_that_spark_reports_by_number() -> None:
    found = operators_of(BOTH, record(StateSize("stateStoreSave", 3, 30), StateSize("dedupe", 800, 9000)))
    assert [(one["name"], one["kind"], one["rows"]) for one in found] == [
        ("first view", "dedupe", 800),
        (None, "stateStoreSave", 3),
    ]
    assert found[0]["keys"] == [["user", "string"]]


def test_sizes_that_do_not_fit_the_operators_are_not_guessed_at() -> None:
    for sizes in ((StateSize("dedupe", 1, 1),), (StateSize("dedupe", 1, 1), StateSize("stateStoreSave", 2, 2))):
        assert all(one["rows"] is None for one in operators_of(BOTH, record(*sizes)))
    assert [one["kind"] for one in operators_of(Topology(), record(StateSize("dedupe", 1, 1)))] == ["dedupe"]


def test_a_source_has_its_name_and_what_spark_says_of_it() -> None:
    (one,) = flow(BOTH, record(sources={"KafkaV2[Subscribe[views]]": "{}"}))["sources"]
    assert (one["name"], one["kind"], one["description"]) == ("views", "kafka", "KafkaV2[Subscribe[views]]")
    assert [one["name"] for one in flow(BOTH, None)["sources"]] == ["views"]
    unknown = flow(BOTH, record(sources={"a": "1", "b": "2"}))["sources"]
    assert [one["description"] for one in unknown] == ["a", "b"], "more than are known: by description alone"


def described(checkpoint: Path) -> None:
    """An aggregate as Spark describes it beside its state."""
    folder = checkpoint / "state" / "0" / "_metadata"
    folder.mkdir(parents=True)
    info = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}}
    stores = {"stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}]}
    (folder / "metadata").write_text(f"v1\n{json.dumps(info | stores)}")


def test_what_can_be_looked_at_is_told_without_spark(stopped: Client, checkpoint: Path) -> None:
    job = Place(checkpoint).id
    assert stopped.get(f"/api/jobs/{job}/state").json["operators"] == []
    described(checkpoint)
    found = stopped.get(f"/api/jobs/{job}/state").json
    (one,) = found["operators"]
    assert (one["number"], one["kind"], one["parts"]) == (0, "stateStoreSave", [""])
    assert found["epoch"] == 3
    assert found["command"] == f"onceward state show {checkpoint}"
    assert found["is_warm"] is False


Asks = Callable[[str], Any]


@pytest.fixture
def asks(world: object, checkpoint: Path) -> Asks:
    """Of a dashboard whose reader is another program."""
    client = client_of(Place(checkpoint), reader=speaking(SPEAKS))
    return lambda tail: client.get(f"/api/jobs/{Place(checkpoint).id}/state/entries{tail}")


def test_entries_are_asked_for_until_they_are_there(asks: Asks) -> None:
    found = asks("?operator=0&key=app%3Dm%C3%A4ps&key=b%3D1").json
    assert found["stage"] in ("starting", "reading")
    while found["stage"] != "done":
        found = asks("?operator=0&key=app%3Dm%C3%A4ps&key=b%3D1").json
    assert (found["epoch"], found["rows"]) == (3, [["app=mäps", "b=1"]])


@pytest.mark.parametrize("tail", ["", "?operator=x", "?operator=0&rows=100000", "?operator=-1", "?operator=0&epoch=-2"])
def test_a_question_that_makes_no_sense_is_refused(asks: Asks, tail: str) -> None:
    assert asks(tail).status == 422
