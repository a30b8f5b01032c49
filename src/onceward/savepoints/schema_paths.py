"""The full paths that Spark writes into an operator's description: relative in a savepoint, full in a checkpoint.

`state/<operator>/_metadata/v2/<epoch>` names the files with the schemas of the operator's state, by their full paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

DESCRIPTION = re.compile(r"state/([0-9]+)/_metadata/v2/[0-9]+")
MOST_BYTES: Final = 64 << 20
_KEY: Final = "stateSchemaFilePaths"


def is_description(path: str) -> bool:
    """Whether a file may hold such paths."""
    return DESCRIPTION.fullmatch(path) is not None


def made_relative(path: str, data: bytes) -> bytes:
    """As a savepoint holds it."""
    root = _root_of(path)

    def relative(full: str) -> str:
        _, mark, rest = full.rpartition(f"/{root}")
        if not mark and not full.startswith(root):
            raise ValueError(f"{full!r} is not below {root}")
        return f"{root}{rest}" if mark else full

    return _rewritten(data, relative)


def made_absolute(path: str, data: bytes, checkpoint: Path) -> bytes:
    """As Spark wants it in this checkpoint. A name that leads elsewhere is refused."""
    root = _root_of(path)

    def absolute(relative: str) -> str:
        if not relative.startswith(root) or ".." in relative.split("/") or not relative.isprintable():
            raise ValueError(f"{relative[:200]!r} is not below {root}")
        return f"file:{checkpoint}/{relative}"

    return _rewritten(data, absolute)


def _root_of(path: str) -> str:
    match = DESCRIPTION.fullmatch(path)
    assert match is not None, "asked before"
    return f"state/{match[1]}/_stateSchema/"


def _rewritten(data: bytes, change: Callable[[str], str]) -> bytes:
    version, _, body = data.decode().partition("\n")
    document: dict[str, Any] = json.loads(body)
    for store in document["stateStoreInfo"]:
        if _KEY in store:
            store[_KEY] = [change(str(one)) for one in store[_KEY]]
    return f"{version}\n{json.dumps(document, separators=(',', ':'), ensure_ascii=False)}".encode()
