"""The push consumer: reads its share of a group's queues, and hands every message to a listener until that takes it.

A listener is a function or a coroutine function; plain functions run in threads of their own, so that they may block without anybody
missing a heartbeat. It takes a message by returning; it wants it again by raising, or by `ConsumeLater`. Messages are handed out side by
side, or with `in_order` those of a queue one after the other.

Invariant: an offset is committed only when every message before it was taken, sent back, or given up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orbitmq.client.consuming import ConsumeLater, ConsumeRules, Consuming, InQueueOrder, SideBySide
from orbitmq.client.explanation import ConsumerReport, QueueReport
from orbitmq.client.listening import Listener
from orbitmq.client.membership import GroupSettings, Membership
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver
from orbitmq.client.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from orbitmq.client.periodic import repeat
from orbitmq.client.process_queue import CacheLimits
from orbitmq.client.queue_lock_keeper import RENEWAL_PERIOD_S, QueueLockKeeper
from orbitmq.client.queue_reader import QueueReader, ReadSettings
from orbitmq.client.send_back import SendBack
from orbitmq.client.session import Cluster, SessionUser
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectOutcome, DirectResult, QueueProgress
from orbitmq.protocol.bodies.subscriptions import TAG, MessageModel
from orbitmq.version import ROCKETMQ_VERSION

__all__ = ["ConsumeLater", "ConsumerSettings", "Listener", "PushConsumer"]

PERSIST_PERIOD_S: Final = 5.0
WATCH_PERIOD_S: Final = 10.0
LOCK_PERIOD_S: Final = 1.0  # between tries for what another member still holds
STUCK_MS_MAX: Final = 120_000  # a reader that heard nothing for so long is replaced

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(GroupSettings):
    """How a push consumer reads and hands out."""

    in_order: bool = False  # messages of a queue one after the other, each queue with one member only
    concurrency: int = 20  # listeners that run at the same time
    max_attempts: int = -1  # then a message goes to the dead letters; -1: what the broker says, and in order without end
    consume_timeout_ms: int = 15 * 60_000  # then a message goes back although its listener is not through with it
    retry_pause_ms: int = 1_000  # before a message is tried again in order
    pull_count: int = 32
    limits: CacheLimits = field(default_factory=CacheLimits)
    close_timeout_ms: int = 5_000  # how long listeners are waited for at the end
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")  # of broadcasting


class PushConsumer(SessionUser):
    """`async with PushConsumer("127.0.0.1:9876", "group", listener) as consumer`, after `subscribe`."""

    def __init__(self, cluster: Cluster, group: str, listener: Listener, *, settings: ConsumerSettings | None = None) -> None:
        super().__init__(cluster)
        self.group = group
        self.settings = settings = settings or ConsumerSettings()
        self.wire_group = self.session.names.wire(group)
        self.is_broadcasting = settings.message_model is MessageModel.BROADCASTING
        self.offsets = self._offset_store()
        self.membership = Membership(self.session, group, settings, self.offsets, self)
        self._locks = QueueLockKeeper(self.session, self.wire_group) if settings.in_order and not self.is_broadcasting else None
        self._consuming = self._consuming_of(listener)
        self._reading = ReadSettings(limits=settings.limits, pull_count=settings.pull_count, in_order=settings.in_order)
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._releases: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_suspended = False
        self._started_ms = 0

    def _offset_store(self) -> OffsetStore:
        if self.is_broadcasting:
            folder = self.settings.offsets_folder / self.session.settings.lasting_id() / self.wire_group
            return FileOffsets(folder / "offsets.json")
        return BrokerOffsets(self.session, self.wire_group)

    def _consuming_of(self, listener: Listener) -> Consuming:
        settings = self.settings
        rules = ConsumeRules(
            group=self.group,
            concurrency=settings.concurrency,
            max_attempts=settings.max_attempts,
            pause_s=settings.retry_pause_ms / 1000,
            timeout_s=settings.consume_timeout_ms / 1000,
            gives_up=self.is_broadcasting,
        )
        send_back = SendBack(self.session, self.wire_group, settings.max_attempts)
        if settings.in_order:
            return InQueueOrder(listener, rules, send_back, self._is_ours)
        return SideBySide(listener, rules, send_back)

    @property
    def observers(self) -> list[ConsumeObserver]:
        """Who is told of every message that is consumed."""
        return self._consuming.observers

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Those that it consumes now."""
        return self.membership.queues

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Want messages of a topic: all, those of some tags (`a || b`), or by an expression of another kind (`SQL92`)."""
        self.membership.subscribe(topic, expression, kind)

    def unsubscribe(self, topic: str) -> None:
        """Want no messages of a topic any more."""
        self.membership.unsubscribe(topic)

    def suspend(self) -> None:
        """Read nothing more until `resume`; what is read already is still handed out."""
        self._is_suspended = True

    def resume(self) -> None:
        """Read on after `suspend`."""
        self._is_suspended = False

    # -- from start to close

    async def start(self) -> None:
        """Join the group and consume from now on."""
        self._started_ms = self.session.clock.now_ms()
        self._tasks = [
            asyncio.create_task(repeat(PERSIST_PERIOD_S, self._persist)),
            asyncio.create_task(repeat(WATCH_PERIOD_S, self._watch)),
        ]
        if self._locks is not None:
            self._tasks.append(asyncio.create_task(repeat(RENEWAL_PERIOD_S, self._renew_locks)))
            self._tasks.append(asyncio.create_task(repeat(LOCK_PERIOD_S, self._lock_missing)))
        await self.membership.start()

    async def close(self) -> None:
        """Give the queues up, with the offsets up to where all was consumed; what listeners have now is waited for, not for ever."""
        self._is_suspended = True
        try:
            async with asyncio.timeout(self.settings.close_timeout_ms / 1000):
                await self._consuming.pause()
        except TimeoutError:
            log.warning("listeners_not_waited_for group=%s; what they have comes again to the next member", self.group)
        await self.membership.stop()
        for task in self._tasks:
            task.cancel()
        self._consuming.close()
        await asyncio.gather(*self._tasks, *self._releases.values(), return_exceptions=True)
        await super().close()

    # -- queues

    async def queues_changed(self, queues: frozenset[MessageQueue]) -> None:
        lost = [reader for queue, reader in self._readers.items() if queue not in queues]
        for reader in lost:
            reader.is_dropped = True
            del self._readers[reader.queue]
            self._releases[reader.queue] = asyncio.create_task(self._release(reader))
        if not queues:  # the end: nobody waits for this any more
            await asyncio.gather(*self._releases.values(), return_exceptions=True)
        added = sorted(queues - self._readers.keys())
        for queue in added:
            before = self._releases.get(queue)
            if before is not None:
                await asyncio.wait([before])
        if self._locks is not None and added:
            await self._locks.lock(added)
        for queue in added:
            self._readers[queue] = reader = QueueReader(self.membership, queue, self._reading, self._consuming.arrived, self._obstacle)
            reader.start()

    async def _release(self, reader: QueueReader) -> None:
        """End with a queue that was lost: offset first, then the lock."""
        try:
            await self._consuming.released(reader)
            await reader.stop()
            await self.offsets.persist([reader.queue])
            self.offsets.forget(reader.queue)
            if self._locks is not None:
                await self._locks.unlock(reader.queue)
        finally:
            del self._releases[reader.queue]

    def _is_ours(self, queue: MessageQueue) -> bool:
        return self._locks is None or self._locks.is_locked(queue)

    def _obstacle(self, queue: MessageQueue) -> str | None:
        if self._is_suspended:
            return "the consumer is suspended; resume() lets it go on"
        if not self._is_ours(queue):
            return "another member of the group holds the lock of this queue, or its broker does not answer; it is asked for again"
        if queue.topic not in self.membership.subscriptions:
            return "its topic is not subscribed any more"
        return None

    async def _persist(self) -> None:
        for reader in self._readers.values():
            reader.note_progress()
        self._consuming.rates.tick(self.session.clock.now_ms())
        await self.offsets.persist(list(self._readers))

    async def _renew_locks(self) -> None:
        if self._locks is not None:
            await self._locks.lock(self._readers)

    async def _lock_missing(self) -> None:
        if self._locks is not None:
            await self._locks.lock([queue for queue in self._readers if not self._is_ours(queue)])

    async def _watch(self) -> None:
        """Look after what does not move: listeners that do not come back, readers that hear nothing."""
        self._consuming.send_back_overdue()
        now_ms = self.session.clock.monotonic_ms()
        for queue, reader in list(self._readers.items()):
            reads = self._obstacle(queue) is None and reader.cache.pressure(self.settings.limits, in_order=self.settings.in_order) is None
            if reads and now_ms - reader.last_read_ms > STUCK_MS_MAX:
                log.warning("reader_stuck group=%s queue=%s state='%s'; it begins anew", self.group, queue, reader.state)
                await reader.seek(reader.cache.commit_offset or reader.next_offset or await self.membership.first_offset(queue))

    # -- what brokers ask

    def rebalance_soon(self) -> None:
        self.membership.rebalance_soon()

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        ours = {queue: offset for queue, offset in offsets.items() if queue in self._readers}
        log.info("offsets_reset group=%s queues=%d", self.group, len(ours))
        for queue, offset in ours.items():
            await self._readers[queue].seek(offset)
        await self.offsets.persist(list(ours))

    def committed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue in self._readers if queue.topic == topic and (offset := self.offsets.known(queue)) is not None}

    def running_info(self) -> ConsumerRunningInfo:
        settings, now_ms = self.settings, self.session.clock.now_ms()
        return ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": f"V{ROCKETMQ_VERSION.replace('.', '_')}",
                "PROP_CONSUMEORDERLY": "true" if settings.in_order else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": settings.consume_type.name,
                "PROP_NAMESERVER_ADDR": ";".join(self.session.client.name_servers.in_order()),
                "PROP_THREADPOOL_CORE_SIZE": str(settings.concurrency),
                "consumerGroup": self.group,
                "messageModel": settings.message_model.name,
                "pullBatchSize": str(settings.pull_count),
            },
            subscriptions=tuple(self.membership.subscriptions.values()),
            queues={queue: self._progress(reader) for queue, reader in self._readers.items()},
            topics=self._consuming.rates.rates(now_ms),
        )

    def _progress(self, reader: QueueReader) -> QueueProgress:
        clock, queue, cache = self.session.clock, reader.queue, reader.cache
        wall_ms = clock.now_ms() - clock.monotonic_ms()
        locked_ms = None if self._locks is None else self._locks.locked_ms(queue)
        ago_s = _ago_s(reader)
        first, last = cache.commit_offset or 0, (cache.commit_offset or 0) + cache.span
        return QueueProgress(
            commit_offset=self.offsets.known(queue) or 0,
            cached_count=len(cache),
            cached_first_offset=first if len(cache) else 0,
            cached_last_offset=last if len(cache) else 0,
            cached_bytes=cache.size,
            is_dropped=reader.is_dropped,
            is_locked=locked_ms is not None,
            last_lock_ms=0 if locked_ms is None else wall_ms + locked_ms,
            last_pull_ms=wall_ms + reader.last_read_ms,
            last_consume_ms=0 if ago_s is None else clock.now_ms() - round(ago_s * 1000),
        )

    async def consume_directly(self, message: ReceivedMessage) -> DirectResult:
        began_ms = self.session.clock.monotonic_ms()
        outcome, remark = DirectOutcome.CR_SUCCESS, None
        try:
            await self._consuming.call(message)
        except ConsumeLater:
            outcome = DirectOutcome.CR_LATER
        except Exception as problem:
            outcome, remark = DirectOutcome.CR_THROW_EXCEPTION, f"{type(problem).__name__}: {problem}"
        spent_ms = self.session.clock.monotonic_ms() - began_ms
        return DirectResult(outcome=outcome, in_order=self.settings.in_order, remark=remark, spent_ms=spent_ms)

    # -- why it moves or does not

    async def explain(self) -> ConsumerReport:
        """For each queue why it moves or does not; and what keeps others away."""
        notes = [note for topic in self.membership.subscriptions if (note := await self.membership.why_no_queue(topic)) is not None]
        return ConsumerReport(
            group=self.group,
            client_id=self.session.client_id,
            queues=self._reports(),
            notes=tuple(notes),
        )

    def _reports(self) -> tuple[QueueReport, ...]:
        return tuple(self._report(reader) for _, reader in sorted(self._readers.items()))

    def _report(self, reader: QueueReader) -> QueueReport:
        clock, queue, cache = self.session.clock, reader.queue, reader.cache
        first = cache.first
        why = reader.state
        if first is not None:
            times = f", after {first.reconsume_times} failed attempts" if first.reconsume_times else ""
            why += (
                f"; {len(cache)} messages are with listeners or wait for them, the first is {first.msg_id} at {first.queue_offset}{times}"
            )
        return QueueReport(
            queue=queue,
            why=why,
            next_offset=reader.next_offset,
            committed_offset=cache.commit_offset if cache.commit_offset is not None else self.offsets.known(queue),
            broker_end=reader.broker_end,
            cached_count=len(cache),
            last_read_s_ago=(clock.monotonic_ms() - reader.last_read_ms) / 1000,
            last_finished_s_ago=_ago_s(reader),
        )


def _ago_s(reader: QueueReader) -> float | None:
    """How long ago a message of a queue was finished."""
    return None if reader.last_finished_s is None else time.monotonic() - reader.last_finished_s
