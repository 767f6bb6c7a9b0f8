"""The push consumer: reads its share of a group's queues, and hands every message to a listener until that takes it.

A listener is a function or a coroutine function; plain functions run in threads of their own, so that they may block without anybody
missing a heartbeat. It takes a message by returning; it wants it again by raising, or by `ConsumeLater`. Messages are handed out side by
side, or with `in_order` those of a queue one after the other.

Invariant: an offset is committed only when every message before it was taken, sent back, or given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.client.consuming import ConsumeLater, ConsumeRules, Consuming, InQueueOrder, SideBySide
from orbitmq.client.listening import Listener
from orbitmq.client.membership import GroupSettings
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver
from orbitmq.client.periodic import repeat
from orbitmq.client.process_queue import CacheLimits
from orbitmq.client.queue_lock_keeper import RENEWAL_PERIOD_S, QueueLockKeeper
from orbitmq.client.queue_reader import Obstacle, QueueReader, ReadSettings
from orbitmq.client.reading_consumer import ReadingConsumer
from orbitmq.client.send_back import SendBack
from orbitmq.client.session import Cluster
from orbitmq.client.setting_checks import at_least
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import SUSPENDED, DirectOutcome, DirectResult, QueueProgress, TopicRates

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

    def __post_init__(self) -> None:
        at_least(1, self, "concurrency", "consume_timeout_ms", "pull_count")
        at_least(0, self, "retry_pause_ms", "close_timeout_ms")
        at_least(-1, self, "max_attempts")


class PushConsumer(ReadingConsumer):
    """`async with PushConsumer("127.0.0.1:9876", "group", listener) as consumer`, after `subscribe`."""

    def __init__(self, cluster: Cluster, group: str, listener: Listener, *, settings: ConsumerSettings | None = None) -> None:
        self.settings = settings = settings or ConsumerSettings()
        reading = ReadSettings(limits=settings.limits, pull_count=settings.pull_count, in_order=settings.in_order)
        super().__init__(cluster, group, settings, reading)
        self._locks = QueueLockKeeper(self.session, self.wire_group) if settings.in_order and not self.is_broadcasting else None
        self._consuming = self._consuming_of(listener)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_suspended = False

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

    def suspend(self) -> None:
        """Read nothing more until `resume`; what is read already is still handed out, what brokers still bring is not."""
        self._is_suspended = True

    def resume(self) -> None:
        """Read on after `suspend`."""
        self._is_suspended = False
        for reader in self._readers.values():
            reader.wake()

    # -- from start to close

    async def start(self) -> None:
        """Join the group and consume from now on."""
        self._started_ms = self.session.clock.now_ms()
        await self.membership.start()
        self._tasks = [
            asyncio.create_task(repeat(PERSIST_PERIOD_S, self._persist)),
            asyncio.create_task(repeat(WATCH_PERIOD_S, self._watch)),
        ]
        if self._locks is not None:
            self._tasks.append(asyncio.create_task(repeat(RENEWAL_PERIOD_S, self._renew_locks)))
            self._tasks.append(asyncio.create_task(repeat(LOCK_PERIOD_S, self._lock_missing)))

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

    def _arrived(self, reader: QueueReader) -> None:
        self._consuming.arrived(reader)

    async def _prepare(self, queues: Sequence[MessageQueue]) -> None:
        if self._locks is not None:
            await self._locks.lock(queues)

    async def _end_with(self, reader: QueueReader) -> None:
        """Offset first, then the lock: the next member begins at the one when it has the other."""
        await self._consuming.released(reader)
        await reader.stop()
        await self.offsets.persist([reader.queue])
        if self._locks is not None:
            await self._locks.unlock(reader.queue)

    def _is_ours(self, queue: MessageQueue) -> bool:
        return self._locks is None or self._locks.is_locked(queue)

    def _obstacle(self, queue: MessageQueue) -> Obstacle | None:
        if not self._is_ours(queue):
            why = "another member of the group holds the lock of this queue, or its broker does not answer; it is asked for again"
            return Obstacle(why, is_lost=True)
        if self._is_suspended:
            return Obstacle("the consumer is suspended; resume() lets it go on", is_held=True)
        return super()._obstacle(queue)

    async def _persist(self) -> None:
        for reader in self._readers.values():
            reader.note_progress()
        self._consuming.rates.tick(self.session.clock.monotonic_ms())
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
                known = (reader.cache.commit_offset, reader.next_offset)  # of which 0 is as good as any
                at = next((offset for offset in known if offset is not None), None)
                await reader.seek(await self.membership.first_offset(queue) if at is None else at)

    # -- what brokers ask, and what it tells

    def _rates(self) -> Mapping[str, TopicRates]:
        return self._consuming.rates.rates(self.session.clock.monotonic_ms())

    def _properties(self) -> Mapping[str, str]:
        return {
            "PROP_THREADPOOL_CORE_SIZE": str(self.settings.concurrency),
            "maxReconsumeTimes": str(self.settings.max_attempts),
            SUSPENDED: "true" if self._is_suspended else "false",
        }

    def _progress(self, reader: QueueReader) -> QueueProgress:
        found = super()._progress(reader)
        locked_ms = None if self._locks is None else self._locks.locked_ms(reader.queue)
        if locked_ms is None:
            return found
        clock = self.session.clock
        return replace(found, is_locked=True, last_lock_ms=clock.now_ms() - clock.monotonic_ms() + locked_ms)

    async def consume_directly(self, message: ReceivedMessage) -> DirectResult:
        began_ms = self.session.clock.monotonic_ms()
        outcome, remark = DirectOutcome.CR_SUCCESS, None
        problem = await self._consuming.call(message)
        if isinstance(problem, ConsumeLater):
            outcome = DirectOutcome.CR_LATER
        elif problem is not None:
            outcome, remark = DirectOutcome.CR_THROW_EXCEPTION, f"{type(problem).__name__}: {problem}"
        spent_ms = self.session.clock.monotonic_ms() - began_ms
        return DirectResult(outcome=outcome, in_order=self.settings.in_order, remark=remark, spent_ms=spent_ms)

    def _whereabouts(self, reader: QueueReader) -> str:
        first = reader.cache.first
        if first is None:
            return ""
        times = f", after {first.reconsume_times} failed attempts" if first.reconsume_times else ""
        place = f"{first.msg_id} at {first.queue_offset}{times}"
        return f"{len(reader.cache)} messages are with listeners or wait for them, the first is {place}"
