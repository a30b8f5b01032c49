"""The one envelope of every JSON file we keep: a version line with a checksum, then the document.

``onceward <kind> <version> sha256=<hex>`` and a line feed, then compact JSON. The checksum covers kind, version and
document, so that no flipped bit is believed, wherever it is. See docs/formats/sealed.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from onceward.errors import DamagedFile, NewerFormat

_HEADER = re.compile(rb"onceward ([a-z]+) ([0-9]{1,4}) sha256=([0-9a-f]{64})\n")
VERSIONS: Final[Mapping[str, int]] = {"identity": 4, "manifest": 2, "settled": 2}
"""What this release writes; every kind that is not named is still in its first version. Older ones are read."""


def version_of(kind: str) -> int:
    """The version in which files of this kind are written, the highest that can be read."""
    return VERSIONS.get(kind, 1)


def _checksum(kind: str, version: int, body: bytes) -> str:
    return hashlib.sha256(f"{kind} {version}\n".encode() + body).hexdigest()


def seal(kind: str, document: dict[str, Any]) -> bytes:
    """The bytes of a file of this kind."""
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    version = version_of(kind)
    return f"onceward {kind} {version} sha256={_checksum(kind, version, body)}\n".encode() + body


def unseal(kind: str, data: bytes, *, path: str) -> dict[str, Any]:
    """The document in `data`, or `DamagedFile`: never a guess."""
    document = json.loads(sealed_body(kind, data, path=path))
    if not isinstance(document, dict):
        raise _damaged(path, "it does not hold a JSON object")
    return document


def sealed_body(kind: str, data: bytes, *, path: str) -> bytes:
    """The document as it stands in `data`, which ends with it, or `DamagedFile`."""
    header = _HEADER.match(data)
    if header is None:
        raise _damaged(path, "its first line is not one of ours")
    found, version, checksum = header[1].decode(), int(header[2]), header[3].decode()
    if version > version_of(found):
        raise NewerFormat(
            f"{path} has version {version}; this release reads up to {version_of(found)}",
            hint="it was written by a newer onceward: upgrade, or go on with the release that wrote it",
        )
    body = data[header.end() :]
    if found != kind or _checksum(found, version, body) != checksum:
        raise _damaged(path, "its checksum does not match its content")
    return body


def _damaged(path: str, why: str) -> DamagedFile:
    return DamagedFile(
        f"{path} is damaged: {why}",
        hint="restore this file from a backup of the checkpoint; `onceward status` shows the epoch it belongs to",
    )
