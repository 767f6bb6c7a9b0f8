"""A blocking client for the metadata of a cluster: its queues, their bounds and group offsets.

Topic names are the user's; this module adds the namespace. Requests to a cluster that has never
replied fail at once; later, unreachable servers are retried for `retry_ms`. There is one client per
process and settings. Messages are read by `source.pull_link`.
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
from orbitmq.client.consumer import queue_offsets
from orbitmq.client.consumer.pull_consumer import PullConsumer
from orbitmq.client.consumer.pulling import pull, subscription
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ConfigurationError, NotFoundError, OrbitError, RemoteError
from orbitmq.common.topic_names import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import ClusterInfo
from orbitmq.spark.auth_errors import explain_auth_errors
from orbitmq.spark.offsets import Offsets, QueueBounds, QueueName
from orbitmq.spark.options import QueueSelection, SourceOptions
from orbitmq.spark.source.queue_range_reader import RetryTimer

T = TypeVar("T")
_BACKOFF_S: Final = 5.0  # how long an unreachable broker is not asked again
# How long a query waits for its offsets to be stored: it may end at any moment, and its worker
# with it.
_COMMIT_S: Final = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topology:
    """The selected queues that exist now, the selected ones whose broker is not registered, and all
    registered brokers.
    """

    queues: frozenset[QueueName]
    absent: frozenset[QueueName]
    brokers: frozenset[str]

    def check_complete(self) -> None:
        """Refuse to go on without a queue that was selected by name."""
        if self.absent:
            queue = min(self.absent)
            known = ", ".join(sorted(self.brokers)) or "none"
            raise NotFoundError(
                f"queue {queue} cannot be read: broker {queue.broker} is not registered; registered"
                f" brokers: {known}"
            )


class ClusterClient:
    """Blocking metadata client, connected until `close`; any thread may use it.

    `group` is the consumer group of its requests, as brokers know it.
    """

    def __init__(self, settings: ClientSettings, group: str, retry_ms: int) -> None:
        self._settings = settings
        self._names = settings.names
        self._group = group
        self._retry_ms = retry_ms
        self._has_answered = False
        self._backoff_until: dict[str, float] = {}  # by broker
        self._uncommitted: dict[QueueName, int] = {}
        self._committer: asyncio.Task[None] | None = None
        self._loop = loop_thread.acquire()
        self._session = self._loop.call(_session, settings)

    def close(self) -> None:
        self._loop.call(self._session.close)
        loop_thread.release(self._loop)

    # -- queries

    def topology(self, selection: QueueSelection, *, must_exist: bool = True) -> Topology:
        """Return the queues that the name servers know now. With `must_exist`, topics and queues
        that were selected by name must exist.
        """
        return self._with_retries(lambda: self._topology(selection, must_exist))

    def bounds(self, queues: Iterable[QueueName]) -> dict[QueueName, QueueBounds]:
        """Return the bounds of each queue."""
        return self._for_each_queue(queues, self._bounds)

    def latest_of_reachable(self, queues: Iterable[QueueName]) -> dict[QueueName, int]:
        """Return the end offset of each queue whose broker is reachable now; unreachable ones are
        logged.
        """
        now = time.monotonic()
        asked = [queue for queue in queues if self._backoff_until.get(queue.broker, now) <= now]
        with explain_auth_errors(self._settings):
            return self._loop.call(self._latest, asked)

    def offsets_at_times(self, times_ms: Offsets) -> dict[QueueName, int]:
        """Return for each queue the offset of the first message stored at or after its time, or the
        queue's end.
        """
        return self._for_each_queue(times_ms, lambda queue: self._at_time(queue, times_ms[queue]))

    def committed(self, queues: Iterable[QueueName]) -> dict[QueueName, int | None]:
        """Return the group's offset in each queue, None where it never committed one."""
        found = self._for_each_queue(
            queues,
            lambda queue: queue_offsets.group_offset(self._session, self._group, self._wire(queue)),
        )
        # Brokers of 4.9 also reply 0 for groups that they do not know.
        doubtful = {queue.topic for queue, offset in found.items() if offset == 0}
        known = {
            topic
            for topic in doubtful
            if self._with_retries(lambda topic=topic: self._has_offsets(topic))  # type: ignore[misc]
        }
        return {
            queue: offset if offset or queue.topic in known else None
            for queue, offset in found.items()
        }

    def address(self, queue: MessageQueue, is_stale: bool) -> str:
        """Return the address of a queue's broker. With `is_stale`, the last known address did not
        work.
        """

        async def find() -> str:
            if is_stale:
                self._session.forget_route(queue.topic)
            return await self._session.broker_of(queue)

        return self._loop.call(find)

    def has_master(self, queue: QueueName) -> bool:
        """Return whether the queue's broker has a master, as far as known."""
        route = self._session.known_route(self._names.wire(queue.topic))
        return route is not None and route.master(queue.broker) is not None

    def has_holes(self, queue: QueueName) -> bool:
        """Return whether a queue may lack messages within its bounds: its topic is compacted to the
        last message of each key.
        """
        return self._with_retries(lambda: self._is_compacted(queue))

    # -- group offsets

    def commit(self, offsets: Offsets) -> None:
        """Store the group's offsets at the brokers; raises if a broker fails."""
        self._for_each_queue(
            offsets,
            lambda queue: queue_offsets.set_group_offset(
                self._session, self._group, self._wire(queue), offsets[queue]
            ),
        )

    def commit_soon(self, offsets: Offsets) -> None:
        """Store the group's offsets without raising or waiting long; failures are logged."""
        self._loop.call(self._commit_soon, offsets)

    def join(self) -> None:
        """Register the group at the brokers, so that they and the tools know it. Idempotent."""
        self._loop.call(self._join)

    # -- on the loop

    async def _topology(self, selection: QueueSelection, must_exist: bool) -> Topology:
        admin = Admin(self._session)
        info = await admin.cluster.info()
        if selection.pattern is not None:
            topics = self._matching_topics(selection.pattern, await admin.topics.names(), info)
        else:
            topics = list(selection.topics or {queue.topic for queue in selection.queues})
        for topic in topics:
            self._session.forget_route(self._names.wire(topic))
        found = await asyncio.gather(
            *(self._queues(topic, must_exist and selection.pattern is None) for topic in topics)
        )
        queues, brokers = frozenset().union(*found), frozenset(info.brokers)
        if not selection.queues:
            return Topology(queues, frozenset(), brokers)
        missing = selection.queues - queues
        for queue in sorted(missing):
            if must_exist and queue.broker in brokers:
                raise ConfigurationError(
                    f"option assign names queue {queue}, which does not exist; see orbitmq topic"
                    f" route {queue.topic}"
                )
        return Topology(queues & selection.queues, missing, brokers)

    async def _queues(self, topic: str, must_exist: bool) -> frozenset[QueueName]:
        """Return the readable queues of a topic. A missing topic has none, unless it must exist."""
        try:
            route = await self._session.route(self._names.wire(topic))
        except NotFoundError:
            if must_exist:
                raise
            return frozenset()
        return frozenset(
            QueueName(topic, queue.broker_name, queue.queue_id) for queue in route.read_queues
        )

    def _matching_topics(self, pattern: str, names: Iterable[str], info: ClusterInfo) -> list[str]:
        """Return the topics of this namespace whose full name matches. System topics never do;
        retry and dead-letter topics only if the pattern asks for them.
        """
        own = {
            *SYSTEM_TOPICS,
            *info.brokers,
            *info.clusters,
            *(name + REPLY_SUFFIX for name in info.clusters),
        }
        fits = re.compile(pattern).fullmatch
        found = []
        for wire_name in names:
            name = self._names.own(wire_name)
            is_special = name.startswith(
                (RETRY_PREFIX, DEAD_LETTER_PREFIX)
            ) and not pattern.startswith("%")
            is_elsewhere = self._names.wire(name) != wire_name
            if (
                not is_special
                and not is_elsewhere
                and wire_name not in own
                and not wire_name.startswith(SYSTEM_PREFIX)
                and fits(name)
            ):
                found.append(name)
        return found

    async def _bounds(self, queue: QueueName) -> QueueBounds:
        wire = self._wire(queue)
        return QueueBounds(
            *await asyncio.gather(
                queue_offsets.min_offset(self._session, wire),
                queue_offsets.max_offset(self._session, wire),
            )
        )

    async def _latest(self, queues: list[QueueName]) -> dict[QueueName, int]:
        replies = await asyncio.gather(
            *(queue_offsets.max_offset(self._session, self._wire(queue)) for queue in queues),
            return_exceptions=True,
        )
        found: dict[QueueName, int] = {}
        failed: dict[str, RemoteError | NotFoundError] = {}
        for queue, reply in zip(queues, replies, strict=True):
            if isinstance(reply, RemoteError | NotFoundError):
                failed[queue.broker] = reply
            elif isinstance(reply, BaseException):
                raise reply
            else:
                found[queue] = reply
        for broker, problem in failed.items():
            log.warning(
                "broker_unreachable broker=%s its_queues='keep their offsets' why='%s'",
                broker,
                problem,
            )
            self._backoff_until[broker] = time.monotonic() + _BACKOFF_S
        return found

    async def _at_time(self, queue: QueueName, time_ms: int) -> int:
        """Search by reading messages around the broker's reply: brokers of 4.9 return the nearest
        message, or any of several with the same time.
        """
        wire = self._wire(queue)
        # Messages before `low` are earlier than the time, those from `high` on are not.
        low, high = await self._bounds(queue)
        hint = await queue_offsets.offset_at(self._session, wire, time_ms)
        hints = [hint - 1, hint]
        while low < high:
            hint = hints.pop() if hints else (low + high) // 2
            if low <= hint < high:
                found = await pull(
                    self._session,
                    self._group,
                    wire,
                    hint,
                    subscription(wire.topic, None),
                    count_max=1,
                )
                is_earlier = not found.messages or found.messages[0].stored.store_time_ms < time_ms
                low, high = (hint + 1, high) if is_earlier else (low, hint)
        return low

    async def _has_offsets(self, topic: str) -> bool:
        return self._group in await Admin(self._session).topics.groups(self._names.wire(topic))

    async def _is_compacted(self, queue: QueueName) -> bool:
        config = (await Admin(self._session).topics.configs(self._names.wire(queue.topic))).get(
            queue.broker
        )
        return config is not None and config.attributes.get("cleanup.policy") == "COMPACTION"

    async def _join(self) -> None:
        if not self._session.members:
            await self._session.join(PullConsumer(self._session, self._group))
        await self._session.announce()

    async def _commit_soon(self, offsets: Offsets) -> None:
        self._uncommitted.update(offsets)
        if self._committer is None or self._committer.done():
            self._committer = asyncio.create_task(self._commit_all())
        await asyncio.wait([self._committer], timeout=_COMMIT_S)

    async def _commit_all(self) -> None:
        """Commit in rounds, so that an older offset never overwrites a newer one."""
        while self._uncommitted:
            now, self._uncommitted = self._uncommitted, {}
            await asyncio.gather(*(self._try_to_commit(*each) for each in now.items()))

    async def _try_to_commit(self, queue: QueueName, offset: int) -> None:
        try:
            await queue_offsets.set_group_offset(
                self._session, self._group, self._wire(queue), offset
            )
        except OrbitError as problem:
            log.warning(
                "offset_not_committed group=%s queue=%s offset=%d why='%s'",
                self._group,
                queue,
                offset,
                problem,
            )

    def _wire(self, queue: QueueName) -> MessageQueue:
        return MessageQueue(self._names.wire(queue.topic), queue.broker, queue.queue_id)

    # -- retries

    def _for_each_queue(
        self, queues: Iterable[QueueName], query: Callable[[QueueName], Awaitable[T]]
    ) -> dict[QueueName, T]:
        keys = list(queues)

        async def ask() -> list[T]:
            return await asyncio.gather(*map(query, keys))

        # A broker that is not registered may come back.
        return dict(zip(keys, self._with_retries(ask, (RemoteError, NotFoundError)), strict=True))

    def _with_retries(
        self,
        query: Callable[[], Awaitable[T]],
        transient: tuple[type[OrbitError], ...] = (RemoteError,),
    ) -> T:
        async def ask() -> T:
            return await query()

        retry = RetryTimer(self._retry_ms / 1000)
        while True:
            try:
                with explain_auth_errors(self._settings):
                    found = self._loop.call(ask)
            except transient as problem:
                if not self._has_answered or not retry.wait():
                    raise
                log.warning("asked_again why='%s'", problem)
                self._loop.call(self._session.refresh_routes)
            else:
                self._has_answered = True
                return found


async def _session(settings: ClientSettings) -> ClientSession:
    """Start a session on the loop it belongs to."""
    session = ClientSession(settings)
    await session.start()
    return session


_clients: dict[tuple[ClientSettings, str, int], ClusterClient] = {}
os.register_at_fork(after_in_child=_clients.clear)  # connections belong to one process


def cluster_client(options: SourceOptions) -> ClusterClient:
    """Return the client for these options; it is kept until the process ends."""
    key = options.client, options.reader_group, options.retry_ms
    if key not in _clients:
        _clients[key] = ClusterClient(*key)
    return _clients[key]
