"""The push consumer: reads its share of a group's queues, and passes every message to a listener
until the listener accepts it.

A listener is a function or a coroutine function; plain functions run in threads of their own, so
that they may block without delaying heartbeats. Returning acknowledges the message; raising, for
example `ConsumeLater`, has it redelivered. Messages are consumed concurrently, or with `in_order`
those of a queue one at a time.

Invariant: an offset is committed only when every message before it was consumed, sent back, or
given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.client.background import repeat
from orbitmq.client.checks import require_at_least
from orbitmq.client.consumer.consume_services import (
    ConcurrentConsumeService,
    ConsumeLater,
    ConsumeRules,
    ConsumeService,
    OrderlyConsumeService,
)
from orbitmq.client.consumer.listeners import Listener
from orbitmq.client.consumer.membership import GroupSettings
from orbitmq.client.consumer.prefetching_consumer import PrefetchingConsumer
from orbitmq.client.consumer.process_queue import CacheLimits
from orbitmq.client.consumer.queue_lock_keeper import RENEWAL_PERIOD_S, QueueLockKeeper
from orbitmq.client.consumer.queue_reader import Obstacle, QueueReader, ReadSettings
from orbitmq.client.consumer.send_back import RetrySender
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver
from orbitmq.client.session.client_session import Cluster
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import (
    SUSPENDED,
    DirectOutcome,
    DirectResult,
    QueueProgress,
    TopicRates,
)

__all__ = ["ConsumeLater", "ConsumerSettings", "Listener", "PushConsumer"]

PERSIST_PERIOD_S: Final = 5.0
WATCH_PERIOD_S: Final = 10.0
LOCK_PERIOD_S: Final = 1.0  # between attempts to lock queues of another member
STUCK_MS_MAX: Final = 120_000  # a reader without a reply for that long is restarted

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(GroupSettings):
    """Concurrency, retries and limits of a push consumer."""

    in_order: bool = False  # one message of a queue at a time, each queue locked by one member
    concurrency: int = 20  # concurrent listener calls
    # Attempts before a message becomes a dead letter; -1: the broker's limit, in order unlimited.
    max_attempts: int = -1
    # Then a message is sent back although its listener still runs.
    consume_timeout_ms: int = 15 * 60_000
    retry_pause_ms: int = 1_000  # before a message is retried in order
    pull_count: int = 32
    limits: CacheLimits = field(default_factory=CacheLimits)
    close_timeout_ms: int = 5_000  # how long `close` waits for listeners

    def __post_init__(self) -> None:
        require_at_least(1, self, "concurrency", "consume_timeout_ms", "pull_count")
        require_at_least(0, self, "retry_pause_ms", "close_timeout_ms")
        require_at_least(-1, self, "max_attempts")


class PushConsumer(PrefetchingConsumer):
    """Consumes a group's messages with a listener.

    `async with PushConsumer("127.0.0.1:9876", "group", listener) as consumer`, after `subscribe`.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        listener: Listener,
        *,
        settings: ConsumerSettings | None = None,
    ) -> None:
        self.settings = settings = settings or ConsumerSettings()
        reading = ReadSettings(
            limits=settings.limits, pull_count=settings.pull_count, in_order=settings.in_order
        )
        super().__init__(cluster, group, settings, reading)
        self._locks = (
            QueueLockKeeper(self.session, self.wire_group)
            if settings.in_order and not self.is_broadcasting
            else None
        )
        self._service = self._consume_service(listener)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_suspended = False

    def _consume_service(self, listener: Listener) -> ConsumeService:
        settings = self.settings
        rules = ConsumeRules(
            group=self.group,
            concurrency=settings.concurrency,
            max_attempts=settings.max_attempts,
            pause_s=settings.retry_pause_ms / 1000,
            timeout_s=settings.consume_timeout_ms / 1000,
            drop_failed=self.is_broadcasting,
        )
        send_back = RetrySender(self.session, self.wire_group, settings.max_attempts)
        if settings.in_order:
            return OrderlyConsumeService(listener, rules, send_back, self._is_ours)
        return ConcurrentConsumeService(listener, rules, send_back)

    @property
    def observers(self) -> list[ConsumeObserver]:
        """Observers of every consumed message."""
        return self._service.observers

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues assigned to this member now."""
        return self.membership.queues

    def suspend(self) -> None:
        """Stop reading until `resume`; cached messages are still consumed, pulls in flight are
        held.
        """
        self._is_suspended = True

    def resume(self) -> None:
        """Continue reading after `suspend`."""
        self._is_suspended = False
        for reader in self._readers.values():
            reader.wake()

    # -- from start to close

    async def start(self) -> None:
        """Join the group and start consuming."""
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
        """Commit progress and release the queues; wait for running listeners, up to
        `close_timeout_ms`.
        """
        self._is_suspended = True
        try:
            async with asyncio.timeout(self.settings.close_timeout_ms / 1000):
                await self._service.pause()
        except TimeoutError:
            log.warning(
                "listeners_not_waited_for group=%s; their messages will be redelivered to another"
                " member",
                self.group,
            )
        await self.membership.stop()
        for task in self._tasks:
            task.cancel()
        self._service.close()
        await asyncio.gather(*self._tasks, *self._releases.values(), return_exceptions=True)
        await super().close()

    # -- queues

    def _arrived(self, reader: QueueReader) -> None:
        self._service.arrived(reader)

    async def _prepare(self, queues: Sequence[MessageQueue]) -> None:
        if self._locks is not None:
            await self._locks.lock(queues)

    async def _end_with(self, reader: QueueReader) -> None:
        """Persist the offset before releasing the lock: the next member resumes there once it has
        the lock.
        """
        await self._service.released(reader)
        await reader.stop()
        await self.offsets.persist([reader.queue])
        if self._locks is not None:
            await self._locks.unlock(reader.queue)

    def _is_ours(self, queue: MessageQueue) -> bool:
        return self._locks is None or self._locks.is_locked(queue)

    def _obstacle(self, queue: MessageQueue) -> Obstacle | None:
        if not self._is_ours(queue):
            why = (
                "another member of the group holds the lock of this queue, or its broker does not"
                " reply; locking is retried"
            )
            return Obstacle(why, is_lost=True)
        if self._is_suspended:
            return Obstacle("the consumer is suspended: call resume() to continue", is_held=True)
        return super()._obstacle(queue)

    async def _persist(self) -> None:
        for reader in self._readers.values():
            reader.note_progress()
        self._service.rates.tick(self.session.clock.monotonic_ms())
        await self.offsets.persist(list(self._readers))

    async def _renew_locks(self) -> None:
        if self._locks is not None:
            await self._locks.lock(self._readers)

    async def _lock_missing(self) -> None:
        if self._locks is not None:
            await self._locks.lock([queue for queue in self._readers if not self._is_ours(queue)])

    async def _watch(self) -> None:
        """Send back overdue messages and restart readers that are stuck."""
        self._service.send_back_overdue()
        now_ms = self.session.clock.monotonic_ms()
        for queue, reader in list(self._readers.items()):
            reads = (
                self._obstacle(queue) is None
                and reader.cache.pressure(self.settings.limits, in_order=self.settings.in_order)
                is None
            )
            if reads and now_ms - reader.last_read_ms > STUCK_MS_MAX:
                log.warning(
                    "reader_stuck group=%s queue=%s state='%s'; it is restarted",
                    self.group,
                    queue,
                    reader.state,
                )
                known = (reader.cache.commit_offset, reader.next_offset)  # 0 is a valid offset
                at = next((offset for offset in known if offset is not None), None)
                await reader.seek(await self.membership.first_offset(queue) if at is None else at)

    # -- requests of brokers, and reports

    def _rates(self) -> Mapping[str, TopicRates]:
        return self._service.rates.rates(self.session.clock.monotonic_ms())

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
        return replace(
            found, is_locked=True, last_lock_ms=clock.now_ms() - clock.monotonic_ms() + locked_ms
        )

    async def consume_directly(self, message: ReceivedMessage) -> DirectResult:
        began_ms = self.session.clock.monotonic_ms()
        outcome, remark = DirectOutcome.CR_SUCCESS, None
        problem = await self._service.call(message)
        if isinstance(problem, ConsumeLater):
            outcome = DirectOutcome.CR_LATER
        elif problem is not None:
            outcome, remark = (
                DirectOutcome.CR_THROW_EXCEPTION,
                f"{type(problem).__name__}: {problem}",
            )
        spent_ms = self.session.clock.monotonic_ms() - began_ms
        return DirectResult(
            outcome=outcome, in_order=self.settings.in_order, remark=remark, spent_ms=spent_ms
        )

    def _whereabouts(self, reader: QueueReader) -> str:
        first = reader.cache.first
        if first is None:
            return ""
        times = f", after {first.reconsume_times} failed attempts" if first.reconsume_times else ""
        place = f"{first.msg_id} at {first.queue_offset}{times}"
        return (
            f"{len(reader.cache)} messages are being consumed or queued for it, the first is"
            f" {place}"
        )
