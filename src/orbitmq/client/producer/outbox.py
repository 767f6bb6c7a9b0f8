"""Encodes messages and batches for the wire, except for the target queue.

Knows nothing of brokers. Messages are validated here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from orbitmq.client.checks import require_at_least
from orbitmq.client.messages import Message, describe_type_error
from orbitmq.client.namespace import Namespace
from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import batch, flags, properties
from orbitmq.message.compression import LEVEL_DEFAULT, deflate
from orbitmq.message.flags import CompressionType
from orbitmq.message.message_id import UniqueIds

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Timeouts, retries, compression and limits of a producer."""

    timeout_ms: int = 3_000  # of one message, all attempts together
    # Of each attempt but the last; without it an unresponsive broker may use up the whole timeout.
    try_timeout_ms: int | None = None
    retries: int = 2
    retry_when_not_safe: bool = False  # retry when stored with less durability than requested
    compress_over: int = 4_096
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = LEVEL_DEFAULT
    size_max: int = 4 << 20
    new_topic_queue_count: int = 4
    avoid_slow_brokers: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, self, "timeout_ms", "size_max", "new_topic_queue_count")
        require_at_least(0, self, "retries", "compress_over")
        if self.try_timeout_ms is not None:
            require_at_least(1, self, "try_timeout_ms")


class OutgoingMessage(NamedTuple):
    """A message or batch encoded for the wire, without its target queue."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    unique_key: str
    is_batch: bool
    messages: Sequence[Message]  # its unencoded messages
    reconsume_times: int = 0  # of a retried message
    max_reconsume_times: int | None = None
    is_reply: bool = False


class Outbox:
    """Encodes the messages of a producer."""

    def __init__(self, settings: ProducerSettings, names: Namespace, ids: UniqueIds) -> None:
        self._settings = settings
        self._names = names
        self._ids = ids

    def message(
        self, message: Message, added: Mapping[str, str] = _NOTHING, sys_flag: int = 0
    ) -> OutgoingMessage:
        """Encode one message, with additional reserved properties and flags."""
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
            return OutgoingMessage(
                self._names.wire(message.topic),
                body,
                sys_flag,
                message.flag,
                properties.write(texts),
                key,
                False,
                (message,),
            )
        except (TypeError, AttributeError) as problem:
            raise InvalidMessageError(describe_type_error(message) or str(problem)) from problem

    def batches(self, messages: Sequence[Message], *, by_key: bool = True) -> list[OutgoingMessage]:
        """Encode messages of one topic as batches of acceptable size.

        With `by_key`, messages with a sharding key, which share a queue, form batches of their own.
        """
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise InvalidMessageError(
                f"a batch must have messages of exactly one topic, not of {len(topics)}:"
                f" {', '.join(sorted(topics)) or 'none at all'}"
            )
        if not by_key:
            return list(self._parts(messages))
        groups: dict[str | None, list[Message]] = {}
        for message in messages:
            groups.setdefault(message.sharding_key, []).append(message)
        return [part for group in groups.values() for part in self._parts(group)]

    def _parts(self, messages: Sequence[Message]) -> Iterator[OutgoingMessage]:
        topic = messages[0].topic
        items: list[batch.BatchItem] = []
        keys: list[str] = []
        size = 0
        for at, message in enumerate(messages):
            if (
                message.delay_level
                or message.delay_ms is not None
                or message.deliver_at_ms is not None
            ):
                raise InvalidMessageError(
                    "a message in a batch cannot be delayed: send it on its own"
                )
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
            raise InvalidMessageError(describe_type_error(message) or str(problem)) from problem

    def _batch(
        self, topic: str, items: list[batch.BatchItem], keys: list[str], messages: Sequence[Message]
    ) -> OutgoingMessage:
        """Encode a batch, which has no unique key: brokers of 4.9 would store it in place of each
        message's own.
        """
        texts = properties.write({properties.WAIT: "true"})
        return OutgoingMessage(
            self._names.wire(topic),
            batch.encode(items),
            0,
            0,
            texts,
            ",".join(keys),
            True,
            messages,
        )

    def _instance(self) -> Mapping[str, str]:
        return {properties.INSTANCE_ID: self._names.name} if self._names.name else _NOTHING


def _check(topic: str, body: bytes, size_max: int) -> None:
    if not topic:
        raise InvalidMessageError("a message needs a topic")
    if type(topic) is not str:
        raise TypeError(topic)
    if not body:
        raise InvalidMessageError(
            f"the body of a message to {topic} is empty: brokers reject empty bodies"
        )
    if len(body) > size_max:
        raise InvalidMessageError(
            f"the body of a message to {topic} has {len(body)} bytes, the limit is {size_max}: send"
            " less, or raise size_max"
        )
