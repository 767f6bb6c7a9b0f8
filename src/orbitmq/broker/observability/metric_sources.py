"""The sources of the broker's gauges: callables, and the values that they return.

Data only. `Gauges` builds `Sources`; `Metrics` calls them on each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.broker.observability.stats import Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The broker as its metrics name it; `labels` are those of metricsLabel."""

    cluster: str
    broker_name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


class BrokerFigures(NamedTuple):
    """The broker as a whole; `permission` is brokerPermission."""

    permission: int
    topics: int
    groups: int
    loop_lag_ms: int  # the longest wait for the event loop within the last minute


class StorageFigures(NamedTuple):
    """The store; `reserve_ms` is the age of its first message, None if it is empty."""

    used_bytes: int
    flush_behind_bytes: int
    dispatch_behind_bytes: int
    reserve_ms: int | None


class ProducerClient(NamedTuple):
    """A connected producer of a group."""

    group: str
    language: str
    version: str


class ConsumerClient(NamedTuple):
    """A member of a consumer group; `consume_mode` is pull, push or pop."""

    group: str
    language: str
    version: str
    consume_mode: str
    client_id: str
    address: str


class Lag(NamedTuple):
    """The lag of a group in a topic, over all queues; `is_retry` marks the topic's retry topic for
    pop consumers.
    """

    group: str
    topic: str
    is_retry: bool
    lag: int  # messages stored and not yet consumed
    lag_ms: int  # the age of the first of them
    inflight: int  # delivered to consumers, not yet consumed
    queueing_ms: int  # the age of the first one not yet delivered
    ready: int  # not yet delivered
    consumer_offset: int
    online: int  # members of the group
    is_clustering: bool


class TimerFigures(NamedTuple):
    """The timer's backlog: messages to enter into the wheel, and messages to deliver."""

    enqueue_lag: int
    enqueue_latency_ms: int
    dequeue_lag: int
    dequeue_latency_ms: int


class PopBuffers(NamedTuple):
    """The buffers of pop consumption."""

    offsets: int
    checkpoints: int


class PopRevive(NamedTuple):
    """The lag of one queue of the revive topic."""

    queue_id: int
    lag: int
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of gauges. Metrics read an iterable in pieces, so it must tolerate changes of the
    broker in between. None in an iterable ends a step of a costly item.
    """

    stats: Stats
    is_system_topic: Callable[[str], bool]
    broker: Callable[[], BrokerFigures]
    storage: Callable[[], StorageFigures]
    runtime_info: Callable[[], Mapping[str, str]]
    processor_queues: Callable[[], Iterable[tuple[str, int]]]
    producers: Callable[[], Iterable[ProducerClient]]
    consumers: Callable[[], Iterable[ConsumerClient]]
    # Each topic, and the sum of the end offsets of its queues.
    topic_offsets: Callable[[], Iterable[tuple[str, int] | None]]
    lags: Callable[[], Iterable[Lag | None]]
    # Called first on each scrape, so that kernels hand over their counts.
    collect: Callable[[], object] = lambda: None
    # Each group, and the number of its topics with subscription conflicts.
    subscription_conflicts: Callable[[], Iterable[tuple[str, int]]] = tuple
    half_messages: Callable[[], Iterable[tuple[str, int]]] = tuple
    timer: Callable[[], TimerFigures | None] = lambda: None
    timing_messages: Callable[[], Iterable[tuple[str, int]]] = tuple
    # Each bound in seconds, and the number of messages due within it.
    timer_snapshot: Callable[[], Iterable[tuple[int, int]]] = tuple
    pop_buffers: Callable[[], PopBuffers | None] = lambda: None
    pop_revive: Callable[[], Iterable[PopRevive]] = tuple
