"""The functions of librdkafka that the producer calls, and the two records that they take.

confluent-kafka brings the library along and is linked with it, so its functions are found through confluent-kafka's
own module: there is one copy of it, whoever built it. Everything here is of the library's public interface (rdkafka.h),
which is kept compatible from version to version.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_size_t, c_ssize_t, c_void_p
from typing import Any

import numpy as np

from onceward.errors import ConfigurationError

# rd_kafka_message_t
MESSAGE = np.dtype(
    {
        "names": ["err", "value", "value_length", "key", "key_length"],
        "formats": [np.int32, np.uint64, np.uint64, np.uint64, np.uint64],
        "offsets": [0, 24, 32, 40, 48],
        "itemsize": 72,
    }
)
# rd_kafka_vu_t: what a part of a record is, and a union: a pointer and a length, or a number.
PART = np.dtype(
    {
        "names": ["kind", "pointer", "length", "int32", "int64"],
        "formats": [np.int32, np.uint64, np.uint64, np.int32, np.int64],
        "offsets": [0, 8, 16, 8, 8],
        "itemsize": 72,
    }
)
TOPIC, PARTITION, VALUE, KEY, FLAGS, TIMESTAMP, HEADERS = 2, 3, 4, 5, 7, 8, 10

PRODUCER = 0
ANY_PARTITION = -1
COPY = 0x2
FROM_QUEUE, IN_FLIGHT = 0x1, 0x2


class FailedMessage(ctypes.Structure):
    """The beginning of a rd_kafka_message_t."""

    _fields_ = (("err", c_int), ("topic", c_void_p))


OnDelivery = CFUNCTYPE(None, c_void_p, POINTER(FailedMessage), c_void_p)
OnError = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
OnLog = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
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
def library() -> Any:
    """The library, with the types of what its functions take and give."""
    from confluent_kafka import cimpl

    found = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(
                f"this build of confluent-kafka hides {name}", hint="install confluent-kafka from its wheel"
            ) from None
        function.restype, function.argtypes = result, arguments
    return found
