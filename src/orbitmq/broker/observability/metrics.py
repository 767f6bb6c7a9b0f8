"""The metrics of a broker, under the names, types and labels that RocketMQ 5.5.0 exports with
metricsExporterType=PROM.

Knows neither the broker nor its store: it reads gauges from the callables of `Sources` on each
scrape, and renders the counters and histograms of `Instruments`. `exporter_metrics` adds the names
of Apache's older exporter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from orbitmq.broker.observability.exporter_metrics import exporter_families, exporter_lag_views
from orbitmq.broker.observability.instruments import (
    NO_LABELS,
    STORAGE_LABELS,
    Instruments,
    fixed_labels,
    flag,
    is_system_group,
    system_flag,
)
from orbitmq.broker.observability.metric_sources import Identity, Lag, Sources
from orbitmq.broker.observability.metric_text import (
    Family,
    GaugeTable,
    Metric,
    Row,
    gauge_table,
    render,
    tally,
    view,
)
from orbitmq.common.topic_names import RETRY_PREFIX

log = logging.getLogger(__name__)


class Metrics:
    """All metrics of a broker."""

    def __init__(self, identity: Identity, sources: Sources, instruments: Instruments) -> None:
        self._sources = sources
        self._fixed = fixed_labels(identity)
        self._families: list[Family] = []
        self._add_gauges(identity)
        self._families += instruments.families
        self._families += exporter_families(identity, sources)

    def declared(self) -> list[Metric]:
        """Return the description of every metric."""
        return [metric for family in self._families for metric in family.metrics]

    def render(self) -> Iterator[bytes]:
        """Yield the text of all metrics in pieces; the loop can serve clients in between."""
        self._sources.collect()
        return render(self._families)

    def _gauges(
        self,
        rows: Callable[[], Iterable[Row | None]],
        labels: Sequence[str],
        *metrics: tuple[str, str],
        fixed: Mapping[str, str] = NO_LABELS,
    ) -> None:
        self._families.append(gauge_table(rows, labels, {**self._fixed, **fixed}, *metrics))

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
        add(
            lambda: _pairs(sources.processor_queues()),
            ("processor",),
            ("processor_watermark", "Request processor watermark"),
        )
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
            (
                "consumer_subscription_conflicts",
                "Topics that the members of a group subscribe differently",
            ),
        )
        add(
            lambda: _pairs(sources.half_messages()),
            ("topic",),
            ("half_messages", "Half messages of all topics"),
        )
        add(
            lambda: [((), sources.storage())],
            (),
            ("storage_size_bytes", "Broker storage size"),
            ("storage_flush_behind_bytes", "Broker flush behind bytes"),
            ("storage_dispatch_behind_bytes", "Broker dispatch behind bytes"),
            ("storage_message_reserve_time_milliseconds", "Broker message reserve time"),
            fixed=STORAGE_LABELS,
        )
        add(
            lambda: _one(sources.timer()),
            (),
            ("timer_enqueue_lag", "Timer enqueue messages lag"),
            ("timer_enqueue_latency_milliseconds", "Timer enqueue latency"),
            ("timer_dequeue_lag", "Timer dequeue messages lag"),
            ("timer_dequeue_latency_milliseconds", "Timer dequeue latency"),
            fixed=STORAGE_LABELS,
        )
        add(
            lambda: _pairs(sources.timing_messages()),
            ("topic",),
            ("timing_messages", "Current message number in timing"),
            fixed=STORAGE_LABELS,
        )
        add(
            lambda: _pairs(sources.timer_snapshot()),
            ("timer_bound_s",),
            (
                "timer_message_snapshot",
                "Timer message distribution snapshot, only count timing messages in 24h.",
            ),
            fixed=STORAGE_LABELS,
        )
        add(
            lambda: _one(sources.pop_buffers()),
            (),
            ("pop_offset_buffer_size", "Time number of buffered offset"),
            ("pop_checkpoint_buffer_size", "The number of buffered checkpoint"),
        )
        add(
            lambda: (
                ((str(queue_id),), (lag, latency_ms))
                for queue_id, lag, latency_ms in sources.pop_revive()
            ),
            ("queue_id",),
            ("pop_revive_lag_milliseconds", "The processing lag of revive topic"),
            ("pop_revive_latency_milliseconds", "The processing latency of revive topic"),
        )

    def _producers(self) -> Iterator[Row | None]:
        return tally(
            (client.language, client.version, "remoting") for client in self._sources.producers()
        )

    def _consumers(self) -> Iterator[Row | None]:
        return tally(
            (
                client.group,
                client.language,
                client.version,
                client.consume_mode,
                flag(is_system_group(client.group)),
                "remoting",
            )
            for client in self._sources.consumers()
        )

    def _lag(self, lag: Lag) -> Row | None:
        if lag.topic.startswith(RETRY_PREFIX):
            return None  # as in Apache RocketMQ
        labels = (
            lag.group,
            lag.topic,
            flag(lag.is_retry),
            system_flag(self._sources.is_system_topic, lag.topic, lag.group),
        )
        return labels, (lag.lag, lag.lag_ms, lag.inflight, lag.queueing_ms, lag.ready)


def parse_labels(text: str) -> dict[str, str]:
    """Parse metricsLabel, `name:value,name:value`; malformed entries are logged and ignored."""
    labels = {}
    for entry in filter(None, text.split(",")):
        name, colon, value = entry.partition(":")
        if not colon or ":" in value or not name.isidentifier():
            log.warning("metrics_label_ignored entry=%r: write it as name:value", entry)
            continue
        labels[name] = value
    return labels


def _pairs(pairs: Iterable[tuple[str | int, int]]) -> Iterator[Row]:
    for key, number in pairs:
        yield (str(key),), (number,)


def _one(numbers: Sequence[float | None] | None) -> Iterator[Row]:
    if numbers is not None:
        yield (), numbers
