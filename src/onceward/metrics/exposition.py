"""The registry as text in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _WithoutCreated(Collector):
    """The client adds the time at which each counter was made, as a series of its own, unless a switch of the whole
    process says otherwise. Nobody has asked for these, and the process is the user's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def exposition(registry: CollectorRegistry) -> bytes:
    """All of it, as it stands now."""
    return generate_latest(_WithoutCreated(registry))
