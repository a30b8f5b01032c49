"""The metrics of a run: what they count, their names, and that the page and the dashboard name no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api_client import Client
from api_world import World
from prometheus_client.parser import text_string_to_metric_families

from onceward.contracts.events import Begun, Retried
from onceward.identity import SinkName
from onceward.metrics import Meter, exposition

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "deploy" / "grafana" / "onceward.json"
PAGE = ROOT / "docs" / "monitoring.md"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
# Words of Prometheus' language that look like names.
_NAME = re.compile(r"\bonceward_[a-z_]+")
_MATCHER = re.compile(r"(onceward_[a-z_]+)\{([^}]*)\}")


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(client: Client) -> str:
    reply = client.get("/metrics")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return reply.body.decode()


def test_a_run_is_counted(client: Client, world: World) -> None:
    world.recorder.close()
    found = values(scraped(client))

    def value(name: str, /, **labels: str) -> float:
        return found[(f"onceward_{name}", frozenset(labels.items()))]

    gate, other = (str(sink.name) for sink in world.harness.sinks)
    assert (value("epochs_total", outcome="settled"), value("epochs_total", outcome="failed")) == (3, 1)
    assert (value("epoch_duration_seconds_count"), value("epoch_phase_seconds_count", phase="barrier")) == (3, 3)
    assert round(value("epoch_phase_seconds_sum", phase="barrier"), 6) == 0.048
    assert (value("settled_rows_total", sink=gate), value("settled_rows_total", sink=other)) == (12, 12)
    assert (value("staged_rows_total"), value("input_rows_total")) == (16, 12)
    assert value("staged_bytes_total") > 0
    assert [value("newest_epoch", step=step) for step in ("planned", "decided", "settled")] == [3, 3, 2]
    assert (value("unpublished_epochs"), value("unpublished_epochs_limit")) == (1, 10)
    assert (value("outage", sink=gate), value("outage", sink=other)) == (1, 0)
    assert value("delivery_retries_total", sink=gate) > 0
    assert value("delivery_retries_total", sink=other) == 0
    assert value("in_doubt_transactions", sink=gate) == 2
    assert value("in_doubt_oldest_seconds", sink=gate) > 0
    assert value("takeovers_total") == 1
    assert (value("state_rows", operator="0", name="agg"), value("state_bytes", operator="0", name="agg")) == (2, 900)
    assert value("run_active") == 1


def test_a_sink_that_nobody_looked_at_has_no_count_in_doubt(client: Client, world: World) -> None:
    """Nothing is known of it, which is not the same as nothing."""
    world.run.tracker._looks.clear()
    assert "onceward_in_doubt_transactions{" not in scraped(client)


def test_rates_have_a_beginning() -> None:
    """Each series is there before its first event, at zero."""
    text = exposition(Meter([SinkName("a")]).registry).decode()
    assert 'onceward_epochs_total{outcome="failed"} 0.0' in text
    assert 'onceward_delivery_retries_total{sink="a"} 0.0' in text
    assert "_created" not in text


def test_a_meter_that_fails_does_not_disturb_and_two_do_not_mix() -> None:
    one, two = Meter([SinkName("a")]), Meter([SinkName("a")])
    one(Retried(0, NOW, SinkName("a"), "no"))
    one(Begun(0, NOW, NOW, 2, "exactly-once"))
    assert 'retries_total{sink="a"} 1.0' in exposition(one.registry).decode()
    assert 'retries_total{sink="a"} 0.0' in exposition(two.registry).decode()


def test_every_family_has_help_and_type(client: Client) -> None:
    families = list(text_string_to_metric_families(scraped(client)))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("onceward_")
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name


def test_the_page_lists_every_metric_with_its_labels_and_no_other(client: Client, world: World) -> None:
    world.recorder.close()
    exported: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(scraped(client)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        exported[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
        kinds[name] = family.type
    rows = re.findall(r"^\| `(onceward_\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows} == exported
    assert {name: kind for name, kind, _ in rows} == kinds


def queries(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for name, value in node.items() if name in ("expr", "query") and isinstance(value, str))
        for value in node.values():
            yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


def test_every_query_of_the_dashboard_finds_its_metrics(client: Client, world: World) -> None:
    """Each name is exported by a run, with the labels, and the values of labels, that the query asks for."""
    world.recorder.close()
    samples = [sample for family in text_string_to_metric_families(scraped(client)) for sample in family.samples]
    names = {sample.name for sample in samples}
    asked = [query for query in queries(json.loads(DASHBOARD.read_text(encoding="utf-8"))) if "onceward_" in query]
    assert len(asked) >= 15
    for query in asked:
        assert set(_NAME.findall(query)) <= names, query
        for name, matchers in _MATCHER.findall(query):
            for label, wanted in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                if label == "instance":
                    continue
                found = {sample.labels.get(label) for sample in samples if sample.name == name}
                assert wanted in found, (query, label, found)
        for grouping in re.findall(r"by \(([^)]*)\)", query):
            for label in {part.strip() for part in grouping.split(",")} - {"instance"}:
                assert any(label in sample.labels for sample in samples if sample.name in _NAME.findall(query)), query
    used = {name for query in asked for name in _NAME.findall(query)}
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} == base, "each metric is shown somewhere"
