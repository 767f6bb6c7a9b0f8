"""The trace: tells a topic of the cluster what became of every message that its producers sent and its consumers got.

Append one to the `observers` of producers and consumers; it may serve many. Records wait until there are enough for a message, or some
seconds; what does not fit, or cannot be sent, is dropped and counted: a trace never slows down what it watches.

Brokers may say that they want no trace of a message; the trace's own topic is never traced.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from orbitmq.client import trace_records
from orbitmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from orbitmq.client.observers import Outcome, Recall, SendObserver, TransactionEnd
from orbitmq.client.outbox import Outgoing, ProducerSettings
from orbitmq.client.producer import Producer
from orbitmq.client.session import Cluster, SessionUser
from orbitmq.client.trace_records import Consumed, Consuming, MessageKind, Published, Recalled, TraceRecord, TransactionEnded
from orbitmq.common.errors import OrbitError
from orbitmq.common.topic_names import TRACE_TOPIC
from orbitmq.message import batch, flags, hosts, properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.message_id import parse_offset_id

DEFAULT_REGION: Final = "DefaultRegion"
_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_KEYS_SIZE_MAX: Final = 16_000  # of the message that records travel in: half of what all properties may take
_REQUEST_ID_SIZE: Final = 16
_LATER: Final = frozenset((properties.DELAY, properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS))
_NUMBERS = itertools.count()  # of the traces of this process

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Where records go, how many travel together, and how many may wait."""

    topic: str = TRACE_TOPIC
    batch_count: int = 20  # records in a message
    batch_size: int = 128_000  # bytes of them
    flush_ms: int = 5_000
    waiting_max: int = 10_000
    timeout_ms: int = 5_000


class _Waiting(NamedTuple):
    """A record that waits, and by what it will be found."""

    data: bytes
    keys: tuple[str, ...]


