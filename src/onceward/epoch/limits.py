"""How patient the publisher is, and how long things are kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from onceward.journal import Retention


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """How patient the publisher is with a target, and how long receipts are kept."""

    deadline_s: float = 600.0
    backoff_s: float = 0.1
    max_backoff_s: float = 30.0
    keep_receipts: int = 100
    reap_every: int = 20
    keep_published: Retention = field(default_factory=Retention)
    look_back_every_s: float = 60.0
