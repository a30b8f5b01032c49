"""What a job was asked for, refused where it cannot work: guarantees, sinks together, accepted consequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark import cloudpickle
from pyspark.errors import AnalysisException

from onceward.api import ApiConfig
from onceward.clock import SystemClock
from onceward.contracts import (
    AnySink,
    Guarantee,
    Sink,
    TemplateChoice,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.epoch import PublishLimits, Watchdog, with_watchdog
from onceward.errors import ConfigurationError, GuaranteeUnavailable
from onceward.identity import sink_digest
from onceward.recovery import Accept
from onceward.spark.checkpoint_config import CheckpointConfig

OUTPUT_MODES = ("append", "update", "complete")


def checked_guarantee(text: str) -> Guarantee:
    """The guarantee of that name."""
    try:
        return Guarantee(text)
    except ValueError:
        known = ", ".join(g.value for g in Guarantee)
        raise ConfigurationError(f"guarantee {text!r} is unknown", hint=f"use one of: {known}") from None


def chosen_sinks(sinks: Sequence[Sink], guarantee: Guarantee, watchdog: Watchdog | None = None) -> tuple[AnySink, ...]:
    """The sinks to work with in this start: those that leave their template open have asked their target.

    Whatever is asked of them on the driver is bounded by the watchdog.
    """
    check_together(sinks, guarantee)
    dog = watchdog or Watchdog(SystemClock(), PublishLimits().deadline_s)
    chosen = (with_watchdog(sink, dog).choose() if isinstance(sink, TemplateChoice) else sink for sink in sinks)
    return tuple(with_watchdog(sink, dog) for sink in chosen)  # type: ignore[misc]


def check_together(sinks: Sequence[Sink], guarantee: Guarantee) -> None:
    """Refuse sinks that cannot serve one job together. Asks no target."""
    if isinstance(sinks, Sink):
        raise ConfigurationError("sinks is one sink, not a list", hint=f"say sinks=[{type(sinks).__name__}(...)]")
    if not sinks:
        raise ConfigurationError("the job has no sinks", hint="give at least one, for example FileSink('out')")
    for sink in sinks:
        if not isinstance(sink, (TwoPhaseCommitSink, WriteAheadSink, TransactionalWriteAheadSink, TemplateChoice)):
            raise ConfigurationError(
                f"{type(sink).__name__} is not a sink",
                hint="derive it from TwoPhaseCommitSink, WriteAheadSink or TransactionalWriteAheadSink",
            )
        if not sink.guarantee.covers(guarantee):
            raise GuaranteeUnavailable(
                f"sink {sink.name!r} gives {sink.guarantee.value} at best ({sink.mechanism}), the job asks for "
                f"{guarantee.value}",
                hint="use a sink with receipts or transactions, or say guarantee='at-least-once' for this job",
            )
        _refuse_unpicklable(sink)
    names = [sink.name for sink in sinks]
    if len({sink_digest(name) for name in names}) != len(names):
        raise ConfigurationError(
            f"two sinks share a name: {sorted(names)}", hint="tell them apart with name='...'; keep the names for good"
        )


def check_checkpointing(config: object) -> None:
    """Refuse a text or a number there: `checkpoint` is the directory, this is how epochs are made."""
    if not isinstance(config, CheckpointConfig):
        raise ConfigurationError(
            f"checkpointing is {config!r}", hint='say checkpointing=CheckpointConfig(interval="10 seconds")'
        )


def _refuse_unpicklable(sink: Sink) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(sink))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigurationError(
            f"sink {sink.name!r} cannot be sent to the executors: {error}",
            hint="keep only settings in the sink; open connections in begin_transaction, commit or send_values",
        ) from error


def accepted_from(accept: str | Iterable[str]) -> frozenset[Accept]:
    """The named consequences."""
    wanted = [accept] if isinstance(accept, str) else list(accept)
    known = [one.value for one in Accept]
    unknown = next((text for text in wanted if text not in known), None)
    if unknown is not None:
        raise ConfigurationError(f"nothing called {unknown!r} can be accepted", hint=f"use one of: {', '.join(known)}")
    return frozenset(Accept(text) for text in wanted)


def refuse_output_mode(error: BaseException, output_mode: str) -> None:
    """Raise in words of ours where Spark does not take the query for its output mode, such as a count for append."""
    if isinstance(error, AnalysisException) and (error.getCondition() or "").startswith("STREAMING_OUTPUT_MODE"):
        raise ConfigurationError(
            f"Spark does not take output mode {output_mode!r} for this query: {error}",
            hint='say output_mode="update" or "complete" for what is counted; "append" needs a watermark there',
        ) from None


def check_api(api: object) -> None:
    """Refuse `api=True` and the like."""
    if api is not None and not isinstance(api, ApiConfig):
        raise ConfigurationError(
            f"api={api!r} is no ApiConfig", hint="from onceward.api import ApiConfig; Job(..., api=ApiConfig())"
        )