class Trace(SessionUser, SendObserver):
    """`async with Trace(cluster) as trace: producer.observers.append(trace); consumer.observers.append(trace)`."""

    def __init__(self, cluster: Cluster = "", *, settings: TraceSettings | None = None) -> None:
        super().__init__(cluster)
        self.settings = settings or TraceSettings()
        self.dropped_count = 0
        self._group = f"{_GROUP_PREFIX}-{os.getpid()}-{next(_NUMBERS)}"
        self._producer = Producer(self.session, group=self._group, settings=ProducerSettings(timeout_ms=self.settings.timeout_ms))
        self._topic = self.session.names.wire(self.settings.topic)
        self._waiting: deque[_Waiting] = deque()
        self._full = asyncio.Event()  # there is enough for a message
        self._closing = asyncio.Event()
        self._dropped_why = ""
        self._logged_count = 0
        self._sender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._producer.start()
        self._sender = asyncio.create_task(self._send_forever())

    async def close(self) -> None:
        """Send what waits, and end."""
        self._closing.set()
        self._full.set()
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)
        if self._waiting:
            self._drop(len(self._waiting), self._dropped_why)
            self._waiting.clear()
        self._log_dropped()
        await self._producer.close()
        await super().close()

    # -- what is told

    def sent(self, group: str, outgoing: Outgoing, result: SendResult | Exception, cost_ms: int) -> None:
        if isinstance(result, Exception) or not result.is_traced or outgoing.topic == self._topic:
            return
        parts = _parts(outgoing)
        offset_ids = result.offset_msg_id.split(",")
        if len(offset_ids) != len(parts):  # the messages of an inner batch share one
            offset_ids = [result.offset_msg_id] * len(parts)
        begin_ms = self.session.clock.now_ms() - cost_ms
        for (size, texts), offset_id in zip(parts, offset_ids, strict=True):
            self._add(
                Published(
                    time_ms=begin_ms,
                    region=result.region or DEFAULT_REGION,
                    group=group,
                    topic=self.session.names.own(outgoing.topic),
                    msg_id=texts.get(properties.UNIQUE_KEY, result.msg_id),
                    tags=texts.get(properties.TAGS),
                    keys=texts.get(properties.KEYS),
                    store_host=_store_host(offset_id),
                    body_size=size,
                    cost_ms=cost_ms,
                    kind=_kind(outgoing.sys_flag, texts),
                    offset_msg_id=offset_id,
                    is_success=result.status is SendStatus.SEND_OK,
                )
            )

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        if not end.is_traced:
            return
        self._add(
            TransactionEnded(
                time_ms=self.session.clock.now_ms(),
                region=end.region or DEFAULT_REGION,
                group=group,
                topic=end.topic,
                msg_id=end.msg_id,
                tags=end.tags,
                keys=end.keys,
                broker_address=end.broker_address,
                kind=MessageKind.TRANSACTION_END,
                transaction_id=end.transaction_id,
                state=end.state,
                from_check=end.from_check,
            )
        )

    def recalled(self, group: str, recall: Recall) -> None:
        region = recall.region or DEFAULT_REGION
        self._add(Recalled(self.session.clock.now_ms(), region, group, recall.topic, recall.msg_id, recall.is_success))

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Of messages that a listener is about to get."""
        now_ms = self.session.clock.now_ms()
        for message in self._traced(messages):
            found = message.properties
            region, keys = found.get(properties.MSG_REGION), found.get(properties.KEYS)
            self._add(Consuming(now_ms, region, group, self._request_id(group, message), message.msg_id, message.reconsume_times, keys))

    def consumed(self, group: str, messages: Sequence[ReceivedMessage], outcome: Outcome, cost_ms: int) -> None:
        """Of messages that a listener came back with."""
        now_ms = self.session.clock.now_ms()
        cost_ms //= max(len(messages), 1)
        is_success = outcome is Outcome.SUCCESS
        for message in self._traced(messages):
            request_id, keys = self._request_id(group, message), message.properties.get(properties.KEYS)
            self._add(Consumed(request_id, message.msg_id, cost_ms, is_success, keys, outcome, now_ms, group))

    def _traced(self, messages: Sequence[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        wire, own_topic = self.session.names.wire, self._topic
        return (
            message for message in messages if wire(message.topic) != own_topic and message.properties.get(properties.TRACE_ON) != "false"
        )

    def _request_id(self, group: str, message: ReceivedMessage) -> str:
        """The same for the two records of one call of a listener, without remembering what may never end."""
        call = (self.session.client_id, group, *message.queue, message.queue_offset, message.reconsume_times)
        return hashlib.blake2b(repr(call).encode(), digest_size=_REQUEST_ID_SIZE).hexdigest().upper()

    # -- records that wait

    def _add(self, record: TraceRecord) -> None:
        if len(self._waiting) >= self.settings.waiting_max or self._closing.is_set():
            self._drop(1, "the trace is closed" if self._closing.is_set() else f"{self.settings.waiting_max} wait already")
            return
        data = trace_records.encode(record).encode("utf-8", "replace")
        self._waiting.append(_Waiting(data, tuple(trace_records.index_keys(record))))
        if len(self._waiting) >= self.settings.batch_count:
            self._full.set()

    def _drop(self, count: int, why: str) -> None:
        self.dropped_count += count
        self._dropped_why = why

    def _log_dropped(self) -> None:
        new, self._logged_count = self.dropped_count - self._logged_count, self.dropped_count
        if new:
            log.warning("trace_records_dropped count=%d in_all=%d why='%s'", new, self.dropped_count, self._dropped_why)

    async def _send_forever(self) -> None:
        logged_ms, has_failed, is_last = self.session.clock.monotonic_ms(), False, False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.flush_ms / 1000):
                    await (self._closing if has_failed or self._closing.is_set() else self._full).wait()
            is_last = self._closing.is_set()
            self._full.clear()
            has_failed = not await self._flush()
            now_ms = self.session.clock.monotonic_ms()
            if now_ms - logged_ms >= self.settings.flush_ms:
                self._log_dropped()
                logged_ms = now_ms

    async def _flush(self) -> bool:
        """Send all that waits; whether that went well to the end."""
        while self._waiting:
            message, count = self._take()
            try:
                await self._producer.send(message)
            except Exception as problem:
                self._drop(count, str(problem))
                return False
        return True

    def _take(self) -> tuple[Message, int]:
        """The next message, and how many records it has: at least one."""
        taken: list[bytes] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while self._waiting and len(taken) < self.settings.batch_count:
            data, wanted = self._waiting[0]
            new = dict.fromkeys(key for key in wanted if key not in keys)
            size += len(data)
            keys_size += sum(len(key.encode("utf-8", "replace")) + 1 for key in new)
            if taken and (size > self.settings.batch_size or keys_size > _KEYS_SIZE_MAX):
                break
            self._waiting.popleft()
            taken.append(data)
            keys |= new
        return Message(self.settings.topic, b"".join(taken), keys=tuple(keys)), len(taken)


def _parts(outgoing: Outgoing) -> list[tuple[int, dict[str, str]]]:
    """The size and the properties of each message that was sent."""
    if outgoing.is_batch:
        return [(len(item.body), properties.parse(item.properties)) for item in batch.decode(outgoing.body)]
    return [(len(outgoing.body), properties.parse(outgoing.properties))]


def _kind(sys_flag: int, texts: dict[str, str]) -> MessageKind:
    if flags.transaction_type(sys_flag) is TransactionType.PREPARED:
        return MessageKind.HALF
    return MessageKind.NORMAL if _LATER.isdisjoint(texts) else MessageKind.DELAYED


def _store_host(offset_id: str) -> str | None:
    try:
        return hosts.text_of(parse_offset_id(offset_id).store_host)
    except OrbitError:
        return None
