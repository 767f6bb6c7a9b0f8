"""Where the broker's metrics read their gauges: callables, and the rows they give.

Values only. Whoever builds the broker fills in `Sources`; those who show metrics call them when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.broker.stats import Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who is measured; `labels` are those of metricsLabel."""

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
    """The store; `reserve_ms` is the age of its first message, None when it is empty."""

    used_bytes: int
    flush_behind_bytes: int
    dispatch_behind_bytes: int
    reserve_ms: int | None


class ProducerClient(NamedTuple):
    """A producer of a group that is connected."""

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
    """How far a group is behind in a topic, over all queues; `is_retry` for the retry topic that pop consumers have of it."""

    group: str
    topic: str
    is_retry: bool
    lag: int  # messages stored and not yet consumed
    lag_ms: int  # how long the first of them has waited
    inflight: int  # given to consumers, not yet consumed
    queueing_ms: int  # how long the first that was not given has waited
    ready: int  # not yet given
    consumer_offset: int
    online: int  # members of the group
    is_clustering: bool


class TimerFigures(NamedTuple):
    """The timer's backlog: what is to go in, and what is to come out."""

    enqueue_lag: int
    enqueue_latency_ms: int
    dequeue_lag: int
    dequeue_latency_ms: int


class PopBuffers(NamedTuple):
    """What pop keeps in memory."""

    offsets: int
    checkpoints: int


class PopRevive(NamedTuple):
    """How far one queue of the revive topic is behind."""

    queue_id: int
    lag: int
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where gauges are read. Iterables may be walked in pieces: a source must bear that the broker goes on meanwhile."""

    stats: Stats
    is_system_topic: Callable[[str], bool]
    broker: Callable[[], BrokerFigures]
    storage: Callable[[], StorageFigures]
    runtime_info: Callable[[], Mapping[str, str]]
    processor_queues: Callable[[], Iterable[tuple[str, int]]]
    producers: Callable[[], Iterable[ProducerClient]]
    consumers: Callable[[], Iterable[ConsumerClient]]
    topic_offsets: Callable[[], Iterable[tuple[str, int] | None]]  # the sum of the end offsets of its queues; None: a step towards one
    lags: Callable[[], Iterable[Lag | None]]  # None: a step towards one
    collect: Callable[[], object] = lambda: None  # called first: who counts elsewhere hands it over then
    subscription_conflicts: Callable[[], Iterable[tuple[str, int]]] = tuple  # a group, and in how many topics its members differ
    half_messages: Callable[[], Iterable[tuple[str, int]]] = tuple
    timer: Callable[[], TimerFigures | None] = lambda: None
    timing_messages: Callable[[], Iterable[tuple[str, int]]] = tuple
    timer_snapshot: Callable[[], Iterable[tuple[int, int]]] = tuple  # due within so many seconds, messages
    pop_buffers: Callable[[], PopBuffers | None] = lambda: None
    pop_revive: Callable[[], Iterable[PopRevive]] = tuple
