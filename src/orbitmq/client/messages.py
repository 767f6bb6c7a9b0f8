"""Messages as applications see them: what they send, the result of a send, and what they receive.

Plain values; the wire format is derived from them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final, cast

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue

_RETRY_TOPIC_MARK: Final = (properties.RETRY_TOPIC + properties.NAME_END).encode()


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. `keys` make it searchable, `tags` let consumers filter it, `properties`
    are the application's own.

    Set at most one of `delay_level` (a delay level of the broker), `delay_ms` (a relative delay)
    and `deliver_at_ms` (a wall-clock time) to schedule its delivery.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    sharding_key: str | None = None
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    flag: int = 0
    waits_for_disk: bool = True  # with SYNC_FLUSH: reply only after the message is flushed

    def wire_properties(self) -> dict[str, str]:
        """Return all properties to send; raise InvalidMessageError if some are invalid."""
        texts = dict(self.properties)
        if texts and not properties.RESERVED.isdisjoint(texts):
            reserved = min(properties.RESERVED.intersection(texts))
            raise InvalidMessageError(
                f"property {reserved} is reserved by RocketMQ: use another name, or the Message"
                " argument for it"
            )
        if self.keys:
            texts[properties.KEYS] = (
                self.keys
                if isinstance(self.keys, str)
                else properties.KEY_SEPARATOR.join(self.keys)
            )
        if self.tags:
            texts[properties.TAGS] = self.tags
        if self.sharding_key:
            texts[properties.SHARDING_KEY] = self.sharding_key
        if self.delay_level or self.delay_ms is not None or self.deliver_at_ms is not None:
            texts.update(self._delay())
        texts[properties.WAIT] = "true" if self.waits_for_disk else "false"
        return texts

    def _delay(self) -> dict[str, str]:
        delays = {
            properties.DELAY: self.delay_level or None,
            properties.TIMER_DELAY_MS: self.delay_ms,
            properties.TIMER_DELIVER_MS: self.deliver_at_ms,
        }
        given = {name: str(value) for name, value in delays.items() if value is not None}
        if len(given) > 1:
            raise InvalidMessageError(
                "delay_level, delay_ms and deliver_at_ms exclude each other: set one of them"
            )
        return given


def describe_type_error(message: Message) -> str | None:
    """Return what has the wrong type in a message and how to fix it, or None if all types are
    valid.
    """
    topic, body, keys, own = cast(
        "tuple[object, ...]", (message.topic, message.body, message.keys, message.properties)
    )
    if not isinstance(topic, str):
        return f"the topic of a message is {topic!r}: give a str"
    place = f"of a message to {topic}"
    if not isinstance(body, bytes | bytearray | memoryview):
        hint = (
            ": encode it, for example with text.encode()"
            if isinstance(body, str)
            else ": give bytes"
        )
        return f"the body {place} is of type {type(body).__name__}{hint}"
    if not isinstance(keys, str) and not (
        isinstance(keys, Iterable) and all(isinstance(key, str) for key in keys)
    ):
        return f"the keys {place} are {keys!r}: give a str, or a list of str"
    if not isinstance(own, Mapping):
        return f"the properties {place} are {own!r}: give a dict of str to str"
    for name, value in {"tags": message.tags, "sharding_key": message.sharding_key, **own}.items():
        if not isinstance(name, str):
            return f"the property {name!r}={value!r} {place} has an invalid name: give a str"
        if not isinstance(value, str | None):
            return f"{name}={value!r} {place} is of type {type(value).__name__}: convert it to str"
    return None


class SendStatus(Enum):
    """How a broker stored a message; all but SEND_OK mean less durability than requested."""

    SEND_OK = "stored as requested"
    FLUSH_DISK_TIMEOUT = "stored, but the disk did not confirm it in time"
    FLUSH_SLAVE_TIMEOUT = "stored, but no replica confirmed it in time"
    SLAVE_NOT_AVAILABLE = "stored, but there is no replica"


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message was stored. `msg_id` is the id its producer gave it, `offset_msg_id` encodes
    its storage location.

    For a batch, both hold one id per message, separated by commas.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = None
    recall_handle: str | None = None
    is_traced: bool = True  # False if the broker turned tracing off


class TransactionState(IntEnum):
    """The outcome of a local transaction; the number is the wire value."""

    COMMIT = TransactionType.COMMIT
    ROLLBACK = TransactionType.ROLLBACK
    UNKNOWN = TransactionType.NONE  # the broker checks again later


@dataclass(slots=True, eq=False)
class ReceivedMessage:
    """A message of a queue, with its body as it was sent. Immutable by convention; equal only to
    itself.

    If the body cannot be decoded, `problem` says why and `body` raises; `stored.body` has the raw
    bytes.
    """

    queue: MessageQueue
    topic: str  # the topic it was sent to, also when redelivered from a retry topic
    _body: bytes
    stored: StoredMessage
    problem: str | None = field(default=None, kw_only=True)
    _properties: dict[str, str] | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, stored: StoredMessage, broker_name: str) -> ReceivedMessage:
        """Return the message of a record that a broker stores."""
        return cls.in_queue(stored, MessageQueue(stored.topic, broker_name, stored.queue_id))

    @classmethod
    def in_queue(cls, stored: StoredMessage, queue: MessageQueue) -> ReceivedMessage:
        """Return the message of a record in `queue`."""
        message = cls(queue, stored.topic, stored.body, stored)
        if _RETRY_TOPIC_MARK in stored.raw_properties:
            message.topic = message.properties.get(properties.RETRY_TOPIC, stored.topic)
        return message

    def with_next_attempt(self) -> ReceivedMessage:
        """Return a copy with one more delivery attempt."""
        return replace(
            self, stored=self.stored._replace(reconsume_times=self.stored.reconsume_times + 1)
        )

    @property
    def body(self) -> bytes:
        """The body as it was sent; raises CorruptRecordError if it cannot be decoded."""
        if self.problem is not None:
            raise CorruptRecordError(
                f"the body of message {self.msg_id} of topic {self.topic} cannot be decoded:"
                f" {self.problem}; `stored.body` has its raw bytes"
            )
        return self._body

    @property
    def body_size(self) -> int:
        """The number of body bytes held in memory, decodable or not."""
        return len(self._body)

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including RocketMQ's own; parsed on first access, since most listeners
        need none.
        """
        if self._properties is None:
            self._properties = self.stored.properties()
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tags, if any."""
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The lookup keys."""
        return tuple(self.properties.get(properties.KEYS, "").split())

    @property
    def msg_id(self) -> str:
        """The id its producer gave it, or else its offset id."""
        return self.properties.get(properties.UNIQUE_KEY) or self.stored.msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that encodes where the message is stored."""
        return self.stored.msg_id

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""
        return self.stored.queue_offset

    @property
    def reconsume_times(self) -> int:
        """The number of failed delivery attempts."""
        return self.stored.reconsume_times

    @property
    def born_at_ms(self) -> int:
        """When it was sent, in wall-clock milliseconds."""
        return self.stored.born_time_ms

    @property
    def stored_at_ms(self) -> int:
        """When it was stored, in wall-clock milliseconds."""
        return self.stored.store_time_ms
