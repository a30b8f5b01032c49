"""Epochs as OpenTelemetry traces: one for each, a span for each step of *stage → decide → publish → settle*.

Spans are made of the epoch's record once it is finished, in the recorder's thread, with the times that it bears: no
epoch waits for them, and nothing of the protocol rests on them. Needs the extra `onceward[traces]`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from onceward.errors import ConfigurationError
from onceward.history import EpochRecord
from onceward.identity import JobName
from onceward.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

_SHUTDOWN_GRACE_S: Final = 5.0
_STEPS: Final = {
    "stage": ("begun", "staged"),
    "manifest": ("staged", "pre_committed"),
    "decide": ("pre_committed", "decided"),
}


def require_extra() -> None:
    """Refuse where OpenTelemetry's packages are missing."""
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk
    except ImportError as error:
        raise ConfigurationError(
            f"traces need packages that are not installed: {error.name}", hint="run: pip install 'onceward[traces]'"
        ) from None
    del opentelemetry


class Traces:
    """Of one run. They go where OpenTelemetry's own settings say: a provider that the process has set up, or else the
    collector of `OTEL_EXPORTER_OTLP_ENDPOINT` (localhost, if it is not set), by OTLP over HTTP."""

    def __init__(self, job: str, provider: TracerProvider | None = None) -> None:
        self._job = JobName(job)
        require_extra()
        self._own = None if provider is not None else _own_provider(job)
        self._tracer: Tracer = _tracer(provider or self._own)

    def finished(self, record: EpochRecord) -> None:
        """For `Recorder(then=...)`."""
        if not record.times:
            return
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        first, last = min(record.times.values()), max(record.times.values())
        about: dict[str, str | int] = {
            "onceward.job": self._job,
            "onceward.run": record.run,
            "onceward.epoch": record.epoch,
            "onceward.outcome": record.outcome,
            "onceward.takeover": record.takeover,
            "onceward.rows": record.rows,
            "onceward.slots": record.slot_count,
        }
        epoch = self._tracer.start_span("epoch", start_time=_nanoseconds(first), attributes=about)
        within = set_span_in_context(epoch)
        for name, began, ended, attributes in _spans(record):
            span = self._tracer.start_span(name, within, start_time=_nanoseconds(began), attributes=attributes)
            span.end(_nanoseconds(max(began, ended)))
        if record.outcome == "failed":
            epoch.set_status(Status(StatusCode.ERROR, f"{record.error}: {record.why}"))
        epoch.end(_nanoseconds(last))

    def close(self) -> None:
        """Send the rest. A collector that does not answer is not waited for."""
        if self._own is not None:
            sending = threading.Thread(target=self._own.shutdown, name="onceward-traces", daemon=True)  # type: ignore[attr-defined]
            sending.start()
            sending.join(_SHUTDOWN_GRACE_S)


def _spans(record: EpochRecord) -> Iterator[tuple[str, datetime, datetime, dict[str, Any]]]:
    """The steps that are known of it, in their order."""
    times = record.times
    for name, (first, last) in _STEPS.items():
        if first in times and last in times:
            yield name, times[first], times[last], {}
    for sink, one in record.sinks.items():
        if one.began_at is not None and one.delivered_at is not None:
            about = {"onceward.sink": sink, "onceward.rows": one.rows, "onceward.retries": one.retries}
            yield (
                "publish",
                one.began_at,
                one.delivered_at,
                about | ({"onceward.failure": one.failure} if one.failure else {}),
            )
    if (before := times.get("delivered") or times.get("decided")) is not None and "settled" in times:
        yield "settle", before, times["settled"], {}


def _own_provider(job: str) -> TracerProvider | None:
    """One that sends to a collector; None where the process has set one up for everything that it does."""
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What the environment says (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) comes before the name of the job.
    named = Resource.create({"service.name": job}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _tracer(provider: TracerProvider | None) -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer("onceward", __version__, tracer_provider=provider)


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1e6) * 1000
