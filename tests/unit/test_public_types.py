"""What editors and type checkers offer for an option is what the option takes."""

from typing import Any, get_args, get_type_hints

import pytest

from onceward import CheckpointConfig, Job, foreach_batch
from onceward.contracts import Guarantee
from onceward.job.options import OUTPUT_MODES
from onceward.sinks import FileSink, KafkaSink, MySQLSink, PostgresSink, RedisSink, SQLiteSink
from onceward.sinks.files.formats import FORMATS
from onceward.sinks.kafka import client
from onceward.sinks.kafka import settings as kafka
from onceward.sinks.mysql import options as mysql
from onceward.sinks.postgres import options as postgres
from onceward.sinks.redis import options as redis
from onceward.spark.checkpoint_config import BACKENDS, ON_STOP

OFFERED = [
    (Job, "output_mode", OUTPUT_MODES),
    (foreach_batch, "output_mode", OUTPUT_MODES),
    (Job, "guarantee", [one.value for one in Guarantee]),
    (foreach_batch, "guarantee", [one.value for one in Guarantee]),
    (CheckpointConfig, "on_stop", ON_STOP),
    (CheckpointConfig, "state_backend", BACKENDS),
    (PostgresSink.__init__, "mode", postgres.MODES),
    (MySQLSink.__init__, "mode", mysql.MODES),
    (SQLiteSink.__init__, "mode", ("append", "upsert")),
    (FileSink.__init__, "format", FORMATS),
    (MySQLSink.__init__, "non_finite", mysql._CHOICES["non_finite"]),
    (MySQLSink.__init__, "before_triggers", mysql._CHOICES["before_triggers"]),
    (RedisSink.__init__, "type", redis.TYPES),
    (KafkaSink.__init__, "compression", kafka._COMPRESSIONS),
    (KafkaSink.__init__, "producer", client.PRODUCERS),
]


@pytest.mark.parametrize(("where", "option", "taken"), OFFERED, ids=lambda one: getattr(one, "__qualname__", None))
def test_an_option_offers_what_it_takes(where: Any, option: str, taken: Any) -> None:
    hint = get_type_hints(where)[option]
    offered = {choice for one in (hint, *get_args(hint)) for choice in get_args(one) if isinstance(choice, str)}
    assert offered == set(taken)
