"""How the test modules are shared out among the workers."""

from pathlib import Path

import pytest

from worker_order import LONGEST, chosen

TESTS = Path(__file__).parent
LONG, HALF, SHORT = "tests/spark/test_sigkill.py", "tests/spark/test_dashboard.py", "tests/spark/test_doctor.py"
KAFKA, KAFKA_SHORT = "tests/targets/kafka/test_kafka_crash_sweep.py", "tests/targets/kafka/test_kafka_values.py"


@pytest.mark.parametrize(
    ("waiting", "begun", "wanted"),
    [
        ([LONG, KAFKA, SHORT], [], LONG),
        ([KAFKA, HALF, SHORT], [LONG], HALF),
        ([KAFKA, KAFKA_SHORT, SHORT], [LONG], KAFKA),
        ([KAFKA_SHORT, SHORT], [LONG], SHORT),
        ([KAFKA_SHORT], [LONG], KAFKA_SHORT),
    ],
    ids=["the longest", "one of the same folder", "nothing long is put off", "the same servers", "what is left"],
)
def test_a_worker_is_given(waiting: list[str], begun: list[str], wanted: str) -> None:
    assert chosen(waiting, begun) == wanted


def test_every_module_that_is_called_long_exists() -> None:
    assert {*LONGEST} <= {path.stem for path in TESTS.rglob("test_*.py")}
