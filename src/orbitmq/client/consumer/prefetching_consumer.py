"""Base of consumers that prefetch the queues of a group: a reader for each assigned queue, and
reports about them.

Does not know who receives the messages: that is `_arrived`. Subclasses define what happens before a
queue is read and after it was revoked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from orbitmq.client.checks import check_group
from orbitmq.client.consumer.explanation import ConsumerReport, QueueReport
from orbitmq.client.consumer.file_offsets import FileOffsets
from orbitmq.client.consumer.membership import GroupSettings, Membership
from orbitmq.client.consumer.offset_store import BrokerOffsets, OffsetStore
from orbitmq.client.consumer.queue_reader import Obstacle, QueueReader, ReadSettings
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.session.client_session import Cluster, SessionUser
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import (
    CONSUMES_IN_ORDER,
    ConsumerRunningInfo,
    DirectResult,
    QueueProgress,
    TopicRates,
)
from orbitmq.protocol.bodies.subscriptions import TAG, ConsumeFromWhere, MessageModel
from orbitmq.version import ROCKETMQ_VERSION

log = logging.getLogger(__name__)


class PrefetchingConsumer(SessionUser):
    """Base class of push and lite pull consumers."""

    def __init__(
        self, cluster: Cluster, group: str, settings: GroupSettings, reading: ReadSettings
    ) -> None:
        super().__init__(cluster)
        self.group = group
        self.wire_group = self.session.names.wire(group)
        check_group(self.wire_group)
        self.is_broadcasting = settings.message_model is MessageModel.BROADCASTING
        self.offsets = self._offset_store(settings)
        self.membership = Membership(self.session, group, settings, self.offsets, self)
        self._reading = reading
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._releases: dict[MessageQueue, asyncio.Task[None]] = {}
        self._started_ms = 0

    def _offset_store(self, settings: GroupSettings) -> OffsetStore:
        if self.is_broadcasting:
            folder = settings.offsets_folder / self.session.settings.stable_id() / self.wire_group
            return FileOffsets(folder / "offsets.json")
        # A start by time finds the messages of young queues by itself.
        by_time = settings.consume_from is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        return BrokerOffsets(self.session, self.wire_group, reads_young=not by_time)

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Subscribe to a topic: all messages, some tags (`a || b`), or an expression of `kind`
        (`SQL92`).
        """
        self.membership.subscribe(topic, expression, kind)

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        self.membership.unsubscribe(topic)

    # -- hooks of subclasses

    @abstractmethod
    def _arrived(self, reader: QueueReader) -> None:
        """Called when a reader's cache has new messages."""

    def _obstacle(self, queue: MessageQueue) -> Obstacle | None:
        """Return why a queue may not be read now, or None if it may."""
        return (
            None
            if queue.topic in self.membership.subscriptions
            else Obstacle("its topic is no longer subscribed")
        )

    async def _prepare(self, queues: Sequence[MessageQueue]) -> None:
        """Prepare queues before they are read."""

    @abstractmethod
    async def _end_with(self, reader: QueueReader) -> None:
        """Persist the progress of a revoked queue and release what is held for it."""

    @abstractmethod
    async def consume_directly(self, message: ReceivedMessage) -> DirectResult:
        """Consume a message that an operator sends through a broker."""

    def _rates(self) -> Mapping[str, TopicRates]:
        return {}

    def _properties(self) -> Mapping[str, str]:
        """Return settings of this kind of consumer, by their Java names."""
        return {}

    @abstractmethod
    def _whereabouts(self, reader: QueueReader) -> str:
        """Describe where a reader's unfinished messages are; empty if there are none."""

    def refused(self, problem: RequestRefusedError) -> None:
        """Nothing to do: the request is retried, and `explain` says why it fails."""

    # -- queues

    async def queues_changed(self, queues: frozenset[MessageQueue]) -> None:
        for reader in [reader for queue, reader in self._readers.items() if queue not in queues]:
            reader.is_dropped = True
            del self._readers[reader.queue]
            self._releases[reader.queue] = asyncio.create_task(self._release(reader))
        if not queues:  # closing: all releases must complete
            await asyncio.gather(*self._releases.values(), return_exceptions=True)
        added = sorted(queues - self._readers.keys())
        before = [self._releases[queue] for queue in added if queue in self._releases]
        if before:
            await asyncio.wait(before)
        if added:
            await self._prepare(added)
        for queue in added:
            self._readers[queue] = reader = QueueReader(
                self.membership, queue, self._reading, self._arrived, self._obstacle
            )
            reader.start()

    async def _release(self, reader: QueueReader) -> None:
        try:
            await self._end_with(reader)
        except Exception:
            log.exception("queue_not_released group=%s queue=%s", self.group, reader.queue)
        finally:
            self.offsets.forget(reader.queue)
            del self._releases[reader.queue]

    # -- requests of brokers

    def rebalance_soon(self) -> None:
        self.membership.rebalance_soon()

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        ours = {queue: offset for queue, offset in offsets.items() if queue in self._readers}
        log.info("offsets_reset group=%s queues=%d", self.group, len(ours))
        for queue, offset in ours.items():
            await self._readers[queue].seek(offset)
        await self.offsets.write(ours)

    def committed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        for reader in self._readers.values():
            reader.note_progress()
        return {
            queue: offset
            for queue in self._readers
            if queue.topic == topic and (offset := self.offsets.known(queue)) is not None
        }

    def running_info(self) -> ConsumerRunningInfo:
        settings = self.membership.settings
        return ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": f"V{ROCKETMQ_VERSION.replace('.', '_')}",
                CONSUMES_IN_ORDER: "true" if self._reading.in_order else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": settings.consume_type.name,
                "PROP_NAMESERVER_ADDR": ";".join(self.session.client.name_servers.in_order()),
                "consumerGroup": self.group,
                "messageModel": settings.message_model.name,
                "pullBatchSize": str(self._reading.pull_count),
                "pullThresholdForQueue": str(self._reading.limits.count_max),
                "pullThresholdSizeForQueue": str(self._reading.limits.bytes_max >> 20),
                "consumeConcurrentlyMaxSpan": str(self._reading.limits.span_max),
                **self._properties(),
            },
            subscriptions=tuple(self.membership.subscriptions.values()),
            queues={queue: self._progress(reader) for queue, reader in self._readers.items()},
            topics=self._rates(),
        )

    def _progress(self, reader: QueueReader) -> QueueProgress:
        reader.note_progress()
        clock, cache = self.session.clock, reader.cache
        ago_s = _finished_s_ago(reader)
        first, last = cache.commit_offset or 0, (cache.commit_offset or 0) + cache.span
        return QueueProgress(
            commit_offset=self.offsets.known(reader.queue) or 0,
            cached_count=len(cache),
            cached_first_offset=first if len(cache) else 0,
            cached_last_offset=last if len(cache) else 0,
            cached_bytes=cache.size,
            is_dropped=reader.is_dropped,
            last_pull_ms=clock.now_ms() - clock.monotonic_ms() + reader.last_read_ms,
            last_consume_ms=0 if ago_s is None else clock.now_ms() - round(ago_s * 1000),
        )

    # -- explanations

    async def explain(self) -> ConsumerReport:
        """Report for each queue why it progresses or not, and why this member has no others."""
        topics = tuple(self.membership.subscriptions) if self.membership.assigned is None else ()
        notes = [
            note
            for topic in topics
            if (note := await self.membership.why_no_queue(topic)) is not None
        ]
        return ConsumerReport(
            group=self.group,
            client_id=self.session.client_id,
            queues=self.reports(),
            notes=tuple(notes),
        )

    def reports(self) -> tuple[QueueReport, ...]:
        """Report on the queues only, without asking any broker."""
        return tuple(self._report(reader) for _, reader in sorted(self._readers.items()))

    def _report(self, reader: QueueReader) -> QueueReport:
        cache, whereabouts = reader.cache, self._whereabouts(reader)
        return QueueReport(
            queue=reader.queue,
            why=f"{reader.why()}; {whereabouts}" if whereabouts else reader.why(),
            next_offset=reader.next_offset,
            committed_offset=(
                cache.commit_offset
                if cache.commit_offset is not None
                else self.offsets.known(reader.queue)
            ),
            broker_end=reader.broker_end,
            cached_count=len(cache),
            last_read_s_ago=(self.session.clock.monotonic_ms() - reader.last_read_ms) / 1000,
            last_finished_s_ago=_finished_s_ago(reader),
        )


def _finished_s_ago(reader: QueueReader) -> float | None:
    return None if reader.last_finished_s is None else time.monotonic() - reader.last_finished_s
