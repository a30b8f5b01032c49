"""The write-ahead log: where rows wait between *stage* and *publish* for targets without transactions to wait in."""

from onceward.wal.segment import SegmentWriter, read_segment
from onceward.wal.store import FOLDER, WAL, SegmentStore, is_segment

__all__ = ["FOLDER", "WAL", "SegmentStore", "SegmentWriter", "is_segment", "read_segment"]
