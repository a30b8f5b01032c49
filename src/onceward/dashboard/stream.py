"""What changes, told as it happens: one look a second for all browsers together, and none while nobody watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from anyio import to_thread

EVERY_S: Final = 1.0
_SIGN_S: Final = 15.0
"""A line now and then, so that a browser, or a proxy in between, sees that the connection is alive."""

Look = Callable[[], Sequence[Mapping[str, Any]]]


class Stream:
    """Made in the server's loop. `look` runs in a thread; each glance has an `id` and a `version`."""

    def __init__(self, look: Look, *, every_s: float = EVERY_S) -> None:
        self._look, self._every_s = look, every_s
        self._watchers: set[asyncio.Event] = set()
        self._glances: dict[str, Mapping[str, Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._looks = 0
        self._is_closed = False

    def close(self) -> None:
        """The server ends, and waits for nobody who waits for news. Called in its loop."""
        self._is_closed = True
        for woken in self._watchers:
            woken.set()

    async def events(self) -> AsyncIterator[str]:
        """For one browser: all jobs at first, then those that have changed."""
        woken = asyncio.Event()
        self._watchers.add(woken)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        told: dict[str, str] = {}
        try:
            while not self._is_closed:
                try:
                    await asyncio.wait_for(woken.wait(), _SIGN_S)
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                woken.clear()
                now = {name: str(one["version"]) for name, one in self._glances.items()}
                if now != told:
                    changed = [one for name, one in self._glances.items() if told.get(name) != now[name]]
                    yield f"event: jobs\ndata: {json.dumps({'all': list(now), 'changed': changed})}\n\n"
                    told = now
                elif self._looks % 5 == 0:
                    # Nothing is new, and that is news as well: the page shows how fresh it is.
                    yield "event: same\ndata: {}\n\n"
        finally:
            self._watchers.discard(woken)

    async def _work(self) -> None:
        while self._watchers and not self._is_closed:
            found = await to_thread.run_sync(self._look)
            self._glances = {str(one["id"]): one for one in found}
            self._looks += 1
            for woken in self._watchers:
                woken.set()
            await asyncio.sleep(self._every_s)
