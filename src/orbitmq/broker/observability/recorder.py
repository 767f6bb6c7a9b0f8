"""Records the activity of a broker: the listener of sends, pulls, clients and connections.

Statistics by topic, group and queue go to `Stats`, those of the store to `StoreStats`, and all of
them to `Metrics` once it exists. Counters are looked up once per topic, or topic and group, and
cached. Kernels count in C and hand over sums: `collect` requests them every second, and before
statistics are read. Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.observability.instruments import Incoming, Instruments, Outgoing
from orbitmq.broker.observability.metric_text import Histogram
from orbitmq.broker.observability.stats import Counter, StatName, Stats, stat_key
from orbitmq.broker.observability.store_stats import StoreStats, Totals
from orbitmq.common.clock import Clock
from orbitmq.common.topic_names import SCHEDULE_TOPIC
from orbitmq.message.message_type import MessageType
from orbitmq.protocol.codes import RequestCode, ResponseCode

# The group under which Apache RocketMQ delivers messages of delay levels.
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
_ONEWAY: Final = "oneway"


class _Puts:
    """The counters of one topic's incoming messages of one type."""

    __slots__ = ("incoming", "is_system", "numbers", "sizes")

    def __init__(
        self, numbers: Counter, sizes: Counter, incoming: Incoming | None, is_system: bool
    ) -> None:
        self.numbers = numbers
        self.sizes = sizes
        self.incoming = incoming
        self.is_system = is_system


class _Gets:
    """The counters of one group's reads of a topic."""

    __slots__ = ("is_system", "numbers", "outgoing", "sizes")

    def __init__(
        self, numbers: Counter, sizes: Counter, outgoing: Outgoing | None, is_system: bool
    ) -> None:
        self.numbers = numbers
        self.sizes = sizes
        self.outgoing = outgoing
        self.is_system = is_system


