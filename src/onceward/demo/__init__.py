"""The demonstration: one stream delivered by onceward and by a naive `foreachBatch`, under the same kills."""

from onceward.demo.play import DemoResult, play

__all__ = ["DemoResult", "play"]
