"""Messages as applications see them: what is sent, what came of it, what is received. Values; the wire's are made from them here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final, cast

from orbitmq.common.errors import CorruptRecord, MessageIllegal
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue

_COMES_AGAIN: Final = (properties.RETRY_TOPIC + properties.NAME_END).encode()


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent. `keys` find it again, `tags` let consumers choose it; `properties` are the application's own.

    At most one of the three says that it comes later: a level of the broker, so many milliseconds, or a time of the wall clock.
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
    waits_for_disk: bool = True  # if the broker's senders do

    def wire_properties(self) -> dict[str, str]:
        """All that the broker is told beside topic and body; MessageIllegal for what cannot be sent."""
        texts = dict(self.properties)
        if texts and not properties.RESERVED.isdisjoint(texts):
            reserved = min(properties.RESERVED.intersection(texts))
            raise MessageIllegal(f"property {reserved} is one of RocketMQ's own; take another name, or the argument that is made for it")
        if self.keys:
            texts[properties.KEYS] = self.keys if isinstance(self.keys, str) else properties.KEY_SEPARATOR.join(self.keys)
        if self.tags:
            texts[properties.TAGS] = self.tags
        if self.sharding_key:
            texts[properties.SHARDING_KEY] = self.sharding_key
        if self.delay_level or self.delay_ms is not None or self.deliver_at_ms is not None:
            texts.update(self._delay())
        texts[properties.WAIT] = "true" if self.waits_for_disk else "false"
        return texts

    def _delay(self) -> dict[str, str]:
        later = {
            properties.DELAY: self.delay_level or None,
            properties.TIMER_DELAY_MS: self.delay_ms,
            properties.TIMER_DELIVER_MS: self.deliver_at_ms,
        }
        given = {name: str(value) for name, value in later.items() if value is not None}
        if len(given) > 1:
            raise MessageIllegal("delay_level, delay_ms and deliver_at_ms say when it comes: give one of them")
        return given


def what_is_wrong(message: Message) -> str | None:
    """What of a message has a type that cannot be sent, and what to do; None when all is as it should be."""
    topic, body, keys, own = cast("tuple[object, ...]", (message.topic, message.body, message.keys, message.properties))
    if not isinstance(topic, str):
        return f"the topic of a message is {topic!r}, which is no text"
    place = f"of a message to {topic}"
    if not isinstance(body, bytes | bytearray | memoryview):
        hint = ": send its bytes, as in text.encode()" if isinstance(body, str) else "; a body is bytes"
        return f"the body {place} is of type {type(body).__name__}{hint}"
    if not isinstance(keys, str) and not (isinstance(keys, Iterable) and all(isinstance(key, str) for key in keys)):
        return f"the keys {place} are {keys!r}: give a text, or a list of texts"
    if not isinstance(own, Mapping):
        return f"the properties {place} are {own!r}: give a dict of texts"
    for name, value in {"tags": message.tags, "sharding_key": message.sharding_key, **own}.items():
        if not isinstance(name, str):
            return f"the property {name!r}={value!r} {place} has a name that is no text"
        if not isinstance(value, str | None):
            return f"{name}={value!r} {place} is of type {type(value).__name__}: only texts can be sent, so make one of it, as with str()"
    return None


class SendStatus(Enum):
    """What a broker says of a message that it stored; all but SEND_OK say that less is safe than was asked for."""

    SEND_OK = "stored as asked for"
    FLUSH_DISK_TIMEOUT = "stored, but the disk did not confirm it in time"
    FLUSH_SLAVE_TIMEOUT = "stored, but no replica confirmed it in time"
    SLAVE_NOT_AVAILABLE = "stored, but there is no replica"


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message went. `msg_id` is the one that its producer gave it, `offset_msg_id` says where it is stored.

    Of a batch both have one id for each message, with commas between.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = None
    recall_handle: str | None = None
    is_traced: bool = True  # unless the broker wants no traces


class TransactionState(IntEnum):
    """How a local transaction ended; the number is what brokers are told."""

    COMMIT = TransactionType.COMMIT
    ROLLBACK = TransactionType.ROLLBACK
    UNKNOWN = TransactionType.NONE  # the broker asks again later


@dataclass(slots=True, eq=False)
class ReceivedMessage:
    """A message of a queue, its body as it was sent. Not to be changed; equal only to itself.

    One whose body cannot be read has a `problem`, and raises it for whoever asks for the body; `stored.body` has its bytes as they are.
    """

    queue: MessageQueue
    topic: str  # the one it was sent to, also when it comes again
    _body: bytes
    stored: StoredMessage
    problem: str | None = field(default=None, kw_only=True)
    _properties: dict[str, str] | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, stored: StoredMessage, broker_name: str) -> ReceivedMessage:
        return cls.in_queue(stored, MessageQueue(stored.topic, broker_name, stored.queue_id))

    @classmethod
    def in_queue(cls, stored: StoredMessage, queue: MessageQueue) -> ReceivedMessage:
        """The message that a record of this queue holds."""
        message = cls(queue, stored.topic, stored.body, stored)
        if _COMES_AGAIN in stored.raw_properties:
            message.topic = message.properties.get(properties.RETRY_TOPIC, stored.topic)
        return message

    def once_more(self) -> ReceivedMessage:
        """The same after another attempt."""
        return replace(self, stored=self.stored._replace(reconsume_times=self.stored.reconsume_times + 1))

    @property
    def body(self) -> bytes:
        """The body as it was sent; CorruptRecord when it cannot be read."""
        if self.problem is not None:
            raise CorruptRecord(
                f"the body of message {self.msg_id} of topic {self.topic} cannot be read: {self.problem}; `stored.body` has its bytes"
            )
        return self._body

    @property
    def body_size(self) -> int:
        """How many bytes are held, whether they can be read or not."""
        return len(self._body)

    @property
    def properties(self) -> Mapping[str, str]:
        """All of them, RocketMQ's own too; read when they are first asked for, since most listeners do not."""
        if self._properties is None:
            self._properties = self.stored.properties()
        return self._properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(properties.KEYS, "").split())

    @property
    def msg_id(self) -> str:
        """The id that its producer gave it, else that of its place."""
        return self.properties.get(properties.UNIQUE_KEY) or self.stored.msg_id

    @property
    def offset_msg_id(self) -> str:
        return self.stored.msg_id

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def reconsume_times(self) -> int:
        return self.stored.reconsume_times

    @property
    def born_at_ms(self) -> int:
        return self.stored.born_time_ms

    @property
    def stored_at_ms(self) -> int:
        return self.stored.store_time_ms
