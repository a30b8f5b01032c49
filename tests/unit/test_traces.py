"""Epochs as OpenTelemetry traces: what a collector gets, over its own protocol, and what happens without one."""

from __future__ import annotations

import gzip
import http.server
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from onceward.errors import ConfigurationError
from onceward.history import EpochRecord, SinkRecord
from onceward.identity import RunId, SinkName
from onceward.traces import Traces

T0 = datetime(2026, 11, 17, 12, tzinfo=UTC)
STEPS = ("barrier", "begun", "staged", "pre_committed", "decided", "delivered", "settled")


def at(second: int) -> datetime:
    return T0 + timedelta(seconds=second)


def record(**changes: object) -> EpochRecord:
    known: dict[str, object] = {
        "outcome": "settled",
        "times": {step: at(second) for second, step in enumerate(STEPS)},
        "rows": 10,
        "sinks": {SinkName("pg"): SinkRecord(10, 1, at(4), at(5), retries=2, failure="it was away")},
    }
    return EpochRecord(7, RunId("abcdefgh"), **(known | changes))


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def traced(spans: InMemorySpanExporter, one: EpochRecord) -> dict[str, Any]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    traces = Traces("pv", provider)
    traces.finished(one)
    traces.close()
    return {span.name: span for span in spans.get_finished_spans()}


def test_an_epoch_is_one_trace_with_a_span_for_every_step(spans: InMemorySpanExporter) -> None:
    found = traced(spans, record())
    lasted = {
        name: ((span.start_time - int(T0.timestamp()) * 10**9) // 10**9, (span.end_time - span.start_time) // 10**9)
        for name, span in found.items()
    }
    assert lasted == {
        "epoch": (0, 6),
        "stage": (1, 1),
        "manifest": (2, 1),
        "decide": (3, 1),
        "publish": (4, 1),
        "settle": (5, 1),
    }
    epoch = found.pop("epoch")
    known = {"onceward.job": "pv", "onceward.epoch": 7, "onceward.rows": 10, "onceward.outcome": "settled"}
    assert known.items() <= dict(epoch.attributes).items()
    assert {span.parent.span_id for span in found.values()} == {epoch.context.span_id}
    published = dict(found["publish"].attributes)
    assert (published["onceward.sink"], published["onceward.retries"]) == ("pg", 2)
    assert published["onceward.failure"] == "it was away"


def test_a_failed_epoch_says_why(spans: InMemorySpanExporter) -> None:
    times = {"begun": at(0), "failed": at(1)}
    failed = traced(spans, record(outcome="failed", times=times, sinks={}, error="TargetUnavailable", why="no route"))
    status = failed["epoch"].status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "TargetUnavailable: no route")


def test_a_clock_that_went_back_makes_no_span_end_before_it_began(spans: InMemorySpanExporter) -> None:
    found = traced(spans, record(times={"begun": at(9), "staged": at(3), "settled": at(4)}, sinks={}))
    assert all(span.end_time >= span.start_time for span in found.values())


def test_an_epoch_of_which_nothing_is_known_makes_no_trace(spans: InMemorySpanExporter) -> None:
    assert traced(spans, record(times={}, sinks={})) == {}


class Collector(http.server.BaseHTTPRequestHandler):
    """As one that speaks OTLP over HTTP."""

    got: ClassVar[list[ExportTraceServiceRequest]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.got.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Not on standard error."""


def test_a_collector_gets_them_by_the_usual_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        traces = Traces("pv")
        traces.finished(record())
        traces.close()
        server.shutdown()
    (resource,) = Collector.got[0].resource_spans
    service = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
    names = [span.name for one in resource.scope_spans for span in one.spans]
    assert (service, sorted(names)) == ("pv", ["decide", "epoch", "manifest", "publish", "settle", "stage"])


class Silent(Collector):
    """It takes the connection and says nothing, until it may."""

    got: ClassVar[list[ExportTraceServiceRequest]] = []
    may_answer: ClassVar[threading.Event] = threading.Event()

    def do_POST(self) -> None:
        self.may_answer.wait(60)
        super().do_POST()


def test_a_collector_that_never_answers_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry itself would wait for half a minute."""
    monkeypatch.setattr("onceward.traces._SHUTDOWN_GRACE_S", 0.2)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        traces = Traces("pv")
        traces.finished(record())
        traces.close()
        sending = [thread for thread in threading.enumerate() if thread.name == "onceward-traces"]
        assert sending, "it was waited for"
        Silent.may_answer.set()
        sending[0].join(60)
        server.shutdown()
    assert len(Silent.got) == 1


def test_without_the_packages_it_is_refused_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ConfigurationError, match="not installed") as refused:
        Traces("pv")
    assert "onceward[traces]" in str(refused.value.hint)
