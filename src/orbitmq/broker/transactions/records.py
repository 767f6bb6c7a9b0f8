"""What is stored of messages of transactions: half messages, copies of them, what consumers get in the end, and op records.

Pure rewrites, in the formats of the original; `message.half_messages` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.broker.own_messages import copy_of
from orbitmq.broker.processors.send import Waiting
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType, with_transaction_type
from orbitmq.message.half_messages import ENDED_TAG, QUEUE_ID, SEPARATOR, number, root_of
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage

_HALF_TOPIC: Final = HALF_TOPIC.encode()
_REAL: Final = (properties.REAL_TOPIC, properties.REAL_QUEUE_ID)
_OF_COPIES: Final = (properties.PREPARED_QUEUE_OFFSET, properties.TRANSACTION_CHECK_TIMES)


def half_of(message: Message, found: Mapping[str, str]) -> Message:
    """What is stored of a message with these properties until its transaction ends."""
    raw = bytes(message.properties)
    for name in (*_REAL, *_OF_COPIES, properties.TRANSACTION_ID):
        raw = properties.without(raw, name)
    return Message(
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
                properties.TRANSACTION_ID: found.get(properties.UNIQUE_KEY) or properties.parse(raw).get(properties.UNIQUE_KEY),
                properties.REAL_TOPIC: bytes(message.topic).decode(),
                properties.REAL_QUEUE_ID: str(message.queue_id),
            },
        ),
    )


def quick_half(topic: str, queue_id: int, unique_key: str) -> Waiting:
    """How the record of a half message differs from that of an ordinary one, which has none of these properties."""
    own = {properties.TRANSACTION_ID: unique_key, properties.REAL_TOPIC: topic, properties.REAL_QUEUE_ID: str(queue_id)}
    return Waiting(_HALF_TOPIC, QUEUE_ID, properties.encode(own))


def half_again(half: StoredMessage, root: int | None, checks: int) -> Message:
    """The half message once more, at the end of its queue, with how often its producer was asked; without a root it is one of its own."""
    more = {properties.TRANSACTION_CHECK_TIMES: str(checks), properties.PREPARED_QUEUE_OFFSET: None if root is None else str(root)}
    return copy_of(half, HALF_TOPIC, QUEUE_ID, more)


def committed(half: StoredMessage) -> Message:
    """What consumers get of it, as 5.x leaves its properties."""
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


def given_up(half: StoredMessage) -> Message:
    """What is kept of it when nobody is asked any more: all of it, and its root, for who lets the questions begin again."""
    return copy_of(half, CHECK_MAX_TIME_TOPIC, QUEUE_ID, {properties.PREPARED_QUEUE_OFFSET: str(root_of(half))})


def op_of(offsets: Iterable[int], now_ms: int, store_host: bytes, key: str | None = None) -> Message:
    """The record that says that these half messages ended; `key` is by what it can be found."""
    return Message(
        OP_HALF_TOPIC.encode(),
        "".join(f"{offset}{SEPARATOR}" for offset in offsets).encode(),
        born_host=store_host,
        born_time_ms=now_ms,
        queue_id=QUEUE_ID,
        properties=properties.encode({properties.WAIT: "true", properties.TAGS: ENDED_TAG, properties.KEYS: key}),
    )
