"""The pull consumer for most uses: the application asks for messages, which are read ahead in the background.

Queues are shared with the other members of the group after `subscribe`, or are those of `assign`. What was handed out counts as consumed
when more is asked for, at `commit`, or when the block of `async with` ends without an error; with automatic commits the offsets follow by
themselves, else only `commit` brings them to where they are kept. One task at a time asks for messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from orbitmq.client import hand_out
from orbitmq.client.hand_out import HandOut
from orbitmq.client.membership import GroupSettings
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.observers import ConsumeObserver, Outcome, tell
from orbitmq.client.periodic import repeat
from orbitmq.client.process_queue import CacheLimits
from orbitmq.client.queue_offsets import group_offset, max_offset, min_offset, offset_at
from orbitmq.client.queue_reader import Obstacle, QueueReader, ReadSettings
from orbitmq.client.reading_consumer import ReadingConsumer
from orbitmq.client.served import no_listener
from orbitmq.client.session import Cluster
from orbitmq.client.setting_checks import at_least
from orbitmq.common.errors import ConfigurationError, NotFound, WrongCall
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import DirectResult
from orbitmq.protocol.bodies.subscriptions import TAG, ConsumeType

_AUTO_COMMIT_MS_MIN: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings(GroupSettings):
    """How a pull consumer reads ahead, and when it commits."""

    consume_type: ConsumeType = ConsumeType.CONSUME_ACTIVELY
    auto_commit: bool = True
    auto_commit_ms: int = 5_000
    pull_count: int = 32
    limits: CacheLimits = field(default_factory=CacheLimits)
    cached_count_max: int = 10_000  # messages of all queues together that are read ahead
    suspend_ms: int = 20_000  # how long a broker waits for a message that is not there yet
    timeout_ms: int = 30_000  # of a pull

    def __post_init__(self) -> None:
        at_least(1, self, "pull_count", "cached_count_max", "timeout_ms")
        at_least(0, self, "suspend_ms")
        if self.auto_commit_ms < _AUTO_COMMIT_MS_MIN:
            raise ConfigurationError(f"auto_commit_ms is {self.auto_commit_ms}; the least is {_AUTO_COMMIT_MS_MIN}")
        if self.timeout_ms <= self.suspend_ms:
            raise ConfigurationError(f"timeout_ms is {self.timeout_ms}; brokers answer after suspend_ms, {self.suspend_ms}, or later")


class LitePullConsumer(ReadingConsumer):
    """`async with LitePullConsumer("127.0.0.1:9876", "group") as consumer`; then `poll`, or `async for message in consumer`."""

    def __init__(self, cluster: Cluster, group: str, *, settings: LitePullSettings | None = None) -> None:
        self.settings = settings = settings or LitePullSettings()
        reading = ReadSettings(
            limits=settings.limits,
            pull_count=settings.pull_count,
            suspend_ms=settings.suspend_ms,
            timeout_ms=settings.timeout_ms,
            is_lite=True,
        )
        super().__init__(cluster, group, settings, reading)
        self.observers: list[ConsumeObserver] = []  # who is told of every message that is handed out
        self._hand_out = HandOut()
        self._handed_s = 0.0
        self._news = asyncio.Event()
        self._is_asked = False  # somebody waits for messages
        self._is_started = False
        self._closing = asyncio.Event()
        self._was_full = False
        self._committing: asyncio.Task[None] | None = None

    # -- from start to close

    async def start(self) -> None:
        """Join the group, and read ahead from now on."""
        self._started_ms = self.session.clock.now_ms()
        self._is_started = True
        if self.settings.auto_commit:
            self._committing = asyncio.create_task(repeat(self.settings.auto_commit_ms / 1000, self._commit_consumed))
        await self.membership.start()

    async def __aexit__(self, *problem: object) -> None:
        if problem[0] is None:
            self._settle()
        await super().__aexit__(*problem)

    async def close(self) -> None:
        """Leave; with automatic commits the offsets of all that counts as consumed are kept."""
        self._closing.set()
        self._news.set()
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)
        await self.membership.stop()
        await super().close()

    # -- which queues

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Share the queues of a topic with the group: all messages, those of some tags (`a || b`), or by an expression (`SQL92`)."""
        if self.membership.assigned is not None:
            raise WrongCall("this consumer has the queues of assign(); another one can subscribe")
        super().subscribe(topic, expression, kind)

    async def assign(self, queues: Iterable[MessageQueue], expression: str = "*", kind: str = TAG) -> None:
        """Read these queues and no others, whoever else of the group reads them too."""
        wanted = frozenset(queues)
        if self.membership.assigned is None and self.membership.subscriptions:
            raise WrongCall("this consumer shares the queues of what it subscribes; another one can assign()")
        for topic in {queue.topic for queue in wanted}:
            missing = {queue for queue in wanted if queue.topic == topic} - set((await self.session.route(topic)).read_queues)
            if missing:
                raise NotFound(f"topic {topic} has no {min(missing)} now that may be read; queues() tells those that there are")
        await self.membership.assign(wanted, expression, kind)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that it reads now."""
        return self.membership.queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read."""
        return (await self.session.route(self.session.names.wire(topic))).read_queues

    # -- messages

    async def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Messages, as soon as there are some, or none when none came in time; what was handed out before counts as consumed."""
        if count_max < 1:
            raise WrongCall(f"count_max is {count_max}: ask for one message at least")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._next(count_max)
        except TimeoutError:
            return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message, whenever it comes; the one before counts as consumed. The end comes with `close`."""
        found = [] if self._closing.is_set() else await self._next(1)
        if not found:
            raise StopAsyncIteration
        return found[0]

    def give_back(self) -> None:
        """Hand out again, first of all, what was handed out and does not count as consumed."""
        self._hand_out.give_back()
        self._news.set()

    async def _next(self, count_max: int) -> list[ReceivedMessage]:
        """Messages; none when it was closed meanwhile."""
        if not self._is_started or self._closing.is_set():
            raise WrongCall("this consumer is not started, or closed: use it in `async with`")
        if not self.membership.subscriptions:
            raise WrongCall("there is nothing to wait for: subscribe() to a topic, or assign() queues first")
        if self._is_asked:
            raise WrongCall("another task waits for messages of this consumer; each task needs a consumer of its own")
        self._is_asked = True
        try:
            self._settle()
            while not (found := self._hand_out.take(count_max)) and not self._closing.is_set():
                self._news.clear()
                await self._news.wait()
            if found and self.observers:
                self._handed_s = time.perf_counter()
                tell(self.observers, lambda observer: observer.consuming(self.group, found))
            return found
        finally:
            self._is_asked = False

    def _arrived(self, reader: QueueReader) -> None:
        self._hand_out.arrived(reader)
        self._news.set()

    def _settle(self) -> None:
        """All that was handed out counts as consumed, and makes room."""
        handed = self._hand_out.handed
        if not handed:
            return
        self._hand_out.settle()
        now_s = time.monotonic()
        for queue in {message.queue for message in handed} if len(handed) > 1 else (handed[0].queue,):
            if queue in self._readers:
                self._readers[queue].last_finished_s = now_s
                self._readers[queue].wake()
        if self._was_full:
            self._was_full = False
            self._wake(self._readers)
        if self.observers:
            cost_ms = round((time.perf_counter() - self._handed_s) * 1000)
            tell(self.observers, lambda observer: observer.consumed(self.group, handed, Outcome.SUCCESS, cost_ms))

    # -- pauses

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out and read nothing of these until `resume`, or until they are somebody else's."""
        self._hand_out.paused.update({self._reader(queue).queue for queue in queues})

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that were paused."""
        wanted = set(queues)
        self._hand_out.paused -= wanted
        self._wake(wanted)
        self._news.set()

    def _wake(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if queue in self._readers:
                self._readers[queue].wake()

    def _obstacle(self, queue: MessageQueue) -> Obstacle | None:
        if queue in self._hand_out.paused:
            return Obstacle("it is paused; resume() lets it go on")
        cached_count = sum(len(reader.cache) for reader in self._readers.values())
        if cached_count >= self.settings.cached_count_max:
            self._was_full = True
            return Obstacle(f"{cached_count} messages of all queues wait to be asked for, {self.settings.cached_count_max} may")
        return super()._obstacle(queue)

    # -- places

    def _reader(self, queue: MessageQueue) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            raise WrongCall(f"{queue} is not read by this consumer now; assignment tells which are, and the group may share anew any time")
        return reader

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message of a queue that is handed out; None while it is found out where to begin."""
        return hand_out.position(self._reader(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is there; what was read before is forgotten."""
        self._reader(queue)  # nothing is asked of a queue that is not ours
        first, end = await asyncio.gather(min_offset(self.session, queue), max_offset(self.session, queue))
        if not first <= offset <= end:
            raise WrongCall(f"{queue} has no offset {offset}: its first is {first}, and {end} is that of the next message to come")
        await self._reader(queue).seek(offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that a queue still has."""
        await self._seek_to(queue, min_offset(self.session, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that comes into a queue."""
        await self._seek_to(queue, max_offset(self.session, queue))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Go on at the first message of a queue that was stored at a time or later."""
        await self._seek_to(queue, offset_at(self.session, queue, time_ms))

    async def _seek_to(self, queue: MessageQueue, answer: Awaitable[int]) -> None:
        offset = await answer
        await self._reader(queue).seek(offset)

    # -- offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group would go on in a queue after a restart; None when it never consumed it."""
        if self.is_broadcasting:
            return self.offsets.known(queue)
        return await group_offset(self.session, self.wire_group, queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Keep these offsets, each that of the next message; without any, all that was handed out counts as consumed, and is kept."""
        if offsets is None:
            self._settle()
            await self.offsets.write(self._consumed())
            return
        for queue, offset in offsets.items():
            if self._reader(queue) and offset < 0:
                raise WrongCall(f"{offset} is no offset of {queue}: they begin at 0")
        ends = await asyncio.gather(*(max_offset(self.session, queue) for queue in offsets))
        for (queue, offset), end in zip(offsets.items(), ends, strict=True):
            if offset > end:
                raise WrongCall(f"{offset} is no offset of {queue} yet: {end} is that of the next message to come")
        await self.offsets.write(offsets)

    def _consumed(self) -> dict[MessageQueue, int]:
        return {queue: offset for queue, reader in self._readers.items() if (offset := hand_out.consumed(reader)) is not None}

    async def _commit_consumed(self) -> None:
        for queue, offset in self._consumed().items():
            self.offsets.update(queue, offset, may_go_back=True)
        await self.offsets.persist(self._readers.keys())

    async def _end_with(self, reader: QueueReader) -> None:
        await reader.stop()
        self._hand_out.paused.discard(reader.queue)
        offset = hand_out.consumed(reader)
        if self.settings.auto_commit and offset is not None:
            self.offsets.update(reader.queue, offset, may_go_back=True)
            await self.offsets.persist([reader.queue])

    # -- what brokers ask, and what it tells

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
        return f"{len(reader.cache)} messages are with the application or wait to be asked for, the first is at {first.queue_offset}"
