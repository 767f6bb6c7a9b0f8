"""Reads the gauges of a running broker from its metadata, clients and store on each scrape.

Keeps no state. Long lists are generators, so that the loop can serve clients in between.
Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.observability.metric_sources import (
    BrokerFigures,
    ConsumerClient,
    Lag,
    ProducerClient,
    Sources,
    StorageFigures,
    TimerFigures,
)
from orbitmq.broker.observability.stats import Stats
from orbitmq.common.slices import slices_of
from orbitmq.protocol.bodies.subscriptions import MessageModel
from orbitmq.protocol.versions import describe
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, QueueOffset

_QUEUES_PER_STEP: Final = 20


class Gauges:
    """The gauges of one broker, as `Sources`."""

    def __init__(
        self,
        *,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        producers: Producers,
        consumers: Consumers,
        store: MessageStore,
        permission: Callable[[], int],
        loop_lag_ms: Callable[[], int],
        now_ms: Callable[[], int],
        half_messages: Callable[[], Iterable[tuple[str, int]]] = tuple,
        timer: Callable[[], TimerFigures | None] = lambda: None,
        timing_messages: Callable[[], Iterable[tuple[str, int]]] = tuple,
        timer_snapshot: Callable[[], Iterable[tuple[int, int]]] = tuple,
        collect: Callable[[], object] = lambda: None,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._producers = producers
        self._consumers = consumers
        self._store = store
        self._permission = permission
        self._loop_lag_ms = loop_lag_ms
        self._now_ms = now_ms
        self._half_messages = half_messages
        self._timer = timer
        self._timing_messages = timing_messages
        self._timer_snapshot = timer_snapshot
        self._collect = collect

    def sources(
        self,
        stats: Stats,
        runtime_info: Callable[[], Mapping[str, str]],
        processor_queues: Callable[[], Iterable[tuple[str, int]]],
    ) -> Sources:
        """Return the callables that `Metrics` reads."""
        return Sources(
            stats=stats,
            is_system_topic=self._topics.is_system,
            broker=lambda: BrokerFigures(
                self._permission(), len(self._topics), len(self._groups), self._loop_lag_ms()
            ),
            storage=self._storage,
            runtime_info=runtime_info,
            processor_queues=processor_queues,
            producers=self._producer_clients,
            consumers=self._consumer_clients,
            topic_offsets=self._topic_offsets,
            lags=self._lags,
            subscription_conflicts=lambda: [
                (group.name, len(group.conflicts)) for group in self._consumers if group.conflicts
            ],
            half_messages=self._half_messages,
            timer=self._timer,
            timing_messages=self._timing_messages,
            timer_snapshot=self._timer_snapshot,
            collect=self._collect,
        )

    def _storage(self) -> StorageFigures:
        log, first_ms = self._store.log, self._store.reads.first_time()
        return StorageFigures(
            used_bytes=log.end_offset - log.min_offset,
            flush_behind_bytes=log.end_offset - log.flushed_offset,
            dispatch_behind_bytes=max(log.end_offset - self._store.dispatcher.offset, 0),
            reserve_ms=None if first_ms < 0 else max(self._now_ms() - first_ms, 0),
        )

    def _producer_clients(self) -> Iterable[ProducerClient]:
        for group, members in self._producers.groups().items():
            for member in members:
                yield ProducerClient(
                    group, member.info.language.name, describe(member.info.version)
                )

    def _consumer_clients(self) -> Iterable[ConsumerClient]:
        for group in list(self._consumers):
            mode = "push" if group.consume_type is None else group.consume_type.value.lower()
            for member in list(group.members.values()):
                info = member.info
                yield ConsumerClient(
                    group.name,
                    info.language.name,
                    describe(info.version),
                    mode,
                    info.client_id,
                    member.channel.remote_address,
                )

    def _topic_offsets(self) -> Iterator[tuple[str, int] | None]:
        for topic in list(self._topics):
            total = 0
            for queue_ids in slices_of(range(topic.write_queue_nums), _QUEUES_PER_STEP):
                total += sum(
                    self._store.queues.max_offset(topic.name, queue_id) for queue_id in queue_ids
                )
                if len(queue_ids) == _QUEUES_PER_STEP:
                    yield None
            yield topic.name, total

    def _lags(self) -> Iterator[Lag | None]:
        now_ms = self._now_ms()
        for config in list(self._groups):
            online = self._consumers.find(config.name)
            for topic in sorted(self._offsets.topics_of(config.name)):
                is_clustering = (
                    online is not None and online.message_model is MessageModel.CLUSTERING
                )
                yield from self._lag(config.name, topic, is_clustering, now_ms)

    def _lag(
        self, group: str, topic: str, is_clustering: bool, now_ms: int
    ) -> Iterator[Lag | None]:
        """Yield None for each queue, then the lag of a group in a topic."""
        consumed = pulled = behind = ready = lag_ms = queueing_ms = 0
        for queue_id, offset in list(self._offsets.of(group, topic).items()):
            yield None
            end = self._store.queues.max_offset(topic, queue_id)
            next_pull = self._offsets.query_pull(group, topic, queue_id) or offset
            consumed += offset
            behind += max(end - offset, 0)
            pulled += max(next_pull - offset, 0)
            ready += max(end - next_pull, 0)
            lag_ms = max(lag_ms, self._age_ms(topic, queue_id, offset, end, now_ms))
            queueing_ms = max(queueing_ms, self._age_ms(topic, queue_id, next_pull, end, now_ms))
        online = self._consumers.find(group)
        yield Lag(
            group=group,
            topic=topic,
            is_retry=False,
            lag=behind,
            lag_ms=lag_ms,
            inflight=pulled,
            queueing_ms=queueing_ms,
            ready=ready,
            consumer_offset=consumed,
            online=0 if online is None else len(online.members),
            is_clustering=is_clustering,
        )

    def _age_ms(self, topic: str, queue_id: int, offset: int, end: int, now_ms: int) -> int:
        """Return the time since the message at an offset was stored; 0 if there is none."""
        if offset >= end:
            return 0
        stored_ms = self._store.reads.store_time_of(QueueKey(topic, queue_id), QueueOffset(offset))
        return 0 if stored_ms < 0 else max(now_ms - stored_ms, 0)
