"""Sources. In *source → stage → decide → publish → settle → recover* Spark reads; this tells what was read when."""

from onceward.sources.kafka import KafkaSource, offsets_for_monitoring
from onceward.sources.positions import OffsetRange, offset_ranges

__all__ = ["KafkaSource", "OffsetRange", "offset_ranges", "offsets_for_monitoring"]
