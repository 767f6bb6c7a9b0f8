"""The properties of a message: one text, `name 0x01 value 0x02` repeated, without escapes.

Reading drops incomplete properties: no 0x01, an empty name, an empty value. Of properties with the
same name the last counts. Writing refuses properties that would read differently. The bytes are the
UTF-8 of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from orbitmq.common.errors import InvalidMessageError

NAME_END = "\x01"
VALUE_END = "\x02"
KEY_SEPARATOR = " "  # separates the index keys in KEYS

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
MQ2_FLAG = "MQ2_FLAG"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQUE_KEY = "UNIQ_KEY"
EXTEND_UNIQUE_INFO = "EXTEND_UNIQ_INFO"
DUPLICATION_INFO = "DUP_INFO"
CONSUME_START_TIME = "CONSUME_START_TIME"
PRIORITY = "_SYS_MSG_PRIORITY_"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CHECK_IMMUNITY_TIME_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MESSAGE_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
LITE_TOPIC = "__LITE_TOPIC"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."
CRC32 = "__CRC32#"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

# fmt: off
RESERVED = frozenset((  # names that clients refuse for user properties
    KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED,
    PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET,
    BUYER_ID, MQ2_FLAG, TRANSFER_FLAG, CORRECTION_FLAG, ORIGIN_MESSAGE_ID, ORIGIN_GROUP,
    RECONSUME_TIME, MAX_RECONSUME_TIMES,
    MSG_REGION, TRACE_ON, UNIQUE_KEY, EXTEND_UNIQUE_INFO, DUPLICATION_INFO, CONSUME_START_TIME,
    PRIORITY, PREPARED_QUEUE_OFFSET,
    INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER,
    MESSAGE_TYPE, POP_CK, POP_CK_OFFSET,
    FIRST_POP_TIME, LITE_TOPIC, INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_SEC, TIMER_DELAY_MS,
    TIMER_DELIVER_MS, TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DEL_UNIQUE_KEY, TIMER_DELAY_LEVEL,
    BORN_HOST, BORN_TIMESTAMP, CRC32,
    DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID,
))
# fmt: on

# Names that applications do not write: those, and what brokers and clients add themselves.
OWN = RESERVED | frozenset((
    INNER_NUM, INNER_BASE, TRANSACTION_ID, TRANSACTION_CHECK_TIMES, CHECK_IMMUNITY_TIME_S,
    FORWARD_QUEUE_ID, REDIRECT,
))  # fmt: skip

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def decode_text(raw: bytes) -> str:
    """Decode UTF-8; malformed bytes become U+FFFD, as many as in Java."""
    try:
        return raw.decode()
    except UnicodeDecodeError:  # one mark per encoded surrogate, where Python would set three
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def parse(properties: str | bytes) -> dict[str, str]:
    """Return the properties of a text, or of its bytes, by name."""
    text = decode_text(properties) if isinstance(properties, bytes) else properties
    found = {}
    for piece in text.split(VALUE_END):
        name, _, value = piece.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def write(properties: Mapping[str, str | None]) -> str:
    """Return the text of `properties`; None values are omitted, an empty value is written but not
    read back.
    """
    parts: list[str] = []
    for name, value in properties.items():
        if value is None:
            continue
        if NAME_END in name or VALUE_END in name or VALUE_END in value:
            raise InvalidMessageError(
                f"property {name!r}={value!r} holds a separator (U+0001 or U+0002) that would cut"
                " it; take it out"
            )
        parts += (name, NAME_END, value, VALUE_END)
    return "".join(parts)


def encode(properties: Mapping[str, str | None]) -> bytes:
    """Return the bytes of `properties` as a record stores them; a lone surrogate, not encodable in
    UTF-8, becomes `?`.
    """
    return write(properties).encode("utf-8", "replace")


def without(properties: bytes, name: str) -> bytes:
    """Return the bytes without any property called `name`; all others, complete or not, are kept
    unchanged.
    """
    prefix = (name + NAME_END).encode()
    if prefix not in properties:
        return properties
    end = VALUE_END.encode()
    pieces = properties.split(end)
    kept = [piece for piece in pieces if not piece.startswith(prefix)]
    if (
        pieces[-1].startswith(prefix) and kept
    ):  # the last one was not terminated; its predecessor keeps its terminator
        kept.append(b"")
    return end.join(kept)


def closed(properties: bytes) -> bytes:
    """Return the bytes with the terminator that the last property may lack, so that another can
    follow.
    """
    return (
        properties
        if not properties or properties.endswith(VALUE_END.encode())
        else properties + VALUE_END.encode()
    )


def extended(properties: bytes, more: Mapping[str, str | None]) -> bytes:
    """Return the bytes with `more` appended, which takes precedence over properties of the same
    name.
    """
    return closed(properties) + encode(more)
