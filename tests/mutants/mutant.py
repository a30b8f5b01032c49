"""What a named mutant is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule of the protocol, and the smallest change to the real code that breaks it.

    `old` stands exactly once in `file` (below `src/onceward`); `new` takes its place. Choose a short `old` that says
    what it is about, so that other changes leave it alone. `tests` are those that should catch it, the quickest first:
    files or test functions, as pytest takes them.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where its file is below a folder of sources."""
        return Path("onceward") / self.file

    def found(self) -> int:
        """How often `old` stands in today's sources."""
        path = SOURCES / self.path
        return path.read_text(encoding="utf-8").count(self.old) if path.exists() else 0
