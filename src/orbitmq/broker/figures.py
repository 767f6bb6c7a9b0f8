"""What is counted of sends and pulls: the listener of those who serve them.

Counters are looked up once for each topic, or topic and group, and kept. Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.metrics import Incoming, Metrics, Outgoing
from orbitmq.broker.stats import Counter, StatName, Stats, stat_key
from orbitmq.broker.store_stats import StoreStats, Totals

_NORMAL: Final = "normal"  # the message type of everything that is stored so far


class Figures:
    """Counts for `Stats`, `StoreStats` and, once they are there, `metrics`."""

    def __init__(self, now_ms: int, cluster: str, is_system_topic: Callable[[str], bool]) -> None:
        self.stats = Stats(now_ms)
        self.store = StoreStats(now_ms, self._totals)
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
        self._puts: dict[str, tuple[Counter, Counter, Incoming | None]] = {}
        self._gets: dict[tuple[str, str], tuple[Counter, Counter, Outgoing | None]] = {}

    @property
    def next_ms(self) -> int:
        """When to tick next, by the wall clock."""
        return min(self.stats.next_ms, self.store.next_ms)

    def tick(self, now_ms: int) -> None:
        """Take the samples that are due."""
        self.stats.tick(now_ms)
        self.store.tick(now_ms)

    def stored(self, topic: str, count: int, size: int) -> None:
        """So many messages of that many bytes together came into a topic."""
        counters = self._puts.get(topic)
        if counters is None:
            counter = self.stats.counter
            series = None if self.metrics is None else self.metrics.incoming(topic, _NORMAL)
            counters = self._puts[topic] = counter(StatName.TOPIC_PUT_NUMS, topic), counter(StatName.TOPIC_PUT_SIZE, topic), series
        numbers, sizes, incoming = counters
        numbers.add(count, count)
        sizes.add(size, count)
        if incoming is not None:
            incoming.add(count, size)
        self._put.add(count, 0)
        if not self._is_system_topic(topic):
            self._put_by_users.add(count, 0)
        self.store.put(count, size, 0)

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

    def pulled(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None:
        """A group got so many messages of that many bytes together, or looked in vain when there are none."""
        self.store.get(count, 0)
        if not count:
            return
        counters = self._gets.get((topic, group))
        if counters is None:
            counter, key = self.stats.counter, stat_key(topic, group)
            series = None if self.metrics is None else self.metrics.outgoing(topic, group)
            counters = self._gets[topic, group] = counter(StatName.GROUP_GET_NUMS, key), counter(StatName.GROUP_GET_SIZE, key), series
        numbers, sizes, outgoing = counters
        numbers.add(count, 1)
        sizes.add(size, 1)
        if outgoing is not None:
            outgoing.add(count, size)
        self._got.add(count, 0)
        if not self._is_system_topic(topic):
            self._got_by_users.add(count, 0)

    def delete_topic(self, topic: str) -> None:
        """Forget what was counted of a topic that is gone."""
        self.stats.delete_topic(topic)
        if self.metrics is not None:
            self.metrics.forget_topic(topic)
        self._puts.pop(topic, None)
        for key in [key for key in self._gets if key[0] == topic]:
            del self._gets[key]

    def delete_group(self, group: str) -> None:
        """Forget what was counted of a group that is gone."""
        self.stats.delete_group(group)
        if self.metrics is not None:
            self.metrics.forget_group(group)
        for key in [key for key in self._gets if key[1] == group]:
            del self._gets[key]

    def _totals(self) -> Totals:
        return Totals(self._put_by_users.value, self._got_by_users.value)
