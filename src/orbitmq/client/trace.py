"""Message trace: publishes the fate of every message sent or consumed to a trace topic.

Append a Trace to the `observers` of producers and consumers; one Trace may serve many. Records are
buffered until a message is full or some seconds have passed. Records that do not fit the buffer or
cannot be sent are dropped and counted: a trace never slows down the clients it observes.

Brokers may turn tracing off per message; the trace topic itself is never traced.
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
from orbitmq.client.observers import ConsumeOutcome, Recall, SendObserver, TransactionEnd
from orbitmq.client.producer.outbox import OutgoingMessage, ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import Cluster, SessionUser
from orbitmq.client.trace_records import (
    Consumed,
    ConsumeStarted,
    MessageKind,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
)
from orbitmq.common.errors import OrbitError
from orbitmq.common.topic_names import TRACE_TOPIC
from orbitmq.message import batch, flags, hosts, properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.message_id import parse_offset_id

DEFAULT_REGION: Final = "DefaultRegion"
_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_KEYS_SIZE_MAX: Final = 16_000  # key bytes of a trace message: half the limit of all properties
_REQUEST_ID_SIZE: Final = 16
_DELAY_PROPERTIES: Final = frozenset(
    (
        properties.DELAY,
        properties.TIMER_DELAY_SEC,
        properties.TIMER_DELAY_MS,
        properties.TIMER_DELIVER_MS,
    )
)
_NUMBERS = itertools.count()  # numbers the traces of this process

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """The trace topic, batching, and buffer limits."""

    topic: str = TRACE_TOPIC
    batch_count: int = 20  # records per message
    batch_size: int = 128_000  # bytes of records per message
    flush_ms: int = 5_000
    waiting_max: int = 10_000  # buffered records
    timeout_ms: int = 5_000


class _PendingRecord(NamedTuple):
    """An encoded record in the buffer, and its lookup keys."""

    data: bytes
    keys: tuple[str, ...]


class Trace(SessionUser, SendObserver):
    """Publishes trace records of the producers and consumers that it observes.

    `async with Trace(cluster) as trace: producer.observers.append(trace);
    consumer.observers.append(trace)`.
    """

    def __init__(self, cluster: Cluster = "", *, settings: TraceSettings | None = None) -> None:
        super().__init__(cluster)
        self.settings = settings or TraceSettings()
        self.dropped_count = 0
        self._group = f"{_GROUP_PREFIX}-{os.getpid()}-{next(_NUMBERS)}"
        self._producer = Producer(
            self.session,
            group=self._group,
            settings=ProducerSettings(timeout_ms=self.settings.timeout_ms),
        )
        self._topic = self.session.names.wire(self.settings.topic)
        self._pending: deque[_PendingRecord] = deque()
        self._full = asyncio.Event()  # a message's worth of records is buffered
        self._closing = asyncio.Event()
        self._dropped_why = ""
        self._logged_count = 0
        self._sender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start sending records."""
        await self._producer.start()
        self._sender = asyncio.create_task(self._send_forever())

    async def close(self) -> None:
        """Send the buffered records and stop."""
        self._closing.set()
        self._full.set()
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)
        if self._pending:
            self._drop(len(self._pending), self._dropped_why)
            self._pending.clear()
        self._log_dropped()
        await self._producer.close()
        await super().close()

    # -- as an observer

    def sent(
        self, group: str, outgoing: OutgoingMessage, result: SendResult | Exception, cost_ms: int
    ) -> None:
        if isinstance(result, Exception) or not result.is_traced or outgoing.topic == self._topic:
            return
        parts = _parts(outgoing)
        offset_ids = result.offset_msg_id.split(",")
        if len(offset_ids) != len(parts):  # messages of an inner batch share one id
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
        self._add(
            Recalled(
                self.session.clock.now_ms(),
                region,
                group,
                recall.topic,
                recall.msg_id,
                recall.is_success,
            )
        )

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Record messages that are about to be passed to a listener."""
        now_ms = self.session.clock.now_ms()
        for message in self._traced(messages):
            found = message.properties
            region, keys = found.get(properties.MSG_REGION), found.get(properties.KEYS)
            self._add(
                ConsumeStarted(
                    now_ms,
                    region,
                    group,
                    self._request_id(group, message),
                    message.msg_id,
                    message.reconsume_times,
                    keys,
                )
            )

    def consumed(
        self, group: str, messages: Sequence[ReceivedMessage], outcome: ConsumeOutcome, cost_ms: int
    ) -> None:
        """Record the outcome of a listener call."""
        now_ms = self.session.clock.now_ms()
        cost_ms //= max(len(messages), 1)
        is_success = outcome is ConsumeOutcome.SUCCESS
        for message in self._traced(messages):
            request_id, keys = (
                self._request_id(group, message),
                message.properties.get(properties.KEYS),
            )
            self._add(
                Consumed(
                    request_id, message.msg_id, cost_ms, is_success, keys, outcome, now_ms, group
                )
            )

    def _traced(self, messages: Sequence[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        wire, own_topic = self.session.names.wire, self._topic
        return (
            message
            for message in messages
            if wire(message.topic) != own_topic
            and message.properties.get(properties.TRACE_ON) != "false"
        )

    def _request_id(self, group: str, message: ReceivedMessage) -> str:
        """Return an id shared by the two records of one listener call, without keeping state for
        it.
        """
        call = (
            self.session.client_id,
            group,
            *message.queue,
            message.queue_offset,
            message.reconsume_times,
        )
        return (
            hashlib.blake2b(repr(call).encode(), digest_size=_REQUEST_ID_SIZE).hexdigest().upper()
        )

    # -- buffered records

    def _add(self, record: TraceRecord) -> None:
        if len(self._pending) >= self.settings.waiting_max or self._closing.is_set():
            self._drop(
                1,
                (
                    "the trace is closed"
                    if self._closing.is_set()
                    else f"{self.settings.waiting_max} records are buffered already"
                ),
            )
            return
        data = trace_records.encode(record).encode("utf-8", "replace")
        self._pending.append(_PendingRecord(data, tuple(trace_records.index_keys(record))))
        if len(self._pending) >= self.settings.batch_count:
            self._full.set()

    def _drop(self, count: int, why: str) -> None:
        self.dropped_count += count
        self._dropped_why = why

    def _log_dropped(self) -> None:
        new, self._logged_count = self.dropped_count - self._logged_count, self.dropped_count
        if new:
            log.warning(
                "trace_records_dropped count=%d in_all=%d why='%s'",
                new,
                self.dropped_count,
                self._dropped_why,
            )

    async def _send_forever(self) -> None:
        logged_ms, has_failed, is_last = self.session.clock.monotonic_ms(), False, False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.flush_ms / 1000):
                    await (
                        self._closing if has_failed or self._closing.is_set() else self._full
                    ).wait()
            is_last = self._closing.is_set()
            self._full.clear()
            has_failed = not await self._flush()
            now_ms = self.session.clock.monotonic_ms()
            if now_ms - logged_ms >= self.settings.flush_ms:
                self._log_dropped()
                logged_ms = now_ms

    async def _flush(self) -> bool:
        """Send all buffered records; return False at the first failure."""
        while self._pending:
            message, count = self._take()
            try:
                await self._producer.send(message)
            except Exception as problem:
                self._drop(count, str(problem))
                return False
        return True

    def _take(self) -> tuple[Message, int]:
        """Return the next message and its record count, which is at least one."""
        taken: list[bytes] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while self._pending and len(taken) < self.settings.batch_count:
            data, wanted = self._pending[0]
            new = dict.fromkeys(key for key in wanted if key not in keys)
            size += len(data)
            keys_size += sum(len(key.encode("utf-8", "replace")) + 1 for key in new)
            if taken and (size > self.settings.batch_size or keys_size > _KEYS_SIZE_MAX):
                break
            self._pending.popleft()
            taken.append(data)
            keys |= new
        return Message(self.settings.topic, b"".join(taken), keys=tuple(keys)), len(taken)


def _parts(outgoing: OutgoingMessage) -> list[tuple[int, dict[str, str]]]:
    """Return the size and properties of each message that was sent."""
    if outgoing.is_batch:
        return [
            (len(item.body), properties.parse(item.properties))
            for item in batch.decode(outgoing.body)
        ]
    return [(len(outgoing.body), properties.parse(outgoing.properties))]


def _kind(sys_flag: int, texts: dict[str, str]) -> MessageKind:
    if flags.transaction_type(sys_flag) is TransactionType.PREPARED:
        return MessageKind.HALF
    return MessageKind.NORMAL if _DELAY_PROPERTIES.isdisjoint(texts) else MessageKind.DELAYED


def _store_host(offset_id: str) -> str | None:
    try:
        return hosts.text_of(parse_offset_id(offset_id).store_host)
    except OrbitError:
        return None
