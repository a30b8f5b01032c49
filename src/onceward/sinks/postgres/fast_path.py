"""Fast paths that hold for most epochs, and are abandoned where they do not."""

from __future__ import annotations

_EPOCHS_TO_WAIT = 100


class FastPath:
    """What is taken back stays in the table as dead rows until it is vacuumed: so it is not tried again at once."""

    def __init__(self) -> None:
        self._wait = 0

    def is_open(self) -> bool:
        """Asked once an epoch."""
        if self._wait:
            self._wait -= 1
            return False
        return True

    def back_off(self) -> None:
        """Close it for a while."""
        self._wait = _EPOCHS_TO_WAIT
