"""The publisher beside the engine: woken after each pre-commit, it waits for the decision and publishes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from onceward.epoch.deliver import Outage
from onceward.epoch.in_doubt import InDoubtSummary
from onceward.epoch.limits import PublishLimits
from onceward.epoch.publish import Publisher
from onceward.epoch.run_context import RunContext
from onceward.epoch.watchdog import Watchdog
from onceward.errors import PublishFailed
from onceward.logs import about

_FIRST_LOOK_S = 0.005
_LONGEST_LOOK_S = 0.25
_SHUTDOWN_GRACE_S = 5.0
"""What is left for a failing delivery to say why, once nobody wants to wait for it any more."""
_STILL_S = 60.0
"""How much longer than a delivery may take nothing has to move until it is taken for stuck (a disk that hangs)."""


class PublisherThread:
    """One thread for one run. The commit log is looked at directly: a notification can be missed, a file cannot.

    It looks often just after a pre-commit, when the decision is due, and sleeps while nothing is undecided.
    """

    def __init__(
        self, context: RunContext, limits: PublishLimits | None = None, *, watchdog: Watchdog | None = None
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        self._watchdog = watchdog
        self._publisher = Publisher(context, limits, is_cancelled=lambda: self._hurry.is_set())
        self._hurry = threading.Event()
        self._changed = threading.Condition()
        self._newest = -1
        self._watermark = -1
        self._closing = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="onceward-publisher", daemon=True)

    def start(self) -> None:
        """Begin; whatever was decided before is published first."""
        self._watermark = self._context.watermark()
        self._thread.start()

    def expect(self, epoch: int) -> None:
        """The epoch is pre-committed: its decision is near."""
        with self._changed:
            self._newest = max(self._newest, epoch)
            self._changed.notify_all()

    def wait_for_room(self, epoch: int, max_unpublished: int, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Hold back staging of `epoch` while more than that many epochs before it are unpublished."""
        with self._changed:
            while self.error is None and not unless() and epoch - 1 - self._watermark > max_unpublished:
                self._changed.wait(_LONGEST_LOOK_S)
        self.raise_error()

    def in_doubt(self) -> tuple[InDoubtSummary, ...]:
        """What waits in the targets, as the publisher last saw it."""
        return self._publisher.in_doubt.report()

    @property
    def outage(self) -> Outage | None:
        """The delivery that is being repeated, if one is."""
        return self._publisher.outage

    def raise_error(self) -> None:
        """Pass on why the publisher stopped, if it did."""
        if self.error is not None:
            raise self.error

    def close(self, timeout_s: float | None = None) -> None:
        """Publish what is decided, then end; raises what kept it from doing so.

        After `timeout_s` failed deliveries are no longer repeated, and one that does not come back is left alone:
        `PublishFailed` says what it waits for. Without a time-out it waits as long as anything moves.
        """
        if self._thread.ident is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if timeout_s is None:
            self._join_while_it_moves(2 * self._limits.deadline_s + _STILL_S)
        else:
            self._thread.join(timeout_s)
        self._hurry.set()
        self._thread.join(_SHUTDOWN_GRACE_S)
        if self._thread.is_alive():
            raise PublishFailed(
                f"publishing did not end within {'its deadline' if timeout_s is None else f'{timeout_s:.0f} s'}: "
                f"{self.why_busy()}",
                epoch=self._watermark + 1,
                hint="what is decided stays staged and is published first at the next start, in a new process; a call "
                "that hangs may still succeed, and is then found",
            )
        self.raise_error()

    def why_busy(self) -> str | None:
        """What is still going on, None when nothing is: the thread has ended, and every call has come back."""
        if self._watchdog is not None and (call := self._watchdog.outstanding()) is not None:
            return call
        return "it waits for the checkpoint's storage or a hook" if self._thread.is_alive() else None

    def _join_while_it_moves(self, patience_s: float) -> None:
        while True:
            before = self._progress()
            self._thread.join(patience_s)
            if not self._thread.is_alive() or self._progress() == before:
                return

    def _progress(self) -> tuple[int, int]:
        return self._watermark, self._watchdog.calls if self._watchdog is not None else 0

    def _work(self) -> None:
        with about(job=self._context.job.name):
            self._publish_until_closed()

    def _publish_until_closed(self) -> None:
        try:
            look_s = _FIRST_LOOK_S
            while True:
                before = self._watermark
                closing = self._closing
                self._advance(self._publisher.publish_decided())
                if closing:
                    self._publisher.sweep_or_put_off()
                    return
                look_s = _FIRST_LOOK_S if self._watermark > before else min(look_s * 2, _LONGEST_LOOK_S)
                with self._changed:
                    if self._closing:
                        continue
                    if self._newest > self._watermark:
                        self._changed.wait(look_s)
                    else:
                        self._changed.wait()
                        look_s = _FIRST_LOOK_S
        except BaseException as error:
            self.error = error
            with self._changed:
                self._changed.notify_all()

    def _advance(self, watermark: int) -> None:
        with self._changed:
            self._watermark = watermark
            self._changed.notify_all()
