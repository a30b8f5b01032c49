"""The sink for looking on."""

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from onceward.contracts import Guarantee
from onceward.errors import ConfigurationError, TargetRefused
from onceward.sinks import StdoutSink

NOW = datetime(2024, 5, 1, tzinfo=UTC)
BATCH = pa.record_batch({"id": [1, 2], "app": ["a\nb", None]})


def test_rows_are_printed_as_json_with_their_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    assert StdoutSink().send_values(iter([BATCH, BATCH.slice(1)]), 7, NOW)
    assert capsys.readouterr().out == 'epoch 7 {"id":1,"app":"a\\nb"}\nepoch 7 {"id":2}\nepoch 7 {"id":2}\n'


def test_no_more_than_the_limit_is_printed_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert StdoutSink(limit=1).send_values(iter([BATCH, BATCH]), 7, NOW)
    assert capsys.readouterr().out == 'epoch 7 {"id":1,"app":"a\\nb"}\nepoch 7 and 3 more\n'


def test_it_says_that_it_is_at_least_once() -> None:
    sink = StdoutSink()
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE
    assert "no receipt" in sink.mechanism
    assert pickle.loads(pickle.dumps(sink)).committer is None


def test_columns_without_a_form_in_json_are_refused() -> None:
    with pytest.raises(TargetRefused, match="duration"):
        StdoutSink().check(pa.schema({"d": pa.duration("us")}), output_mode="append")
    StdoutSink().check(BATCH.schema, output_mode="complete")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        StdoutSink(limit=-1)
