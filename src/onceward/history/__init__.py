"""What became of every epoch, after the fact: put together from events, kept beside the checkpoint, shown to people.

Nothing of *stage → decide → publish → settle → recover* rests on it. It may have gaps where a driver was killed.
"""

from onceward.history.debug_log import log_event
from onceward.history.log import HistoryLog
from onceward.history.phases import PHASES, duration_s, phases
from onceward.history.record import EpochRecord, SinkRecord, folded
from onceward.history.recorder import Recorder
from onceward.history.summary import Distribution, Summary, summary

__all__ = [
    "PHASES",
    "Distribution",
    "EpochRecord",
    "HistoryLog",
    "Recorder",
    "SinkRecord",
    "Summary",
    "duration_s",
    "folded",
    "log_event",
    "phases",
    "summary",
]
