"""Counts what a broker does: the listener of those who serve sends, pulls, clients and connections.

Statistics by topic, group and queue go to `Stats`, those of the store to `StoreStats`, and all of it to `Metrics` once there are any.
Counters are looked up once for each topic, queue, or topic and group, and kept. Kernels count for themselves, in C, and hand over sums:
`collect` asks them for these, before anybody reads a figure and every second. Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.metric_text import Histogram
from orbitmq.broker.metrics import Incoming, Metrics, Outgoing
from orbitmq.broker.stats import Counter, StatName, Stats, stat_key
from orbitmq.broker.store_stats import StoreStats, Totals
from orbitmq.common.clock import Clock
from orbitmq.common.topic_names import SCHEDULE_TOPIC
from orbitmq.message.message_type import MessageType
from orbitmq.protocol.codes import RequestCode, ResponseCode

SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"  # as whom the original delivers the messages of delay levels
_ONEWAY: Final = "oneway"


class _Puts:
    """What is counted of the messages of one type that come into a topic."""

    __slots__ = ("incoming", "is_system", "numbers", "sizes")

    def __init__(self, numbers: Counter, sizes: Counter, incoming: Incoming | None, is_system: bool) -> None:
        self.numbers = numbers
        self.sizes = sizes
        self.incoming = incoming
        self.is_system = is_system


class _Gets:
    """What is counted of the messages of a topic that a group gets."""

    __slots__ = ("is_system", "numbers", "outgoing", "sizes")

    def __init__(self, numbers: Counter, sizes: Counter, outgoing: Outgoing | None, is_system: bool) -> None:
        self.numbers = numbers
        self.sizes = sizes
        self.outgoing = outgoing
        self.is_system = is_system


class Figures:
    """Counts for `Stats`, `StoreStats` and, once they are there, `metrics`. `collectors` hand over what kernels counted."""

    def __init__(self, clock: Clock, cluster: str, is_system_topic: Callable[[str], bool]) -> None:
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
        self.metrics: Metrics | None = None
        self._puts: dict[tuple[str, MessageType], _Puts] = {}
        self._gets: dict[tuple[str, str], _Gets] = {}
        self._answers: dict[tuple[int, int, bool, bool], Histogram] = {}
        self._collects = False

    @property
    def next_ms(self) -> int:
        """When to tick next, by the wall clock."""
        return min(self.stats.next_ms, self.store.next_ms)

    def tick(self, now_ms: int) -> None:
        """Take the samples that are due."""
        self.collect()
        self.stats.tick(now_ms)
        self.store.tick(now_ms)

    def collect(self) -> None:
        """Have what kernels counted; whoever reads figures calls it before."""
        if self._collects:  # who hands over may read figures
            return
        self._collects = True
        try:
            for hand_over in self.collectors:
                hand_over()
        finally:
            self._collects = False

    # -- messages that come in

    def stored(self, topic: str, count: int, size: int, message_type: MessageType = MessageType.NORMAL, puts: int = 1) -> None:
        """So many messages of that many bytes together came into a topic, in so many puts."""
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
        """So many puts took that long, each."""
        self.store.put_took(latency_ms, puts)

    def put_into_queue(self, topic: str, queue_id: int, took_ms: int, puts: int = 1) -> None:
        """So many puts of clients into a queue took that long together."""
        self.stats.counter(StatName.TOPIC_PUT_LATENCY, stat_key(queue_id, topic)).add(took_ms, puts)

    def put_into_level(self, queue_id: int, count: int, size: int) -> None:
        """So many messages, of that many bytes together, were sent that wait for the time of a delay level."""
        key = stat_key(SCHEDULE_TOPIC, queue_id)
        self.stats.counter(StatName.QUEUE_PUT_NUMS, key).add(count, count)
        self.stats.counter(StatName.QUEUE_PUT_SIZE, key).add(size, count)

    def delivered_from_level(self, queue_id: int, count: int, size: int) -> None:
        """So many messages of a delay level came to their topics."""
        key = stat_key(SCHEDULE_TOPIC, queue_id, SCHEDULE_GROUP)
        self.stats.counter(StatName.QUEUE_GET_NUMS, key).add(count, count)
        self.stats.counter(StatName.QUEUE_GET_SIZE, key).add(size, count)
        self.got(SCHEDULE_GROUP, SCHEDULE_TOPIC, count, size, count)

    def put_failed(self, latency_ms: int, puts: int = 1) -> None:
        """So many puts stored nothing."""
        self.store.put_failed(latency_ms, puts)

    def refused(self, cause: str, count: int = 1) -> None:
        """So many sends were refused because of the state the broker is in."""
        if self.metrics is not None:
            self.metrics.refused_sends.series(cause).add(count)

    def sent_back(self, topic: str, group: str) -> None:
        """A group wants a message of the topic again."""
        self.stats.counter(StatName.SNDBCK_PUT_NUMS, stat_key(topic, group)).add(1, 1)

    def dead_letter(self, topic: str, group: str) -> None:
        """A group gave up a message of the topic."""
        if self.metrics is not None:
            self.metrics.dead_letters(topic, group).add(1)

    def timed_taken_in(self, topic: str, delay_s: int) -> None:
        """A message that a topic is to get so much after it was born came into the timer's wheel."""
        if self.metrics is not None:
            self.metrics.timer_enqueued.series(topic).add(1)
            self.metrics.delay_seconds.series(topic).observe(delay_s)

    def timed_delivered(self, topic: str) -> None:
        """A message for a topic came out of the timer's wheel."""
        if self.metrics is not None:
            self.metrics.timer_dequeued.series(topic).add(1)

    # -- messages that go out

    def pulled(
        self, group: str, topic: str, queue_id: int, count: int, size: int, latency_ms: int = 0, behind_bytes: int = 0, behind_ms: int = 0
    ) -> None:
        """A group got so many messages of that many bytes together, the last of them so far behind; or looked in vain: there are none."""
        self.looked(1 if count else 0, 0 if count else 1, count, latency_ms)
        if count:
            self.got(group, topic, count, size)
            self.got_from_queue(group, topic, queue_id, latency_ms, behind_bytes, behind_ms)

    def looked(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None:
        """So many looks into queues found so many messages together, others none; none took longer than that."""
        self.store.get(found, missed, messages, latency_ms_max)

    def got(self, group: str, topic: str, count: int, size: int, gets: int = 1) -> None:
        """A group got so many messages of that many bytes together, in so many answers."""
        counters = self._gets.get((topic, group)) or self._new_gets(topic, group)
        counters.numbers.add(count, gets)
        counters.sizes.add(size, gets)
        if counters.outgoing is not None:
            counters.outgoing.add(count, size)
        self._got.add(count, 0)
        if not counters.is_system:
            self._got_by_users.add(count, 0)

    def got_from_queue(self, group: str, topic: str, queue_id: int, took_ms: int, behind_bytes: int, behind_ms: int, gets: int = 1) -> None:
        """So many answers from a queue took that long together; the last was so far behind the end of the log, and of time."""
        key = stat_key(queue_id, topic, group)
        self.stats.counter(StatName.GROUP_GET_LATENCY, key).add(took_ms, gets)
        self.stats.counter(StatName.GROUP_GET_FALL_SIZE, key).set(behind_bytes)
        self.stats.counter(StatName.GROUP_GET_FALL_TIME, key).set(behind_ms)

    # -- clients, connections and what they ask

    def consumer_registered(self, took_ms: int) -> None:
        """A consumer of a heartbeat was registered."""
        self.stats.counter(StatName.CONSUMER_REGISTER_TIME, self._cluster).add(took_ms, 1)

    def producer_registered(self, took_ms: int) -> None:
        """A producer of a heartbeat was registered."""
        self.stats.counter(StatName.PRODUCER_REGISTER_TIME, self._cluster).add(took_ms, 1)

    def channel_event(self, event: str) -> None:
        """Something became of a connection: CONNECT, CLOSE, IDLE or EXCEPTION."""
        self.stats.counter(StatName.CHANNEL_ACTIVITY, event).add(1, 1)

    def answered(
        self, request: int, response: int, took_ms: int, is_oneway: bool = False, times: int = 1, *, is_long_polling: bool = False
    ) -> None:
        """So many requests of a code were answered with that code, each after that long; one that is one-way was served."""
        if self.metrics is None:
            return
        key = request, response, is_oneway, is_long_polling
        series = self._answers.get(key)
        if series is None:
            result = _ONEWAY if is_oneway else "success"
            names = request_name(request), response_name(response)
            series = self._answers[key] = self.metrics.rpc(*names, is_long_polling=is_long_polling, result=result)
        series.observe(took_ms, times)

    def topic_made(self, took_ms: int, *, is_done: bool, is_system: bool) -> None:
        """An operator's change of topics was served, or failed."""
        if self.metrics is not None:
            self.metrics.topic_created(is_done, is_system).observe(took_ms)

    def group_made(self, took_ms: int, *, is_done: bool) -> None:
        """An operator's change of groups was served, or failed."""
        if self.metrics is not None:
            self.metrics.group_created(is_done).observe(took_ms)

    # -- what is gone

    def delete_topic(self, topic: str) -> None:
        """Forget what was counted of a topic that is gone."""
        self.collect()
        self.stats.delete_topic(topic)
        if self.metrics is not None:
            self.metrics.forget_topic(topic)
        for message_type in MessageType:
            self._puts.pop((topic, message_type), None)
        for key in [key for key in self._gets if key[0] == topic]:
            del self._gets[key]

    def delete_group(self, group: str) -> None:
        """Forget what was counted of a group that is gone."""
        self.collect()
        self.stats.delete_group(group)
        if self.metrics is not None:
            self.metrics.forget_group(group)
        for key in [key for key in self._gets if key[1] == group]:
            del self._gets[key]

    def _new_puts(self, topic: str, message_type: MessageType) -> _Puts:
        counter = self.stats.counter
        series = None if self.metrics is None else self.metrics.incoming(topic, message_type.value)
        numbers, sizes = counter(StatName.TOPIC_PUT_NUMS, topic), counter(StatName.TOPIC_PUT_SIZE, topic)
        made = self._puts[topic, message_type] = _Puts(numbers, sizes, series, self._is_system_topic(topic))
        return made

    def _new_gets(self, topic: str, group: str) -> _Gets:
        counter, key = self.stats.counter, stat_key(topic, group)
        series = None if self.metrics is None else self.metrics.outgoing(topic, group)
        numbers, sizes = counter(StatName.GROUP_GET_NUMS, key), counter(StatName.GROUP_GET_SIZE, key)
        made = self._gets[topic, group] = _Gets(numbers, sizes, series, self._is_system_topic(topic))
        return made

    def _totals(self) -> Totals:
        self.collect()
        return Totals(self._put_by_users.value, self._got_by_users.value)


def request_name(code: int) -> str:
    """A request code as the labels of metrics have it; codes that anybody may make up share one."""
    return RequestCode(code).name.lower() if code in _REQUEST_CODES else "unknown"


def response_name(code: int) -> str:
    """A response code as the labels of metrics have it."""
    return ResponseCode(code).name.lower() if code in _RESPONSE_CODES else str(code)


_REQUEST_CODES: Final = frozenset(RequestCode)
_RESPONSE_CODES: Final = frozenset(ResponseCode)
