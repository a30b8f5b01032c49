"""What a pipeline must be like before it can be delivered exactly once."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from onceward.contracts import Guarantee
from onceward.errors import ConfigurationError, GuaranteeUnavailable

_FORGETFUL = {"socket"}
_RETAINED = "spark.sql.streaming.minBatchesToRetain"


def check_pipeline(frame: object, guarantee: Guarantee) -> DataFrame:
    """The pipeline's result, if it is a streaming DataFrame over sources that can be read again."""
    if not isinstance(frame, DataFrame):
        raise ConfigurationError(
            f"the pipeline returned {type(frame).__name__}, not a DataFrame",
            hint="pipeline takes a SparkSession and returns what to deliver: lambda spark: spark.readStream....",
        )
    if not frame.isStreaming:
        raise ConfigurationError(
            "the pipeline is not streaming: it starts with spark.read",
            hint="start it with spark.readStream; to work off what is there and end, use trigger='available-now'",
        )
    if guarantee is Guarantee.EXACTLY_ONCE:
        for name in _forgetful_sources(frame):
            raise GuaranteeUnavailable(
                f"the source {name!r} cannot be read again after a crash, so exactly-once is impossible",
                hint="read from files, Kafka or another replayable source, or choose guarantee='at-most-once'",
            )
    return frame


def check_retention(spark: SparkSession, max_unpublished_epochs: int, retained: int | None = None) -> None:
    """Refuse a Spark that removes the barrier of an epoch before it is published: it could not be rewound any more.
    `retained` is what the job asks for itself."""
    retained = int(spark.conf.get(_RETAINED) or 0) if retained is None else retained
    if retained <= max_unpublished_epochs + 1:
        raise ConfigurationError(
            f"Spark keeps {retained} entries of its log, and {max_unpublished_epochs} epochs may be unpublished",
            hint=f"set {_RETAINED} to at least {max_unpublished_epochs + 2} (Spark's default is 100), or lower "
            "max_unpublished_epochs",
        )


def _forgetful_sources(frame: DataFrame) -> Iterator[str]:
    """By the leaves of the plan: a source prints as its bare name, unlike its mention in a larger plan's text."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    names = {leaves.apply(number).toString() for number in range(leaves.size())}
    yield from sorted(names & _FORGETFUL)
