"""The counters and histograms of a broker, under the names and labels that RocketMQ 5.5.0 exports.

Those who count keep a series and count in it. `Metrics` renders them together with the gauges.
Every series has the labels cluster, node_type, node_id, otel_scope_name and those of metricsLabel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from orbitmq.broker.observability.metric_sources import Identity
from orbitmq.broker.observability.metric_text import (
    SERIES_MAX,
    Count,
    Histogram,
    Metric,
    S,
    SeriesFamily,
)
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX

MESSAGE_SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
RPC_BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
CREATE_BOUNDS_MS: Final = (10, 100, 1000, 3000, 5000)
FINISH_BOUNDS_S: Final = (5, 60, 600, 3600, 43_200, 86_400)
DELAY_BOUNDS_S: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
SCAN_BOUNDS_MS: Final = (1, 10, 100, 1000, 2000, 3000)

STORAGE_LABELS: Final[Mapping[str, str]] = {"storage_type": "local", "storage_medium": "disk"}
NO_LABELS: Final[Mapping[str, str]] = {}


class Incoming(NamedTuple):
    """The series of incoming messages of one topic and message type."""

    messages: Count
    size: Count
    sizes: Histogram

    def add(self, messages: int, size: int, puts: int = 1) -> None:
        """Count `puts` writes with this many messages and bytes in total."""
        self.messages.add(messages)
        self.size.add(size)
        self.sizes.observe(size // messages, puts)


class Outgoing(NamedTuple):
    """The series of outgoing messages of one topic and group."""

    messages: Count
    size: Count

    def add(self, messages: int, size: int) -> None:
        """Count the content of one reply."""
        self.messages.add(messages)
        self.size.add(size)


class Instruments:
    """All counters and histograms of a broker."""

    def __init__(
        self,
        identity: Identity,
        is_system_topic: Callable[[str], bool],
        *,
        series_max: int = SERIES_MAX,
    ) -> None:
        self._is_system_topic = is_system_topic
        self._fixed = fixed_labels(identity)
        self._series_max = series_max
        self.families: list[SeriesFamily[Any]] = []
        counter, histogram = self._counter, self._histogram
        topic_and_type = ("topic", "message_type", "is_system")
        topic_and_group = ("topic", "consumer_group", "is_system")
        revived = ("consumer_group", "topic", "revive_message_type")
        self._messages_in = counter(
            "messages_in_total", "Total number of incoming messages", topic_and_type
        )
        self._bytes_in = counter(
            "throughput_in_total", "Total traffic of incoming messages", topic_and_type
        )
        self._sizes_in = histogram(
            "message_size", "Incoming messages size", topic_and_type, MESSAGE_SIZE_BOUNDS
        )
        self._messages_out = counter(
            "messages_out_total", "Total number of outgoing messages", topic_and_group
        )
        self._bytes_out = counter(
            "throughput_out_total", "Total traffic of outgoing messages", topic_and_group
        )
        self.refused_sends = counter(
            "send_refused_total",
            "Total number of sends refused because of the broker's state",
            ("cause",),
        )
        self._dead_letters = counter(
            "send_to_dlq_messages_total", "Consumer send to DLQ messages", topic_and_group
        )
        self.commits = counter(
            "commit_messages_total", "Total number of commit messages", ("topic",)
        )
        self.rollbacks = counter(
            "rollback_messages_total", "Total number of rollback messages", ("topic",)
        )
        # Seconds despite its name, as in Apache RocketMQ.
        self.finish_seconds = histogram(
            "finish_message_latency_milliseconds",
            "Transaction finish latency in seconds",
            ("topic",),
            FINISH_BOUNDS_S,
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
        self.timer_enqueued = counter(
            "timer_enqueue_total", "Total number of timer enqueue", ("topic",), STORAGE_LABELS
        )
        self.timer_dequeued = counter(
            "timer_dequeue_total", "Total number of timer dequeue", ("topic",), STORAGE_LABELS
        )
        self.delay_seconds = histogram(
            "delay_message_latency_seconds",
            "Timer message set latency distribution",
            ("topic",),
            DELAY_BOUNDS_S,
            STORAGE_LABELS,
        )
        self.pop_scan_ms = histogram(
            "pop_buffer_scan_time_consume_milliseconds",
            "Time consuming of pop buffer scan",
            (),
            SCAN_BOUNDS_MS,
        )
        self.revive_put = counter(
            "pop_revive_in_message_total",
            "Total number of put message to revive topic",
            (*revived, "put_status"),
        )
        self.revive_got = counter(
            "pop_revive_out_message_total",
            "Total number of get message from revive topic",
            (*revived, "queue_id"),
        )
        self.revive_retried = counter(
            "pop_revive_retry_messages_total",
            "Total number of put message to pop retry topic",
            ("consumer_group", "topic", "put_status"),
        )

    def topic_created(self, is_done: bool, is_system: bool) -> Histogram:
        """Return the series of the latency of operators' topic changes."""
        return self._topic_create_ms.series(_status(is_done), flag(is_system))

    def group_created(self, is_done: bool) -> Histogram:
        """Return the series of the latency of operators' group changes."""
        return self._group_create_ms.series(_status(is_done))

    def incoming(self, topic: str, message_type: str) -> Incoming | None:
        """Return the series to count sends to a topic in; None for retry and dead-letter topics,
        which have none.
        """
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return None
        labels = topic, message_type, flag(self._is_system_topic(topic))
        return Incoming(
            self._messages_in.series(*labels),
            self._bytes_in.series(*labels),
            self._sizes_in.series(*labels),
        )

    def outgoing(self, topic: str, group: str) -> Outgoing:
        """Return the series to count a group's reads of a topic in."""
        labels = topic, group, system_flag(self._is_system_topic, topic, group)
        return Outgoing(self._messages_out.series(*labels), self._bytes_out.series(*labels))

    def dead_letters(self, topic: str, group: str) -> Count:
        """Return the series of a topic's messages that became dead letters of a group."""
        return self._dead_letters.series(
            topic, group, system_flag(self._is_system_topic, topic, group)
        )

    def rpc(
        self, request: str, response: str, *, is_long_polling: bool = False, result: str = "success"
    ) -> Histogram:
        """Return the series of one kind of reply; codes are given by name, such as send_message_v2
        and success.
        """
        return self._rpc_ms.series(request, response, flag(is_long_polling), result, "remoting")

    def forget_topic(self, topic: str) -> None:
        """Drop the series of a deleted topic; its gauges vanish with their rows."""
        self._forget("topic", topic)

    def forget_group(self, group: str) -> None:
        """Drop the series of a deleted group."""
        self._forget("consumer_group", group)

    def _forget(self, label: str, value: str) -> None:
        for family in self.families:
            family.forget(label, value)

    def _counter(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...],
        fixed: Mapping[str, str] = NO_LABELS,
    ) -> SeriesFamily[Count]:
        return self._add_series(Metric(name, "counter", help_text, labels), fixed, Count)

    def _histogram(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...],
        bounds: Sequence[int],
        fixed: Mapping[str, str] = NO_LABELS,
    ) -> SeriesFamily[Histogram]:
        make = partial(Histogram, bounds=bounds)
        return self._add_series(Metric(name, "histogram", help_text, labels), fixed, make)

    def _add_series(
        self, metric: Metric, fixed: Mapping[str, str], make: Callable[[str], S]
    ) -> SeriesFamily[S]:
        family = SeriesFamily(
            metric._replace(name=f"rocketmq_{metric.name}"),
            {**self._fixed, **fixed},
            make,
            series_max=self._series_max,
        )
        self.families.append(family)
        return family


def fixed_labels(identity: Identity) -> dict[str, str]:
    """Return the labels that every series of a broker has."""
    return {
        **identity.labels,
        "cluster": identity.cluster,
        "node_type": "broker",
        "node_id": identity.broker_name,
        "otel_scope_name": "broker-meter",
    }


def system_flag(is_system_topic: Callable[[str], bool], topic: str, group: str) -> str:
    """Return the label that tells series of system topics and groups apart."""
    return flag(is_system_topic(topic) or is_system_group(group))


def is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


def flag(value: bool) -> str:
    return "true" if value else "false"


def _status(is_done: bool) -> str:
    return "success" if is_done else "failure"
