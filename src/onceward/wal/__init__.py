"""The write-ahead log: where rows wait between *stage* and *publish* for targets without transactions to wait in."""

from onceward.wal.segment import SegmentWriter, read_segment
from onceward.wal.shelf import FOLDER, WAL, Shelf, is_segment

__all__ = ["FOLDER", "WAL", "SegmentWriter", "Shelf", "is_segment", "read_segment"]
