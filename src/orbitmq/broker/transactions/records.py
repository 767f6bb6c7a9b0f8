"""Records of transactions: half messages, their copies, the committed messages, and op records.

Pure rewrites, in the formats of Apache RocketMQ; `message.half_messages` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.broker.produce.deferral import Holding
from orbitmq.broker.produce.internal_writer import copy_of
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType, with_transaction_type
from orbitmq.message.half_messages import ENDED_TAG, QUEUE_ID, SEPARATOR, number, root_of
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage

_HALF_TOPIC: Final = HALF_TOPIC.encode()
_REAL: Final = (properties.REAL_TOPIC, properties.REAL_QUEUE_ID)
_OF_COPIES: Final = (properties.PREPARED_QUEUE_OFFSET, properties.TRANSACTION_CHECK_TIMES)


def half_of(message: MessageRecord, found: Mapping[str, str]) -> MessageRecord:
    """Return the half message to store until the message's transaction ends."""
    raw = bytes(message.properties)
    for name in (*_REAL, *_OF_COPIES, properties.TRANSACTION_ID):
        raw = properties.without(raw, name)
    return MessageRecord(
        HALF_TOPIC.encode(),
        message.body,
        born_host=message.born_host,
        born_time_ms=message.born_time_ms,
        queue_id=QUEUE_ID,
        flag=message.flag,
        sys_flag=with_transaction_type(message.sys_flag, TransactionType.NONE),
        reconsume_times=message.reconsume_times,
        properties=properties.extended(
            raw,
            {
                properties.TRANSACTION_ID: (
                    found.get(properties.UNIQUE_KEY)
                    or properties.parse(raw).get(properties.UNIQUE_KEY)
                ),
                properties.REAL_TOPIC: bytes(message.topic).decode(),
                properties.REAL_QUEUE_ID: str(message.queue_id),
            },
        ),
    )


def quick_half(topic: str, queue_id: int, unique_key: str) -> Holding:
    """Return how the record of a half message differs from that of an ordinary message, which has
    none of these properties.
    """
    own = {
        properties.TRANSACTION_ID: unique_key,
        properties.REAL_TOPIC: topic,
        properties.REAL_QUEUE_ID: str(queue_id),
    }
    return Holding(_HALF_TOPIC, QUEUE_ID, properties.encode(own))


def half_again(half: StoredMessage, root: int | None, checks: int) -> MessageRecord:
    """Return a copy of the half message for the end of its queue, with its check count; without a
    root it is a transaction of its own.
    """
    more = {
        properties.TRANSACTION_CHECK_TIMES: str(checks),
        properties.PREPARED_QUEUE_OFFSET: None if root is None else str(root),
    }
    return copy_of(half, HALF_TOPIC, QUEUE_ID, more)


def committed(half: StoredMessage) -> MessageRecord:
    """Return the message for consumers, with the properties that 5.x keeps."""
    found = half.properties()
    return copy_of(
        half,
        found[properties.REAL_TOPIC],
        number(found.get(properties.REAL_QUEUE_ID)) or 0,
        {},
        without=(*_REAL, properties.PREPARED_QUEUE_OFFSET),
        sys_flag=with_transaction_type(half.sys_flag, TransactionType.COMMIT),
        prepared_offset=half.log_offset,
    )


def given_up(half: StoredMessage) -> MessageRecord:
    """Return the record that keeps a given-up half message: all of it and its root, so that checks
    can be resumed.
    """
    return copy_of(
        half, CHECK_MAX_TIME_TOPIC, QUEUE_ID, {properties.PREPARED_QUEUE_OFFSET: str(root_of(half))}
    )


def op_of(
    offsets: Iterable[int], now_ms: int, store_host: bytes, key: str | None = None
) -> MessageRecord:
    """Return the op record that marks these half messages as ended; `key` is its index key."""
    return MessageRecord(
        OP_HALF_TOPIC.encode(),
        "".join(f"{offset}{SEPARATOR}" for offset in offsets).encode(),
        born_host=store_host,
        born_time_ms=now_ms,
        queue_id=QUEUE_ID,
        properties=properties.encode(
            {properties.WAIT: "true", properties.TAGS: ENDED_TAG, properties.KEYS: key}
        ),
    )