class StatsRecorder:
    """Updates `stats`, `store` and the instruments of metrics. `collectors` hand over the counts of
    kernels.
    """

    def __init__(
        self,
        clock: Clock,
        cluster: str,
        is_system_topic: Callable[[str], bool],
        instruments: Instruments,
    ) -> None:
        self.collectors: list[Callable[[], object]] = []
        self.monotonic_ms = clock.monotonic_ms
        self.stats = Stats(clock.now_ms(), collect=self.collect)
        self.store = StoreStats(clock.now_ms(), self._totals)
        self._cluster = cluster
        self._is_system_topic = is_system_topic
        self._put, self._got, self._put_by_users, self._got_by_users = (
            self.stats.counter(name, cluster)
            for name in (
                StatName.BROKER_PUT_NUMS,
                StatName.BROKER_GET_NUMS,
                StatName.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
                StatName.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
            )
        )
        self._instruments = instruments
        self._puts: dict[tuple[str, MessageType], _Puts] = {}
        self._gets: dict[tuple[str, str], _Gets] = {}
        self._replies: dict[tuple[int, int, bool, bool], Histogram] = {}
        self._is_collecting = False

    @property
    def next_ms(self) -> int:
        """Return when the next tick is due, by the wall clock."""
        return min(self.stats.next_ms, self.store.next_ms)

    def tick(self, now_ms: int) -> None:
        """Take the samples that are due."""
        self.collect()
        self.stats.tick(now_ms)
        self.store.tick(now_ms)

    def collect(self) -> None:
        """Collect the counts of kernels; called before statistics are read."""
        if self._is_collecting:  # a collector may read statistics itself
            return
        self._is_collecting = True
        try:
            for hand_over in self.collectors:
                hand_over()
        finally:
            self._is_collecting = False

    # -- incoming messages

    def stored(
        self,
        topic: str,
        count: int,
        size: int,
        message_type: MessageType = MessageType.NORMAL,
        puts: int = 1,
    ) -> None:
        """Count messages that `puts` writes stored in a topic; `size` is their total in bytes."""
        counters = self._puts.get((topic, message_type)) or self._new_puts(topic, message_type)
        counters.numbers.add(count, count)
        counters.sizes.add(size, count)
        if counters.incoming is not None:
            counters.incoming.add(count, size, puts)
        self._put.add(count, 0)
        if not counters.is_system:
            self._put_by_users.add(count, 0)
        self.store.put(count, size)

    def put_took(self, latency_ms: int, puts: int = 1) -> None:
        """Count the latency of each of `puts` writes."""
        self.store.put_took(latency_ms, puts)

    def put_into_queue(self, topic: str, queue_id: int, took_ms: int, puts: int = 1) -> None:
        """Count the total latency of `puts` client writes to a queue."""
        self.stats.counter(StatName.TOPIC_PUT_LATENCY, stat_key(queue_id, topic)).add(took_ms, puts)

    def put_into_level(self, queue_id: int, count: int, size: int) -> None:
        """Count messages deferred by a delay level; `size` is their total in bytes."""
        key = stat_key(SCHEDULE_TOPIC, queue_id)
        self.stats.counter(StatName.QUEUE_PUT_NUMS, key).add(count, count)
        self.stats.counter(StatName.QUEUE_PUT_SIZE, key).add(size, count)

    def delivered_from_level(self, queue_id: int, count: int, size: int) -> None:
        """Count messages that a delay level delivered to their topics."""
        key = stat_key(SCHEDULE_TOPIC, queue_id, SCHEDULE_GROUP)
        self.stats.counter(StatName.QUEUE_GET_NUMS, key).add(count, count)
        self.stats.counter(StatName.QUEUE_GET_SIZE, key).add(size, count)
        self.got(SCHEDULE_GROUP, SCHEDULE_TOPIC, count, size, count)

    def put_failed(self, latency_ms: int, puts: int = 1) -> None:
        """Count writes that stored nothing."""
        self.store.put_failed(latency_ms, puts)

    def refused(self, cause: str, count: int = 1) -> None:
        """Count sends refused because of the broker's state."""
        self._instruments.refused_sends.series(cause).add(count)

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message of the topic that a group sent back."""
        self.stats.counter(StatName.SNDBCK_PUT_NUMS, stat_key(topic, group)).add(1, 1)

    def dead_letter(self, topic: str, group: str) -> None:
        """Count a message of the topic that became a dead letter of a group."""
        self._instruments.dead_letters(topic, group).add(1)

    def timed_taken_in(self, topic: str, delay_s: int) -> None:
        """Count a timed message that entered the wheel, and its delay since birth."""
        self._instruments.timer_enqueued.series(topic).add(1)
        self._instruments.delay_seconds.series(topic).observe(delay_s)

    def timed_delivered(self, topic: str) -> None:
        """Count a timed message that left the wheel."""
        self._instruments.timer_dequeued.series(topic).add(1)

    # -- outgoing messages

    def pulled(
        self,
        group: str,
        topic: str,
        queue_id: int,
        count: int,
        size: int,
        latency_ms: int = 0,
        behind_bytes: int = 0,
        behind_ms: int = 0,
    ) -> None:
        """Count one read of a group: its messages, their total size, and the lag of the last one.
        A read without messages counts as a miss.
        """
        self.looked(1 if count else 0, 0 if count else 1, count, latency_ms)
        if count:
            self.got(group, topic, count, size)
            self.got_from_queue(group, topic, queue_id, latency_ms, behind_bytes, behind_ms)

    def looked(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None:
        """Count `found` reads with messages and `missed` reads without, and the longest
        latency.
        """
        self.store.get(found, missed, messages, latency_ms_max)

    def got(self, group: str, topic: str, count: int, size: int, gets: int = 1) -> None:
        """Count messages that a group got in `gets` replies; `size` is their total in bytes."""
        counters = self._gets.get((topic, group)) or self._new_gets(topic, group)
        counters.numbers.add(count, gets)
        counters.sizes.add(size, gets)
        if counters.outgoing is not None:
            counters.outgoing.add(count, size)
        self._got.add(count, 0)
        if not counters.is_system:
            self._got_by_users.add(count, 0)

    def got_from_queue(
        self,
        group: str,
        topic: str,
        queue_id: int,
        took_ms: int,
        behind_bytes: int,
        behind_ms: int,
        gets: int = 1,
    ) -> None:
        """Count the total latency of `gets` replies from a queue, and the distance of the last one
        from the end of the log, in bytes and in time.
        """
        key = stat_key(queue_id, topic, group)
        self.stats.counter(StatName.GROUP_GET_LATENCY, key).add(took_ms, gets)
        self.stats.counter(StatName.GROUP_GET_FALL_SIZE, key).set(behind_bytes)
        self.stats.counter(StatName.GROUP_GET_FALL_TIME, key).set(behind_ms)

    # -- clients, connections and requests

    def consumer_registered(self, took_ms: int) -> None:
        """Count a consumer registered by a heartbeat."""
        self.stats.counter(StatName.CONSUMER_REGISTER_TIME, self._cluster).add(took_ms, 1)

    def producer_registered(self, took_ms: int) -> None:
        """Count a producer registered by a heartbeat."""
        self.stats.counter(StatName.PRODUCER_REGISTER_TIME, self._cluster).add(took_ms, 1)

    def channel_event(self, event: str) -> None:
        """Count a connection event: CONNECT, CLOSE, IDLE or EXCEPTION."""
        self.stats.counter(StatName.CHANNEL_ACTIVITY, event).add(1, 1)

    def answered(
        self,
        request: int,
        response: int,
        took_ms: int,
        is_oneway: bool = False,
        times: int = 1,
        *,
        is_long_polling: bool = False,
    ) -> None:
        """Count `times` replies of this latency, by request and response code; a one-way request
        counts once it is handled.
        """
        key = request, response, is_oneway, is_long_polling
        series = self._replies.get(key)
        if series is None:
            result = _ONEWAY if is_oneway else "success"
            names = request_name(request), response_name(response)
            series = self._replies[key] = self._instruments.rpc(
                *names, is_long_polling=is_long_polling, result=result
            )
        series.observe(took_ms, times)

    def topic_made(self, took_ms: int, *, is_done: bool, is_system: bool) -> None:
        """Count an operator's topic change, successful or not."""
        self._instruments.topic_created(is_done, is_system).observe(took_ms)

    def group_made(self, took_ms: int, *, is_done: bool) -> None:
        """Count an operator's group change, successful or not."""
        self._instruments.group_created(is_done).observe(took_ms)

    # -- deletions

    def delete_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self.collect()
        self.stats.delete_topic(topic)
        self._instruments.forget_topic(topic)
        for message_type in MessageType:
            self._puts.pop((topic, message_type), None)
        for key in [key for key in self._gets if key[0] == topic]:
            del self._gets[key]

    def delete_group(self, group: str) -> None:
        """Drop the counters of a deleted group."""
        self.collect()
        self.stats.delete_group(group)
        self._instruments.forget_group(group)
        for key in [key for key in self._gets if key[1] == group]:
            del self._gets[key]

    def _new_puts(self, topic: str, message_type: MessageType) -> _Puts:
        counter = self.stats.counter
        series = self._instruments.incoming(topic, message_type.value)
        numbers, sizes = (
            counter(StatName.TOPIC_PUT_NUMS, topic),
            counter(StatName.TOPIC_PUT_SIZE, topic),
        )
        made = self._puts[topic, message_type] = _Puts(
            numbers, sizes, series, self._is_system_topic(topic)
        )
        return made

    def _new_gets(self, topic: str, group: str) -> _Gets:
        counter, key = self.stats.counter, stat_key(topic, group)
        series = self._instruments.outgoing(topic, group)
        numbers, sizes = (
            counter(StatName.GROUP_GET_NUMS, key),
            counter(StatName.GROUP_GET_SIZE, key),
        )
        made = self._gets[topic, group] = _Gets(
            numbers, sizes, series, self._is_system_topic(topic)
        )
        return made

    def _totals(self) -> Totals:
        self.collect()
        return Totals(self._put_by_users.value, self._got_by_users.value)


def request_name(code: int) -> str:
    """Return the label value of a request code; unknown codes share one."""
    return RequestCode(code).name.lower() if code in _REQUEST_CODES else "unknown"


def response_name(code: int) -> str:
    """Return the label value of a response code."""
    return ResponseCode(code).name.lower() if code in _RESPONSE_CODES else str(code)


_REQUEST_CODES: Final = frozenset(RequestCode)
_RESPONSE_CODES: Final = frozenset(ResponseCode)
