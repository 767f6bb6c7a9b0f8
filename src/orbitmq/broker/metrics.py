"""What a broker measures, under the names, types and labels that RocketMQ 5.5.0 exports with metricsExporterType=PROM.

Knows neither the broker nor its store: gauges are read from `Sources`, callables that are called when somebody asks; counters and
histograms are counted by whoever keeps their series. `exporter_metrics` adds the names of Apache's older exporter.

Every series has the labels cluster, node_type, node_id, otel_scope_name and those of metricsLabel.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from orbitmq.broker.exporter_metrics import exporter_families, exporter_lag_views
from orbitmq.broker.metric_sources import Identity, Lag, Sources
from orbitmq.broker.metric_text import SERIES_MAX, Count, Family, GaugeTable, Histogram, Labels, Metric, Row, SeriesFamily, render, view
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX

MESSAGE_SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
RPC_BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
CREATE_BOUNDS_MS: Final = (10, 100, 1000, 3000, 5000)
FINISH_BOUNDS_S: Final = (5, 60, 600, 3600, 43_200, 86_400)
DELAY_BOUNDS_S: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
SCAN_BOUNDS_MS: Final = (1, 10, 100, 1000, 2000, 3000)

log = logging.getLogger(__name__)

_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}


class Incoming:
    """What comes in for one topic and message type."""

    __slots__ = ("_bytes", "_messages", "_sizes")

    def __init__(self, messages: Count, size: Count, sizes: Histogram) -> None:
        self._messages = messages
        self._bytes = size
        self._sizes = sizes

    def add(self, messages: int, size: int, puts: int = 1) -> None:
        """Count `puts` puts of so many messages and bytes together."""
        self._messages.add(messages)
        self._bytes.add(size)
        self._sizes.observe(size // messages, puts)


class Outgoing(NamedTuple):
    """What goes out of one topic to one group."""

    messages: Count
    size: Count

    def add(self, messages: int, size: int) -> None:
        """Count what one answer carried."""
        self.messages.add(messages)
        self.size.add(size)


class Metrics:
    """All metrics of a broker."""

    def __init__(self, identity: Identity, sources: Sources, *, series_max: int = SERIES_MAX) -> None:
        self._sources = sources
        self._fixed = {
            **identity.labels,
            "cluster": identity.cluster,
            "node_type": "broker",
            "node_id": identity.broker_name,
            "otel_scope_name": "broker-meter",
        }
        self._series_max = series_max
        self._families: list[Family] = []
        self._counted: list[SeriesFamily[Count] | SeriesFamily[Histogram]] = []
        self._add_gauges(identity)
        counter, histogram = self._counter, self._histogram
        topic_and_type = ("topic", "message_type", "is_system")
        topic_and_group = ("topic", "consumer_group", "is_system")
        revived = ("consumer_group", "topic", "revive_message_type")
        self._messages_in = counter("messages_in_total", "Total number of incoming messages", topic_and_type)
        self._bytes_in = counter("throughput_in_total", "Total traffic of incoming messages", topic_and_type)
        self._sizes_in = histogram("message_size", "Incoming messages size", topic_and_type, MESSAGE_SIZE_BOUNDS)
        self._messages_out = counter("messages_out_total", "Total number of outgoing messages", topic_and_group)
        self._bytes_out = counter("throughput_out_total", "Total traffic of outgoing messages", topic_and_group)
        self.refused_sends = counter("send_refused_total", "Total number of sends refused because of the broker's state", ("cause",))
        self._dead_letters = counter("send_to_dlq_messages_total", "Consumer send to DLQ messages", topic_and_group)
        self.commits = counter("commit_messages_total", "Total number of commit messages", ("topic",))
        self.rollbacks = counter("rollback_messages_total", "Total number of rollback messages", ("topic",))
        # Seconds, though the name says otherwise: so does the original.
        self.finish_seconds = histogram(
            "finish_message_latency_milliseconds", "Transaction finish latency in seconds", ("topic",), FINISH_BOUNDS_S
        )
        self._topic_create_ms = histogram(
            "topic_create_execution_time_milliseconds",
            "The distribution of create topic time",
            ("invocation_status", "is_system"),
            CREATE_BOUNDS_MS,
        )
        self._group_create_ms = histogram(
            "consumer_group_create_execution_time_milliseconds",
            "The distribution of create subscription time",
            ("invocation_status",),
            CREATE_BOUNDS_MS,
        )
        self._rpc_ms = histogram(
            "rpc_latency_milliseconds",
            "Rpc latency",
            ("request_code", "response_code", "is_long_polling", "result", "protocol_type"),
            RPC_BOUNDS_MS,
        )
        self.timer_enqueued = counter("timer_enqueue_total", "Total number of timer enqueue", ("topic",), _STORAGE)
        self.timer_dequeued = counter("timer_dequeue_total", "Total number of timer dequeue", ("topic",), _STORAGE)
        self.delay_seconds = histogram(
            "delay_message_latency_seconds", "Timer message set latency distribution", ("topic",), DELAY_BOUNDS_S, _STORAGE
        )
        self.pop_scan_ms = histogram("pop_buffer_scan_time_consume_milliseconds", "Time consuming of pop buffer scan", (), SCAN_BOUNDS_MS)
        self.revive_put = counter("pop_revive_in_message_total", "Total number of put message to revive topic", (*revived, "put_status"))
        self.revive_got = counter("pop_revive_out_message_total", "Total number of get message from revive topic", (*revived, "queue_id"))
        self.revive_retried = counter(
            "pop_revive_retry_messages_total",
            "Total number of put message to pop retry topic",
            ("consumer_group", "topic", "put_status"),
        )
        self._families += exporter_families(identity, sources)

    def topic_created(self, is_done: bool, is_system: bool) -> Histogram:
        """The series of how long operators' changes of topics took."""
        return self._topic_create_ms.series(_status(is_done), _flag(is_system))

    def group_created(self, is_done: bool) -> Histogram:
        """The series of how long operators' changes of groups took."""
        return self._group_create_ms.series(_status(is_done))

    def incoming(self, topic: str, message_type: str) -> Incoming | None:
        """The series of what is sent to a topic, to keep; None for retry and dead-letter topics, which count for nobody."""
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return None
        labels = topic, message_type, _flag(self._sources.is_system_topic(topic))
        return Incoming(self._messages_in.series(*labels), self._bytes_in.series(*labels), self._sizes_in.series(*labels))

    def outgoing(self, topic: str, group: str) -> Outgoing:
        """The series of what a group gets of a topic, to keep."""
        labels = topic, group, self._is_system(topic, group)
        return Outgoing(self._messages_out.series(*labels), self._bytes_out.series(*labels))

    def dead_letters(self, topic: str, group: str) -> Count:
        """The series of a topic's messages that a group gave up."""
        return self._dead_letters.series(topic, group, self._is_system(topic, group))

    def rpc(self, request: str, response: str, *, is_long_polling: bool = False, result: str = "success") -> Histogram:
        """The series of one kind of answer; codes by name, such as send_message_v2 and success."""
        return self._rpc_ms.series(request, response, _flag(is_long_polling), result, "remoting")

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted of a topic that is gone; gauges go with what they are read from."""
        self._forget("topic", topic)

    def forget_group(self, group: str) -> None:
        """Drop what was counted of a group that is gone."""
        self._forget("consumer_group", group)

    def _forget(self, label: str, value: str) -> None:
        for family in self._counted:
            family.forget(label, value)

    @property
    def names(self) -> list[str]:
        """The names of all metrics."""
        return [name for family in self._families for name in family.names]

    def render(self) -> Iterator[bytes]:
        """The text of all metrics, in pieces between which others may have a turn."""
        self._sources.collect()
        return render(self._families)

    def _counter(self, name: str, help_text: str, labels: Sequence[str], fixed: Mapping[str, str] | None = None) -> SeriesFamily[Count]:
        own = Labels(labels, {**self._fixed, **(fixed or {})})
        family = SeriesFamily(Metric(f"rocketmq_{name}", help_text), "counter", own, Count, series_max=self._series_max)
        self._families.append(family)
        self._counted.append(family)
        return family

    def _histogram(
        self, name: str, help_text: str, labels: Sequence[str], bounds: Sequence[int], fixed: Mapping[str, str] | None = None
    ) -> SeriesFamily[Histogram]:
        own = Labels(labels, {**self._fixed, **(fixed or {})})
        make = partial(Histogram, bounds=bounds)
        family = SeriesFamily(Metric(f"rocketmq_{name}", help_text), "histogram", own, make, series_max=self._series_max)
        self._families.append(family)
        self._counted.append(family)
        return family

    def _gauges(
        self,
        rows: Callable[[], Iterable[Row]],
        labels: Sequence[str],
        *metrics: tuple[str, str],
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        self._families.append(GaugeTable(rows, view(lambda row: row, labels, {**self._fixed, **(fixed or {})}, *metrics)))

    def _add_gauges(self, identity: Identity) -> None:
        sources, add = self._sources, self._gauges
        add(
            lambda: [((), sources.broker())],
            (),
            ("broker_permission", "Broker permission"),
            ("topic_number", "Active topic number"),
            ("consumer_group_number", "Active subscription group number"),
            ("loop_lag_milliseconds", "Longest wait for the event loop within the last minute"),
        )
        add(lambda: _pairs(sources.processor_queues()), ("processor",), ("processor_watermark", "Request processor watermark"))
        clients = "language", "version", "protocol_type"
        add(self._producers, clients, ("producer_connections", "Producer connections"))
        add(
            self._consumers,
            ("consumer_group", "language", "version", "consume_mode", "is_system", "protocol_type"),
            ("consumer_connections", "Consumer connections"),
        )
        lags = view(
            self._lag,
            ("consumer_group", "topic", "is_retry", "is_system"),
            self._fixed,
            ("consumer_lag_messages", "Consumer lag messages"),
            ("consumer_lag_latency_milliseconds", "Consumer lag time"),
            ("consumer_inflight_messages", "Consumer inflight messages"),
            ("consumer_queueing_latency_milliseconds", "Consumer queueing time"),
            ("consumer_ready_messages", "Consumer ready messages"),
        )
        self._families.append(GaugeTable(sources.lags, lags, *exporter_lag_views(identity)))
        add(
            lambda: _pairs(sources.subscription_conflicts()),
            ("consumer_group",),
            ("consumer_subscription_conflicts", "Topics that the members of a group subscribe differently"),
        )
        add(lambda: _pairs(sources.half_messages()), ("topic",), ("half_messages", "Half messages of all topics"))
        add(
            lambda: [((), sources.storage())],
            (),
            ("storage_size_bytes", "Broker storage size"),
            ("storage_flush_behind_bytes", "Broker flush behind bytes"),
            ("storage_dispatch_behind_bytes", "Broker dispatch behind bytes"),
            ("storage_message_reserve_time_milliseconds", "Broker message reserve time"),
            fixed=_STORAGE,
        )
        add(
            lambda: _one(sources.timer()),
            (),
            ("timer_enqueue_lag", "Timer enqueue messages lag"),
            ("timer_enqueue_latency_milliseconds", "Timer enqueue latency"),
            ("timer_dequeue_lag", "Timer dequeue messages lag"),
            ("timer_dequeue_latency_milliseconds", "Timer dequeue latency"),
            fixed=_STORAGE,
        )
        add(
            lambda: _pairs(sources.timing_messages()),
            ("topic",),
            ("timing_messages", "Current message number in timing"),
            fixed=_STORAGE,
        )
        add(
            lambda: _pairs(sources.timer_snapshot()),
            ("timer_bound_s",),
            ("timer_message_snapshot", "Timer message distribution snapshot, only count timing messages in 24h."),
            fixed=_STORAGE,
        )
        add(
            lambda: _one(sources.pop_buffers()),
            (),
            ("pop_offset_buffer_size", "Time number of buffered offset"),
            ("pop_checkpoint_buffer_size", "The number of buffered checkpoint"),
        )
        add(
            lambda: (((str(queue_id),), (lag, latency_ms)) for queue_id, lag, latency_ms in sources.pop_revive()),
            ("queue_id",),
            ("pop_revive_lag_milliseconds", "The processing lag of revive topic"),
            ("pop_revive_latency_milliseconds", "The processing latency of revive topic"),
        )

    def _producers(self) -> Iterable[Row]:
        tally = Tally((client.language, client.version, "remoting") for client in self._sources.producers())
        return _pairs(tally.items())

    def _consumers(self) -> Iterable[Row]:
        tally = Tally(
            (client.group, client.language, client.version, client.consume_mode, _flag(_is_system_group(client.group)), "remoting")
            for client in self._sources.consumers()
        )
        return _pairs(tally.items())

    def _lag(self, lag: Lag) -> Row | None:
        if lag.topic.startswith(RETRY_PREFIX):
            return None  # as the original has it
        labels = lag.group, lag.topic, _flag(lag.is_retry), self._is_system(lag.topic, lag.group)
        return labels, (lag.lag, lag.lag_ms, lag.inflight, lag.queueing_ms, lag.ready)

    def _is_system(self, topic: str, group: str) -> str:
        return _flag(self._sources.is_system_topic(topic) or _is_system_group(group))


def parse_labels(text: str) -> dict[str, str]:
    """The labels of metricsLabel, `name:value,name:value`; an entry of another form is left out and logged."""
    labels = {}
    for entry in filter(None, text.split(",")):
        name, colon, value = entry.partition(":")
        if not colon or ":" in value or not name.isidentifier():
            log.warning("metrics_label_ignored entry=%r: write it as name:value", entry)
            continue
        labels[name] = value
    return labels


def _is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


def _status(is_done: bool) -> str:
    return "success" if is_done else "failure"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _pairs(pairs: Iterable[tuple[tuple[str, ...] | str | int, int]]) -> Iterator[Row]:
    for key, number in pairs:
        yield key if isinstance(key, tuple) else (str(key),), (number,)


def _one(numbers: Sequence[float | None] | None) -> Iterator[Row]:
    if numbers is not None:
        yield (), numbers
