"""What a driver and executors ask a cluster, without coroutines: its queues, where they begin and end, and how far a group is.

Names of topics are the user's; the namespace is put before them here. A cluster that never answered fails at once; once it has, who cannot
be reached is asked again for `retry_ms`. One connection to everybody per process and settings; messages are read by `pull_link`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from orbitmq.admin import Admin
from orbitmq.blocking import loop_thread
from orbitmq.client import queue_offsets
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.pulling import pull, subscription
from orbitmq.client.session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ConfigurationError, NotFound, OrbitError, RemoteError
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, REPLY_SUFFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import ClusterInfo
from orbitmq.spark.offsets import Ends, Offsets, QueueKey
from orbitmq.spark.options import SourceOptions, TopicChoice
from orbitmq.spark.queue_reading import Patience
from orbitmq.spark.refused_keys import told_of_keys

T = TypeVar("T")
_REST_S: Final = 5.0  # how long a broker that could not be reached is left alone
_COMMIT_S: Final = 1.0  # how long a query waits until brokers know how far it is: it may end at any moment, and take its worker along
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topology:
    """The queues that a choice means now, those that it names and whose broker is not registered now, and every broker that is."""

    queues: frozenset[QueueKey]
    absent: frozenset[QueueKey]
    brokers: frozenset[str]

    def check_whole(self) -> None:
        """Refuse to do without what was asked for by name."""
        if self.absent:
            queue = min(self.absent)
            known = ", ".join(sorted(self.brokers)) or "none"
            raise NotFound(f"queue {queue} cannot be read: broker {queue.broker} is not registered; registered are {known}")


class Cluster:
    """From its making to `close`; any thread may use it. `group` is in whose name brokers are asked, as they know it."""

    def __init__(self, settings: ClientSettings, group: str, retry_ms: int) -> None:
        self._settings = settings
        self._names = settings.names
        self._group = group
        self._retry_ms = retry_ms
        self._has_answered = False
        self._resting: dict[str, float] = {}  # until when brokers are left alone
        self._uncommitted: dict[QueueKey, int] = {}
        self._committer: asyncio.Task[None] | None = None
        self._loop = loop_thread.acquire()
        self._session = self._loop.call(_session, settings)

    def close(self) -> None:
        self._loop.call(self._session.close)
        loop_thread.release(self._loop)

    # -- questions

    def topology(self, choice: TopicChoice, *, is_sure: bool = True) -> Topology:
        """Which queues there are, as name servers know it now; `is_sure`: what is asked for by name has to be there."""
        return self._patiently(lambda: self._topology(choice, is_sure))

    def ends(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Ends]:
        """Where queues begin and end."""
        return self._of_each(queues, self._ends)

    def latest_of_reachable(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """Where queues end, without those whose broker cannot be reached now; that is in the log."""
        now = time.monotonic()
        asked = [queue for queue in queues if self._resting.get(queue.broker, now) <= now]
        with told_of_keys(self._settings):
            return self._loop.call(self._latest, asked)

    def at_times(self, times_ms: Offsets) -> dict[QueueKey, int]:
        """The first message of each queue that was stored at its time or later; the end when there is none."""
        return self._of_each(times_ms, lambda queue: self._at_time(queue, times_ms[queue]))

    def committed(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int | None]:
        """How far the group is in each queue; None where it never was."""
        found = self._of_each(queues, lambda queue: queue_offsets.group_offset(self._session, self._group, self._wire(queue)))
        doubtful = {queue.topic for queue, offset in found.items() if offset == 0}  # which 4.9 says of groups that it does not know, too
        known = {topic for topic in doubtful if self._patiently(lambda topic=topic: self._has_offsets(topic))}  # type: ignore[misc]
        return {queue: offset if offset or queue.topic in known else None for queue, offset in found.items()}

    def address(self, queue: MessageQueue, is_again: bool) -> str:
        """Where the broker of a queue is, by its name at brokers; `is_again`: what was known of it led nowhere."""

        async def find() -> str:
            if is_again:
                self._session.forget_route(queue.topic)
            return await self._session.broker_of(queue)

        return self._loop.call(find)

    def has_master(self, queue: QueueKey) -> bool:
        """Whether the master of a queue's broker is there, as far as is known."""
        route = self._session.known_route(self._names.wire(queue.topic))
        return route is not None and route.master(queue.broker) is not None

    def has_holes(self, queue: QueueKey) -> bool:
        """Whether a queue may lack messages between its ends: its broker compacts the topic, and keeps the last of each key."""
        return self._patiently(lambda: self._is_compacted(queue))

    # -- how far the group is

    def commit(self, offsets: Offsets) -> None:
        """Have brokers keep how far the group is; an error when one does not."""
        self._of_each(offsets, lambda queue: queue_offsets.set_group_offset(self._session, self._group, self._wire(queue), offsets[queue]))

    def commit_soon(self, offsets: Offsets) -> None:
        """The same without an error, and without waiting for long; what fails is in the log."""
        self._loop.call(self._commit_soon, offsets)

    def join(self) -> None:
        """Let brokers know that the group is here, so that they and their tools know it at all; a second time does nothing."""
        self._loop.call(self._join)

    # -- on the loop

    async def _topology(self, choice: TopicChoice, is_sure: bool) -> Topology:
        admin = Admin(self._session)
        info = await admin.cluster.info()
        if choice.pattern is not None:
            topics = self._fitting(choice.pattern, await admin.topics.names(), info)
        else:
            topics = list(choice.topics or {queue.topic for queue in choice.queues})
        for topic in topics:
            self._session.forget_route(self._names.wire(topic))
        found = await asyncio.gather(*(self._queues(topic, is_sure and choice.pattern is None) for topic in topics))
        queues, brokers = frozenset().union(*found), frozenset(info.brokers)
        if not choice.queues:
            return Topology(queues, frozenset(), brokers)
        missing = choice.queues - queues
        for queue in sorted(missing):
            if is_sure and queue.broker in brokers:
                raise ConfigurationError(f"option assign names queue {queue}, which does not exist; see orbitmq topic route {queue.topic}")
        return Topology(queues & choice.queues, missing, brokers)

    async def _queues(self, topic: str, is_sure: bool) -> frozenset[QueueKey]:
        """The queues of a topic that may be read; one that is not there has none, unless it has to be there."""
        try:
            route = await self._session.route(self._names.wire(topic))
        except NotFound:
            if is_sure:
                raise
            return frozenset()
        return frozenset(QueueKey(topic, queue.broker_name, queue.queue_id) for queue in route.read_queues)

    def _fitting(self, pattern: str, names: Iterable[str], info: ClusterInfo) -> list[str]:
        """The topics of this namespace whose whole name fits; RocketMQ's own never do, retry and dead letters when the pattern says so."""
        own = {*SYSTEM_TOPICS, *info.brokers, *info.clusters, *(name + REPLY_SUFFIX for name in info.clusters)}
        fits = re.compile(pattern).fullmatch
        found = []
        for wire_name in names:
            name = self._names.own(wire_name)
            is_special = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) and not pattern.startswith("%")
            is_elsewhere = self._names.wire(name) != wire_name
            if not is_special and not is_elsewhere and wire_name not in own and not wire_name.startswith(SYSTEM_PREFIX) and fits(name):
                found.append(name)
        return found

    async def _ends(self, queue: QueueKey) -> Ends:
        wire = self._wire(queue)
        return Ends(*await asyncio.gather(queue_offsets.min_offset(self._session, wire), queue_offsets.max_offset(self._session, wire)))

    async def _latest(self, queues: list[QueueKey]) -> dict[QueueKey, int]:
        answers = await asyncio.gather(
            *(queue_offsets.max_offset(self._session, self._wire(queue)) for queue in queues), return_exceptions=True
        )
        found: dict[QueueKey, int] = {}
        failed: dict[str, RemoteError | NotFound] = {}
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, RemoteError | NotFound):
                failed[queue.broker] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[queue] = answer
        for broker, problem in failed.items():
            log.warning("broker_unreachable broker=%s its_queues='wait where they are' why='%s'", broker, problem)
            self._resting[broker] = time.monotonic() + _REST_S
        return found

    async def _at_time(self, queue: QueueKey, time_ms: int) -> int:
        """Brokers of 4.9 tell the nearest message, or any of those of one time: so messages themselves are looked at around it."""
        wire = self._wire(queue)
        low, high = await self._ends(queue)  # what is before `low` is earlier, what is from `high` on is not
        told = await queue_offsets.offset_at(self._session, wire, time_ms)
        hints = [told - 1, told]
        while low < high:
            hint = hints.pop() if hints else (low + high) // 2
            if low <= hint < high:
                found = await pull(self._session, self._group, wire, hint, subscription(wire.topic, None), count_max=1)
                is_earlier = not found.messages or found.messages[0].stored.store_time_ms < time_ms
                low, high = (hint + 1, high) if is_earlier else (low, hint)
        return low

    async def _has_offsets(self, topic: str) -> bool:
        return self._group in await Admin(self._session).topics.groups(self._names.wire(topic))

    async def _is_compacted(self, queue: QueueKey) -> bool:
        config = (await Admin(self._session).topics.configs(self._names.wire(queue.topic))).get(queue.broker)
        return config is not None and config.attributes.get("cleanup.policy") == "COMPACTION"

    async def _join(self) -> None:
        if not self._session.members:
            await self._session.join(PullConsumer(self._session, self._group))
        await self._session.introduce()

    async def _commit_soon(self, offsets: Offsets) -> None:
        self._uncommitted.update(offsets)
        if self._committer is None or self._committer.done():
            self._committer = asyncio.create_task(self._commit_all())
        await asyncio.wait([self._committer], timeout=_COMMIT_S)

    async def _commit_all(self) -> None:
        """Round after round, so that an older offset never comes after a newer one."""
        while self._uncommitted:
            now, self._uncommitted = self._uncommitted, {}
            await asyncio.gather(*(self._try_to_commit(*each) for each in now.items()))

    async def _try_to_commit(self, queue: QueueKey, offset: int) -> None:
        try:
            await queue_offsets.set_group_offset(self._session, self._group, self._wire(queue), offset)
        except OrbitError as problem:
            log.warning("offset_not_committed group=%s queue=%s offset=%d why='%s'", self._group, queue, offset, problem)

    def _wire(self, queue: QueueKey) -> MessageQueue:
        return MessageQueue(self._names.wire(queue.topic), queue.broker, queue.queue_id)

    # -- waiting

    def _of_each(self, queues: Iterable[QueueKey], question: Callable[[QueueKey], Awaitable[T]]) -> dict[QueueKey, T]:
        keys = list(queues)

        async def ask() -> list[T]:
            return await asyncio.gather(*map(question, keys))

        return dict(zip(keys, self._patiently(ask, (RemoteError, NotFound)), strict=True))  # a broker that is not registered may come back

    def _patiently(self, question: Callable[[], Awaitable[T]], passing: tuple[type[OrbitError], ...] = (RemoteError,)) -> T:
        async def ask() -> T:
            return await question()

        patience = Patience(self._retry_ms / 1000)
        while True:
            try:
                with told_of_keys(self._settings):
                    found = self._loop.call(ask)
            except passing as problem:
                if not self._has_answered or not patience.wait():
                    raise
                log.warning("asked_again why='%s'", problem)
                self._loop.call(self._session.refresh_routes)
            else:
                self._has_answered = True
                return found


async def _session(settings: ClientSettings) -> ClientSession:
    """A session belongs to the loop that it is made on."""
    session = ClientSession(settings)
    await session.start()
    return session


_kept: dict[tuple[ClientSettings, str, int], Cluster] = {}
os.register_at_fork(after_in_child=_kept.clear)  # connections belong to one process


def cluster_of(options: SourceOptions) -> Cluster:
    """The cluster that options mean; connections are kept as long as this process lives."""
    key = options.client, options.reader_group, options.retry_ms
    if key not in _kept:
        _kept[key] = Cluster(*key)
    return _kept[key]
