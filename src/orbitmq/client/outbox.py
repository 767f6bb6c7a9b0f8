"""What a producer sends: messages and batches of them in the form that the wire has, but for the queue they go to.

Knows of no broker. A message is checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from orbitmq.client.messages import Message, what_is_wrong
from orbitmq.client.namespace import Namespace
from orbitmq.client.setting_checks import at_least
from orbitmq.common.errors import MessageIllegal
from orbitmq.message import batch, flags, properties
from orbitmq.message.compression import LEVEL_DEFAULT, deflate
from orbitmq.message.flags import CompressionType
from orbitmq.message.message_id import UniqueIds

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends."""

    timeout_ms: int = 3_000  # of one message, all tries together
    try_timeout_ms: int | None = None  # of each try but the last; without it a broker that says nothing may use up the whole time
    retries: int = 2
    retry_when_not_safe: bool = False  # also after an answer that says stored, but not as safely as asked for
    compress_over: int = 4_096
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = LEVEL_DEFAULT
    size_max: int = 4 << 20
    new_topic_queue_count: int = 4
    avoid_slow_brokers: bool = False

    def __post_init__(self) -> None:
        at_least(1, self, "timeout_ms", "size_max", "new_topic_queue_count")
        at_least(0, self, "retries", "compress_over")
        if self.try_timeout_ms is not None:
            at_least(1, self, "try_timeout_ms")


class Outgoing(NamedTuple):
    """A message, or a batch of some, as the wire has it but for its queue."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    unique_key: str
    is_batch: bool
    messages: Sequence[Message]  # what it was made of
    reconsume_times: int = 0  # of what comes again
    max_reconsume_times: int | None = None
    is_reply: bool = False


class Outbox:
    """Makes what a producer sends."""

    def __init__(self, settings: ProducerSettings, names: Namespace, ids: UniqueIds) -> None:
        self._settings = settings
        self._names = names
        self._ids = ids

    def message(self, message: Message, added: Mapping[str, str] = _NOTHING, sys_flag: int = 0) -> Outgoing:
        """One message, with properties and flags that are RocketMQ's own."""
        settings, body = self._settings, message.body
        try:
            if type(body) is not bytes:
                body = bytes(memoryview(body))
            _check(message.topic, body, settings.size_max)
            if len(body) >= settings.compress_over:
                body = deflate(body, settings.compression, settings.compression_level)
                sys_flag = flags.with_compression(sys_flag, settings.compression)
            key = self._ids.next()
            texts = message.wire_properties()
            if self._names.name:
                texts[properties.INSTANCE_ID] = self._names.name
            texts[properties.UNIQUE_KEY] = key
            texts.update(added)
            return Outgoing(self._names.wire(message.topic), body, sys_flag, message.flag, properties.write(texts), key, False, (message,))
        except (TypeError, AttributeError) as problem:
            raise MessageIllegal(what_is_wrong(message) or str(problem)) from problem

    def batches(self, messages: Sequence[Message], *, by_key: bool = True) -> list[Outgoing]:
        """The messages of a topic in batches that a broker takes; `by_key`: those of a sharding key, which have one queue, alone."""
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise MessageIllegal(f"a batch has messages of one topic, not of {len(topics)}: {', '.join(sorted(topics)) or 'none at all'}")
        if not by_key:
            return list(self._parts(messages))
        groups: dict[str | None, list[Message]] = {}
        for message in messages:
            groups.setdefault(message.sharding_key, []).append(message)
        return [part for group in groups.values() for part in self._parts(group)]

    def _parts(self, messages: Sequence[Message]) -> Iterator[Outgoing]:
        topic = messages[0].topic
        items: list[batch.BatchItem] = []
        keys: list[str] = []
        size = 0
        for at, message in enumerate(messages):
            if message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None:
                raise MessageIllegal("a message of a batch cannot come later: send it alone")
            key = self._ids.next()
            item = self._item(message, key)
            if items and size + item.size > self._settings.size_max:
                yield self._batch(topic, items, keys, messages[at - len(items) : at])
                items, keys, size = [], [], 0
            items.append(item)
            keys.append(key)
            size += item.size
        yield self._batch(topic, items, keys, messages[len(messages) - len(items) :])

    def _item(self, message: Message, key: str) -> batch.BatchItem:
        try:
            body = message.body if type(message.body) is bytes else bytes(memoryview(message.body))
            _check(message.topic, body, self._settings.size_max)
            texts = {**message.wire_properties(), **self._instance(), properties.UNIQUE_KEY: key}
            return batch.BatchItem(message.flag, body, properties.encode(texts))
        except (TypeError, AttributeError) as problem:
            raise MessageIllegal(what_is_wrong(message) or str(problem)) from problem

    def _batch(self, topic: str, items: list[batch.BatchItem], keys: list[str], messages: Sequence[Message]) -> Outgoing:
        """No key of its own: brokers of 4.9 would store that one with every message in place of the message's."""
        texts = properties.write({properties.WAIT: "true"})
        return Outgoing(self._names.wire(topic), batch.encode(items), 0, 0, texts, ",".join(keys), True, messages)

    def _instance(self) -> Mapping[str, str]:
        return {properties.INSTANCE_ID: self._names.name} if self._names.name else _NOTHING


def _check(topic: str, body: bytes, size_max: int) -> None:
    if not topic:
        raise MessageIllegal("a message needs a topic")
    if type(topic) is not str:
        raise TypeError(topic)
    if not body:
        raise MessageIllegal(f"the body of a message to {topic} is empty; brokers take none without one")
    if len(body) > size_max:
        raise MessageIllegal(
            f"the body of a message to {topic} has {len(body)} bytes, {size_max} are allowed: send less, or raise size_max"
        )
