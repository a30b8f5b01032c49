"""The functions of librdkafka that the producer calls, and the two records that they take.

confluent-kafka brings the library along and is linked with it, so its functions are found through confluent-kafka's
own module: there is one copy of it, whoever built it. Everything here is of the library's public interface (rdkafka.h),
which is kept compatible from version to version.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_void_p,
)
from typing import Any

import numpy as np

from onceward.errors import ConfigurationError

_OLDEST, _TOO_NEW = 0x020C0000, 0x03000000
"""From 2.12 to before 3.0: the layouts below were never tried with others."""


class Message(Structure):
    """rd_kafka_message_t"""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("value", c_void_p),
        ("value_length", c_size_t),
        ("key", c_void_p),
        ("key_length", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    )


class _Bytes(Structure):
    _fields_ = (("pointer", c_void_p), ("length", c_size_t))


class _Content(Union):
    _fields_ = (("bytes", _Bytes), ("int32", c_int32), ("int64", c_int64), ("_pad", c_char * 64))


class Part(Structure):
    """rd_kafka_vu_t: what a part of a record is, and a pointer and a length, or a number."""

    _fields_ = (("kind", c_int), ("content", _Content))


def _columns(structure: Any, **places: tuple[Any, int]) -> Any:
    """The layout for numpy: the type of each field and where it begins."""
    kinds, offsets = zip(*places.values(), strict=True)
    return np.dtype(
        {"names": list(places), "formats": list(kinds), "offsets": list(offsets), "itemsize": ctypes.sizeof(structure)}
    )


_CONTENT = Part.content.offset
_POINTER = np.dtype(np.uint64)
MESSAGE = _columns(
    Message,
    err=(np.int32, Message.err.offset),
    value=(_POINTER, Message.value.offset),
    value_length=(_POINTER, Message.value_length.offset),
    key=(_POINTER, Message.key.offset),
    key_length=(_POINTER, Message.key_length.offset),
)
PART = _columns(
    Part,
    kind=(np.int32, Part.kind.offset),
    pointer=(_POINTER, _CONTENT + _Bytes.pointer.offset),
    length=(_POINTER, _CONTENT + _Bytes.length.offset),
    int32=(np.int32, _CONTENT),
    int64=(np.int64, _CONTENT),
)
TOPIC, PARTITION, VALUE, KEY, FLAGS, TIMESTAMP, HEADERS = 2, 3, 4, 5, 7, 8, 10

PRODUCER = 0
ANY_PARTITION = -1
COPY = 0x2
FROM_QUEUE, IN_FLIGHT = 0x1, 0x2


OnDelivery = CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
OnError = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
OnLog = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_version": (c_int, ()),
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "rd_kafka_conf_set_dr_msg_cb": (None, (c_void_p, OnDelivery)),
    "rd_kafka_conf_set_error_cb": (None, (c_void_p, OnError)),
    "rd_kafka_conf_set_log_cb": (None, (c_void_p, OnLog)),
    "rd_kafka_conf_destroy": (None, (c_void_p,)),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_set_log_queue": (c_int, (c_void_p, c_void_p)),
    "rd_kafka_destroy": (None, (c_void_p,)),
    "rd_kafka_topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "rd_kafka_topic_name": (c_char_p, (c_void_p,)),
    "rd_kafka_topic_destroy": (None, (c_void_p,)),
    "rd_kafka_metadata": (c_int, (c_void_p, c_int, c_void_p, POINTER(c_void_p), c_int)),
    "rd_kafka_metadata_destroy": (None, (c_void_p,)),
    "rd_kafka_init_transactions": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_begin_transaction": (c_void_p, (c_void_p,)),
    "rd_kafka_commit_transaction": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_abort_transaction": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "rd_kafka_produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "rd_kafka_headers_new": (c_void_p, (c_size_t,)),
    "rd_kafka_header_add": (c_int, (c_void_p, c_char_p, c_ssize_t, c_char_p, c_ssize_t)),
    "rd_kafka_headers_destroy": (None, (c_void_p,)),
    "rd_kafka_outq_len": (c_int, (c_void_p,)),
    "rd_kafka_poll": (c_int, (c_void_p, c_int)),
    "rd_kafka_flush": (c_int, (c_void_p, c_int)),
    "rd_kafka_purge": (c_int, (c_void_p, c_int)),
    "rd_kafka_fatal_error": (c_int, (c_void_p, c_char_p, c_size_t)),
    "rd_kafka_err2str": (c_char_p, (c_int,)),
    "rd_kafka_error_code": (c_int, (c_void_p,)),
    "rd_kafka_error_string": (c_char_p, (c_void_p,)),
    "rd_kafka_error_destroy": (None, (c_void_p,)),
}


@functools.cache
def why_unusable() -> str | None:
    """Why records cannot be handed to the library as it is installed here, if so."""
    try:
        library()
    except ConfigurationError as error:
        return error.message
    return None


@functools.cache
def library() -> Any:
    """The library, with the types of what its functions take and give."""
    if ctypes.sizeof(c_void_p) != _POINTER.itemsize:
        raise ConfigurationError(
            f"addresses have {ctypes.sizeof(c_void_p)} bytes here", hint="use a Python for 64 bits"
        )
    from confluent_kafka import cimpl

    try:
        found = ctypes.CDLL(cimpl.__file__)
    except OSError as error:
        raise ConfigurationError(
            f"confluent-kafka's library cannot be opened: {error}", hint="install confluent-kafka from its wheel"
        ) from None
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(
                f"this build of confluent-kafka hides {name}", hint="install confluent-kafka from its wheel"
            ) from None
        function.restype, function.argtypes = result, arguments
    refuse_untried(found.rd_kafka_version())
    return found


def refuse_untried(version: int) -> None:
    """Records are written where this library looks for them: another one may look elsewhere."""
    if not _OLDEST <= version < _TOO_NEW:
        told = ".".join(str(version >> shift & 0xFF) for shift in (24, 16, 8))
        raise ConfigurationError(
            f"librdkafka {told} was never tried with this release", hint="pip install 'confluent-kafka>=2.12,<3'"
        )
