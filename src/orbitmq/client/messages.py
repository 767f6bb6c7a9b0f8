"""Messages as applications see them: what is sent, what came of it, what is received. Values; the wire's are made from them here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum

from orbitmq.common.errors import MessageIllegal
from orbitmq.message import properties
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue


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
        reserved = sorted(properties.RESERVED.intersection(self.properties))
        if reserved:
            raise MessageIllegal(f"property {reserved[0]} is one of RocketMQ's own; take another name, or the argument that is made for it")
        later = {
            properties.DELAY: self.delay_level or None,
            properties.TIMER_DELAY_MS: self.delay_ms,
            properties.TIMER_DELIVER_MS: self.deliver_at_ms,
        }
        given = {name: str(value) for name, value in later.items() if value is not None}
        if len(given) > 1:
            raise MessageIllegal("delay_level, delay_ms and deliver_at_ms say when it comes: give one of them")
        keys = self.keys if isinstance(self.keys, str) else properties.KEY_SEPARATOR.join(self.keys)
        texts = {properties.KEYS: keys, properties.TAGS: self.tags, properties.SHARDING_KEY: self.sharding_key}
        return {
            **self.properties,
            **{name: text for name, text in texts.items() if text},
            **given,
            properties.WAIT: "true" if self.waits_for_disk else "false",
        }


class SendStatus(Enum):
    """What a broker says of a message that it stored; all but SEND_OK say that less is safe than was asked for."""

    SEND_OK = "stored as asked for"
    FLUSH_DISK_TIMEOUT = "stored, but the disk did not confirm it in time"
    FLUSH_SLAVE_TIMEOUT = "stored, but no replica confirmed it in time"
    SLAVE_NOT_AVAILABLE = "stored, but there is no replica"


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message went. `msg_id` is the one that its producer gave it, `offset_msg_id` says where it is stored."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str | None = None
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message of a queue, its body as it was sent."""

    queue: MessageQueue
    topic: str  # the one it was sent to, also when it comes again
    body: bytes
    properties: Mapping[str, str]
    stored: StoredMessage

    @classmethod
    def of(cls, stored: StoredMessage, broker_name: str) -> ReceivedMessage:
        found = stored.properties()
        topic = found.get(properties.RETRY_TOPIC, stored.topic)
        return cls(MessageQueue(stored.topic, broker_name, stored.queue_id), topic, stored.body, found, stored)

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
