"""A run in numbers, for Prometheus: counted from the events of its epochs, and read from its status when asked.

Nothing of *stage → decide → publish → settle → recover* rests on it. Needs the extra `onceward[api]`.
"""

from onceward.metrics.exposition import exposition
from onceward.metrics.gauges import StatusGauges
from onceward.metrics.meter import Meter

__all__ = ["Meter", "StatusGauges", "exposition"]
