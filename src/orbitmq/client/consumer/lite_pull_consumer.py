"""The lite pull consumer, for most uses of pulling: the application polls for messages, which are
prefetched in the background.

Queues are shared with the other members of the group after `subscribe`, or are those of `assign`.
Polled messages count as consumed at the next poll, at `commit`, or when the block of `async with`
ends without an error; with `auto_commit` the offsets follow periodically, else only `commit` stores
them. One task at a time may poll.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from orbitmq.access.credentials import is_access_refusal
from orbitmq.client.background import repeat
from orbitmq.client.checks import require_at_least
from orbitmq.client.consumer import poll_buffer
from orbitmq.client.consumer.broker_requests import no_listener
from orbitmq.client.consumer.membership import GroupSettings
from orbitmq.client.consumer.poll_buffer import PollBuffer
from orbitmq.client.consumer.prefetching_consumer import PrefetchingConsumer
from orbitmq.client.consumer.process_queue import CacheLimits
from orbitmq.client.consumer.queue_offsets import group_offset, max_offset, min_offset, offset_at
from orbitmq.client.consumer.queue_reader import Obstacle, QueueReader, ReadSettings
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver, ConsumeOutcome, notify
from orbitmq.client.session.client_session import Cluster
from orbitmq.common.errors import (
    ConfigurationError,
    InvalidStateError,
    NotFoundError,
    RemoteError,
    RequestRefusedError,
)
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import DirectResult
from orbitmq.protocol.bodies.subscriptions import TAG, ConsumeType

_AUTO_COMMIT_MS_MIN: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings(GroupSettings):
    """Prefetching and commits of a lite pull consumer."""

    consume_type: ConsumeType = ConsumeType.CONSUME_ACTIVELY
    auto_commit: bool = True
    auto_commit_ms: int = 5_000
    pull_count: int = 32
    limits: CacheLimits = field(default_factory=CacheLimits)
    cached_count_max: int = 10_000  # prefetched messages of all queues together
    suspend_ms: int = 20_000  # long-polling time at the broker
    timeout_ms: int = 30_000  # of a pull

    def __post_init__(self) -> None:
        require_at_least(1, self, "pull_count", "cached_count_max", "timeout_ms")
        require_at_least(0, self, "suspend_ms")
        if self.auto_commit_ms < _AUTO_COMMIT_MS_MIN:
            raise ConfigurationError(
                f"auto_commit_ms is {self.auto_commit_ms}: set at least {_AUTO_COMMIT_MS_MIN}"
            )
        if self.timeout_ms <= self.suspend_ms:
            raise ConfigurationError(
                f"timeout_ms is {self.timeout_ms}, but brokers may reply only after suspend_ms,"
                f" {self.suspend_ms}: set a longer timeout_ms"
            )


class LitePullConsumer(PrefetchingConsumer):
    """Consumes a group's messages by polling.

    `async with LitePullConsumer("127.0.0.1:9876", "group") as consumer`; then `poll`, or `async for
    message in consumer`.
    """

    def __init__(
        self, cluster: Cluster, group: str, *, settings: LitePullSettings | None = None
    ) -> None:
        self.settings = settings = settings or LitePullSettings()
        reading = ReadSettings(
            limits=settings.limits,
            pull_count=settings.pull_count,
            suspend_ms=settings.suspend_ms,
            timeout_ms=settings.timeout_ms,
            is_lite=True,
        )
        super().__init__(cluster, group, settings, reading)
        self.observers: list[ConsumeObserver] = []  # notified of every polled message
        self._buffer = PollBuffer()
        self._handed_s = 0.0
        self._changed = asyncio.Event()
        self._is_asked = False  # a task is polling
        self._is_started = False
        self._closing = asyncio.Event()
        self._was_full = False
        self._refusal: RequestRefusedError | None = None
        self._committing: asyncio.Task[None] | None = None

    # -- from start to close

    async def start(self) -> None:
        """Join the group and start prefetching."""
        self._started_ms = self.session.clock.now_ms()
        self._is_started = True
        if self.settings.auto_commit:
            self._committing = asyncio.create_task(
                repeat(self.settings.auto_commit_ms / 1000, self._commit_consumed)
            )
        await self.membership.start()

    async def __aexit__(self, *problem: object) -> None:
        if problem[0] is None:
            self._settle()
        await super().__aexit__(*problem)

    async def close(self) -> None:
        """Leave the group; with `auto_commit`, commit the offsets of all consumed messages."""
        self._closing.set()
        self._changed.set()
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)
        await self.membership.stop()
        await super().close()

    # -- queues

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Share a topic's queues with the group: all messages, some tags (`a || b`), or an
        expression of `kind` (`SQL92`).
        """
        if self.membership.assigned is not None:
            raise InvalidStateError("this consumer uses assign(): subscribe with another consumer")
        super().subscribe(topic, expression, kind)

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", kind: str = TAG
    ) -> None:
        """Read exactly these queues, regardless of other members."""
        wanted = frozenset(queues)
        if self.membership.assigned is None and self.membership.subscriptions:
            raise InvalidStateError(
                "this consumer uses subscribe(): assign queues to another consumer"
            )
        for topic in {queue.topic for queue in wanted}:
            missing = {queue for queue in wanted if queue.topic == topic} - set(
                (await self.session.route(topic)).read_queues
            )
            if missing:
                raise NotFoundError(
                    f"topic {topic} has no readable {min(missing)} at the moment; see queues()"
                )
        await self.membership.assign(wanted, expression, kind)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer now."""
        return self.membership.queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all readable queues of a topic."""
        return (await self.session.route(self.session.names.wire(topic))).read_queues

    # -- messages

    async def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Return messages as soon as there are some, or none after the timeout.

        Messages polled before count as consumed. A refusal of access control raises
        RequestRefusedError; everything else that keeps messages away is retried.
        """
        if count_max < 1:
            raise InvalidStateError(f"count_max is {count_max}: request at least one message")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._next(count_max)
        except RemoteError:
            raise
        except TimeoutError:
            return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message once it arrives; the previous one counts as consumed. `close`
        ends it.
        """
        found = [] if self._closing.is_set() else await self._next(1)
        if not found:
            raise StopAsyncIteration
        return found[0]

    def give_back(self) -> None:
        """Return polled messages that do not count as consumed, so that the next poll gets them
        first.
        """
        self._buffer.give_back()
        self._changed.set()

    async def _next(self, count_max: int) -> list[ReceivedMessage]:
        """Return messages; none if the consumer was closed meanwhile."""
        if not self._is_started or self._closing.is_set():
            raise InvalidStateError(
                "this consumer is not started or is closed: use it in `async with`"
            )
        if not self.membership.subscriptions:
            raise InvalidStateError(
                "there is nothing to wait for: subscribe() to a topic, or assign() queues first"
            )
        if self._is_asked:
            raise InvalidStateError(
                "another task is polling this consumer: give each task its own consumer"
            )
        self._is_asked = True
        try:
            self._settle()
            while not (found := self._buffer.take(count_max)) and not self._closing.is_set():
                if self._refusal is not None:
                    refusal, self._refusal = self._refusal, None
                    self.membership.rebalance_soon()  # The next poll learns whether it persists.
                    raise refusal
                self._changed.clear()
                await self._changed.wait()
            if found and self.observers:
                self._handed_s = time.perf_counter()
                notify(self.observers, lambda observer: observer.consuming(self.group, found))
            return found
        finally:
            self._is_asked = False

    def refused(self, problem: RequestRefusedError) -> None:
        """Have the next poll raise a refusal of access control; other refusals are only retried."""
        if is_access_refusal(problem):
            self._refusal = problem
            self._changed.set()

    def _arrived(self, reader: QueueReader) -> None:
        self._buffer.arrived(reader)
        self._changed.set()

    def _settle(self) -> None:
        """Mark all polled messages as consumed, and let their readers continue."""
        handed = self._buffer.handed
        if not handed:
            return
        self._buffer.settle()
        now_s = time.monotonic()
        for queue in (
            {message.queue for message in handed} if len(handed) > 1 else (handed[0].queue,)
        ):
            if queue in self._readers:
                self._readers[queue].last_finished_s = now_s
                self._readers[queue].wake()
        if self._was_full:
            self._was_full = False
            self._wake(self._readers)
        if self.observers:
            cost_ms = round((time.perf_counter() - self._handed_s) * 1000)
            notify(
                self.observers,
                lambda observer: observer.consumed(
                    self.group, handed, ConsumeOutcome.SUCCESS, cost_ms
                ),
            )

    # -- pauses

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading and polling these queues until `resume`, or until they are reassigned."""
        self._buffer.paused.update({self._reader(queue).queue for queue in queues})

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Continue with paused queues."""
        wanted = set(queues)
        self._buffer.paused -= wanted
        self._wake(wanted)
        self._changed.set()

    def _wake(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if queue in self._readers:
                self._readers[queue].wake()

    def _obstacle(self, queue: MessageQueue) -> Obstacle | None:
        if queue in self._buffer.paused:
            return Obstacle("it is paused: call resume() to continue")
        cached_count = sum(len(reader.cache) for reader in self._readers.values())
        if cached_count >= self.settings.cached_count_max:
            self._was_full = True
            return Obstacle(
                f"{cached_count} messages of all queues are prefetched and not yet polled, the"
                f" limit is {self.settings.cached_count_max}"
            )
        return super()._obstacle(queue)

    # -- positions

    def _reader(self, queue: MessageQueue) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            raise InvalidStateError(
                f"{queue} is not assigned to this consumer at the moment; see assignment, which a"
                " rebalance may change any time"
            )
        return reader

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to be polled from a queue, or None if not known
        yet.
        """
        return poll_buffer.position(self._reader(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another existing offset of a queue; prefetched messages are discarded."""
        self._reader(queue)  # fail early for a queue that is not assigned
        first, end = await asyncio.gather(
            min_offset(self.session, queue), max_offset(self.session, queue)
        )
        if not first <= offset <= end:
            raise InvalidStateError(
                f"{queue} has no offset {offset}: it ranges from {first} to {end}, the next message"
                " to arrive"
            )
        await self._reader(queue).seek(offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that a queue still has."""
        await self._seek_to(queue, min_offset(self.session, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with the next message that arrives in a queue."""
        await self._seek_to(queue, max_offset(self.session, queue))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Continue at the first message of a queue stored at `time_ms` or later."""
        await self._seek_to(queue, offset_at(self.session, queue, time_ms))

    async def _seek_to(self, queue: MessageQueue, lookup: Awaitable[int]) -> None:
        offset = await lookup
        await self._reader(queue).seek(offset)

    # -- offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group would resume in a queue after a restart, or None if it never
        consumed it.
        """
        if self.is_broadcasting:
            return self.offsets.known(queue)
        return await group_offset(self.session, self.wire_group, queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit offsets, each that of the next message to consume; without any, commit all polled
        messages.
        """
        if offsets is None:
            self._settle()
            await self.offsets.write(self._consumed())
            return
        for queue, offset in offsets.items():
            if self._reader(queue) and offset < 0:
                raise InvalidStateError(
                    f"{offset} is not a valid offset of {queue}: offsets start at 0"
                )
        ends = await asyncio.gather(*(max_offset(self.session, queue) for queue in offsets))
        for (queue, offset), end in zip(offsets.items(), ends, strict=True):
            if offset > end:
                raise InvalidStateError(
                    f"{offset} is not yet an offset of {queue}: the next message will have {end}"
                )
        await self.offsets.write(offsets)

    def _consumed(self) -> dict[MessageQueue, int]:
        return {
            queue: offset
            for queue, reader in self._readers.items()
            if (offset := poll_buffer.consumed(reader)) is not None
        }

    async def _commit_consumed(self) -> None:
        for queue, offset in self._consumed().items():
            self.offsets.update(queue, offset, may_go_back=True)
        await self.offsets.persist(self._readers.keys())

    async def _end_with(self, reader: QueueReader) -> None:
        await reader.stop()
        self._buffer.paused.discard(reader.queue)
        offset = poll_buffer.consumed(reader)
        if self.settings.auto_commit and offset is not None:
            self.offsets.update(reader.queue, offset, may_go_back=True)
            await self.offsets.persist([reader.queue])

    # -- requests of brokers, and reports

    async def consume_directly(self, message: ReceivedMessage) -> DirectResult:
        raise no_listener(self.group, message)

    def _properties(self) -> Mapping[str, str]:
        settings = self.settings
        return {
            "autoCommit": "true" if settings.auto_commit else "false",
            "autoCommitIntervalMillis": str(settings.auto_commit_ms),
            "pullThresholdForAll": str(settings.cached_count_max),
        }

    def _whereabouts(self, reader: QueueReader) -> str:
        first = reader.cache.first
        if first is None:
            return ""
        return (
            f"{len(reader.cache)} messages are being consumed or not yet polled, the first is at"
            f" {first.queue_offset}"
        )
