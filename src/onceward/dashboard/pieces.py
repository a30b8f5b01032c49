"""Where each record stands in a file of the history, so that one of them is read later without the others.

A file holds up to 500 epochs, each with up to a thousand slots: parsing all of it for one epoch takes a third of a
second. The whole file is checked once, when it is first read; a piece of it by its own sum, whenever it is read again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.history.log import FOLDER
from onceward.journal import sealed_body

_HEAD: Final = '{"records":['
_decode: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Piece:
    """One record: of which epoch, and the bytes of the file that it is."""

    epoch: int
    start: int
    end: int
    crc: int


def read_pieces(storage: Storage, name: str) -> Iterator[tuple[Piece, Mapping[str, Any]]]:
    """Every record of a file; none where it is gone, put together with others meanwhile, or damaged."""
    path = f"{FOLDER}/{name}"
    data = storage.read(path)
    if data is None:
        return
    try:
        body = sealed_body("history", data, path=path)
        yield from _split(body, len(data) - len(body))
    except (DamagedFile, KeyError, TypeError, ValueError, IndexError):
        return


def _split(body: bytes, before: int) -> Iterator[tuple[Piece, Mapping[str, Any]]]:
    text, view = body.decode(), memoryview(body)
    if not text.startswith(_HEAD):
        raise ValueError("no list of records")
    place = start = len(_HEAD)
    while True:
        document, after = _decode(text, place)
        # Letters are one byte each in nearly every file, and then need not be counted anew.
        end = start + (after - place if len(text) == len(body) else len(text[place:after].encode()))
        yield Piece(int(document["epoch"]), before + start, before + end, zlib.crc32(view[start:end])), document
        if text[after] != ",":
            return
        place, start = after + 1, end + 1


def read_piece(storage: Storage, name: str, piece: Piece) -> Mapping[str, Any] | None:
    """One record again; None where its file is gone or changed."""
    try:
        with storage.open(f"{FOLDER}/{name}") as file:
            file.seek(piece.start)
            data = file.read(piece.end - piece.start)
    except FileNotFoundError:
        return None
    found: Mapping[str, Any] | None = json.loads(data) if zlib.crc32(data) == piece.crc else None
    return found
