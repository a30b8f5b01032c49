"""What becomes of rows that a target has already, when a job that was taken back delivers them once more."""

from __future__ import annotations

from enum import Enum


class Repeated(Enum):
    """By what a sink does with a row."""

    DUPLICATES = "the rows of these epochs stay, and come again: duplicates"
    COUNTED_TWICE = "what these epochs have added stays, and is added again: counted twice"
    OVERWRITTEN = (
        "values are written again under their keys; until a key comes again it keeps the newer value, and a key that "
        "does not come again keeps it for good"
    )
    REPLACED = "the next epoch replaces the whole content"
    FILES = "their files stay beside those that are written again: duplicates, unless you remove them before the start"
