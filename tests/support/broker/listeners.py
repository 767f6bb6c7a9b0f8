"""A listener of sends, pulls, clients and operators that hears everything, and counts nothing."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.observability.instruments import Instruments
from orbitmq.broker.observability.metric_sources import Identity
from orbitmq.broker.observability.recorder import StatsRecorder
from orbitmq.common.clock import Clock
from orbitmq.message.message_type import MessageType


class Unheard:
    """Stands where processors need somebody who counts; tests overwrite what they want to hear."""

    def __init__(self) -> None:
        self.collectors: list[Callable[[], object]] = []

    def monotonic_ms(self) -> int:
        return 0

    def stored(
        self,
        topic: str,
        count: int,
        size: int,
        message_type: MessageType = MessageType.NORMAL,
        puts: int = 1,
    ) -> None: ...
    def put_took(self, latency_ms: int, puts: int = 1) -> None: ...
    def put_into_queue(self, topic: str, queue_id: int, took_ms: int, puts: int = 1) -> None: ...
    def put_into_level(self, queue_id: int, count: int, size: int) -> None: ...
    def delivered_from_level(self, queue_id: int, count: int, size: int) -> None: ...
    def put_failed(self, latency_ms: int, puts: int = 1) -> None: ...
    def refused(self, cause: str, count: int = 1) -> None: ...
    def dead_letter(self, topic: str, group: str) -> None: ...
    def answered(
        self,
        request: int,
        response: int,
        took_ms: int,
        is_oneway: bool = False,
        times: int = 1,
        *,
        is_long_polling: bool = False,
    ) -> None: ...
    def consumer_registered(self, took_ms: int) -> None: ...
    def producer_registered(self, took_ms: int) -> None: ...
    def topic_made(self, took_ms: int, *, is_done: bool, is_system: bool) -> None: ...
    def group_made(self, took_ms: int, *, is_done: bool) -> None: ...
    def looked(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None: ...
    def got(self, group: str, topic: str, count: int, size: int, gets: int = 1) -> None: ...
    def got_from_queue(
        self,
        group: str,
        topic: str,
        queue_id: int,
        took_ms: int,
        behind_bytes: int,
        behind_ms: int,
        gets: int = 1,
    ) -> None: ...


def instruments(
    is_system_topic: Callable[[str], bool] = lambda _topic: False, **limits: int
) -> Instruments:
    """The counters and histograms of a broker."""
    identity = Identity(
        cluster="DefaultCluster", broker_name="broker-a", address="127.0.0.1:10911", labels={}
    )
    return Instruments(identity, is_system_topic, **limits)


def stats_recorder(
    clock: Clock, is_system_topic: Callable[[str], bool] = lambda _topic: False
) -> StatsRecorder:
    """The statistics of a broker."""
    return StatsRecorder(clock, "DefaultCluster", is_system_topic, instruments(is_system_topic))
