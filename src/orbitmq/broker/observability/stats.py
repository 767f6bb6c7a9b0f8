"""Statistics by topic, group and queue: counters, sampled into windows of a minute, an hour and a
day (Apache RocketMQ's BrokerStatsManager).

A counter has two sums, of values and of calls. Both are sampled every 10 s, 10 min and 1 h into
windows that keep the last 7, 7 and 25 samples; a window reports the difference of its last and
first sample. A window starts with zeros one interval before its first sample. `stat_key` makes the
keys; their parts have the order that Apache RocketMQ and its tools use.

Sans-IO: `now_ms` is an argument. Frequent callers keep the Counter, whose `add` is two additions. A
counter that was removed (idle for a day, or its topic or group was deleted) starts over at zero; if
a caller still holds it and counts, it is registered again, so callers need not look it up twice.

Invariants: there are at most `counters_max` counters, plus one per name that counts all further
keys; a tick takes a bounded number of samples, and `next_ms` is the time of the next tick.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from orbitmq.protocol.bodies.stats import StatsView, StatsWindow

COUNTERS_MAX: Final = 100_000  # about 1.6 kB each
COUNTERS_PER_TICK_MAX: Final = 2_000
IDLE_MS_MAX: Final = 86_400_000
OTHER_KEY: Final = "(other)"  # not a valid topic or group name

log = logging.getLogger(__name__)


class StatName(StrEnum):
    """The names of statistics; the comments give the parts of their keys."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"  # topic
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"  # topic
    TOPIC_PUT_LATENCY = "TOPIC_PUT_LATENCY"  # queue id, topic
    QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"  # topic, queue id
    QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"  # topic, queue id
    QUEUE_GET_NUMS = "QUEUE_GET_NUMS"  # topic, queue id, group
    QUEUE_GET_SIZE = "QUEUE_GET_SIZE"  # topic, queue id, group
    GROUP_GET_NUMS = "GROUP_GET_NUMS"  # topic, group
    GROUP_GET_SIZE = "GROUP_GET_SIZE"  # topic, group
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"  # queue id, topic, group
    GROUP_GET_FALL_SIZE = (  # queue id, topic, group; the latest value, not a sum
        "GROUP_GET_FALL_SIZE"
    )
    GROUP_GET_FALL_TIME = (  # queue id, topic, group; the latest value, not a sum
        "GROUP_GET_FALL_TIME"
    )
    GROUP_ACK_NUMS = "GROUP_ACK_NUMS"  # topic, group
    GROUP_CK_NUMS = "GROUP_CK_NUMS"  # topic, group
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"  # topic, group
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"  # cluster, as all below
    BROKER_GET_NUMS = "BROKER_GET_NUMS"
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"
    BROKER_ACK_NUMS = "BROKER_ACK_NUMS"
    BROKER_CK_NUMS = "BROKER_CK_NUMS"
    CONSUMER_REGISTER_TIME = "CONSUMER_REGISTER_TIME"
    PRODUCER_REGISTER_TIME = "PRODUCER_REGISTER_TIME"
    CHANNEL_ACTIVITY = "CHANNEL_ACTIVITY"  # CONNECT, CLOSE, IDLE or EXCEPTION


_LATEST_VALUES: Final = frozenset({StatName.GROUP_GET_FALL_SIZE, StatName.GROUP_GET_FALL_TIME})
# The position of the topic in the key, counted from the end where a leading queue id is optional.
_TOPIC_AT: Final = {
    **dict.fromkeys(
        (name for name in StatName if name.startswith(("TOPIC_PUT", "QUEUE", "SNDBCK"))), 0
    ),
    **dict.fromkeys((name for name in StatName if name.startswith("GROUP")), -2),
    StatName.TOPIC_PUT_LATENCY: -1,
}
_GROUP_AT: Final = dict.fromkeys(
    (name for name in StatName if name.startswith(("GROUP", "SNDBCK", "QUEUE_GET"))), -1
)
_PERMANENT: Final = frozenset(StatName) - _TOPIC_AT.keys()  # few, so neither limited nor removed


class _Window(NamedTuple):
    at: int
    interval_ms: int
    samples_max: int


MINUTE: Final = _Window(0, 10_000, 7)
HOUR: Final = _Window(1, 600_000, 7)
DAY: Final = _Window(2, 3_600_000, 25)
_WINDOWS: Final = (MINUTE, HOUR, DAY)
_FIELDS: Final = 3  # of a sample: time, value, times


def stat_key(*parts: str | int) -> str:
    """Join the parts of a key."""
    return "@".join(map(str, parts))


def _no_samples() -> tuple[array[int], array[int], array[int]]:
    return array("q"), array("q"), array("q")  # by window; flat, to save memory


class Counter:
    """The sums of one name and key. Both only grow, unless the counter holds a latest value
    (`set`).
    """

    __slots__ = ("__weakref__", "changed_ms", "key", "name", "samples", "times", "value")

    def __init__(self, name: StatName, key: str, now_ms: int) -> None:
        self.name = name
        self.key = key
        self.changed_ms = now_ms
        self.reset()

    def reset(self) -> None:
        """Start over at zero."""
        self.value = 0
        self.times = 0
        self.samples = _no_samples()

    def add(self, value: int, times: int = 1) -> None:
        """Count `times` calls with `value` in total."""
        self.value += value
        self.times += times

    def set(self, value: int) -> None:
        """Set the latest value."""
        self.value = value
        self.times += 1

    def window(self, window: _Window) -> StatsWindow:
        """Return sum, rate and average of a window; zeros before its first sample."""
        samples = self.samples[window.at]
        if not samples:
            return StatsWindow()
        elapsed_ms = samples[-3] - samples[0]
        total = samples[-2] - samples[1]
        times = samples[-1] - samples[2]
        return StatsWindow(
            total,
            total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
            total / times if times > 0 else 0.0,
        )

    def sample(self, window: _Window, now_ms: int) -> None:
        """Add a sample to the window."""
        samples = self.samples[window.at]
        if window is MINUTE and self._is_changed():
            self.changed_ms = now_ms
        if not samples:
            samples.extend((now_ms - window.interval_ms, 0, 0))
        samples.extend((now_ms, self.value, self.times))
        if len(samples) > window.samples_max * _FIELDS:
            del samples[:_FIELDS]

    def is_idle_since(self, at_ms: int) -> bool:
        """Return whether the counter has not changed since that time."""
        return self.changed_ms < at_ms and not self._is_changed()

    def _is_changed(self) -> bool:
        samples = self.samples[MINUTE.at]
        return not samples or samples[-2] != self.value or samples[-1] != self.times


class Stats:
    """All counters. `collect` is called before a counter is read, so that kernels hand over their
    counts.
    """

    def __init__(
        self,
        now_ms: int,
        *,
        counters_max: int = COUNTERS_MAX,
        idle_ms_max: int | None = IDLE_MS_MAX,
        collect: Callable[[], object] = lambda: None,
    ) -> None:
        self._collect = collect
        self._counters_max = counters_max
        self._idle_ms_max = idle_ms_max
        self._counters: dict[str, dict[str, Counter]] = {name: {} for name in StatName}
        self._removed: WeakValueDictionary[tuple[str, str], Counter] = WeakValueDictionary()
        self._is_full = False
        self._now_ms = now_ms
        self._due_ms = [now_ms + window.interval_ms for window in _WINDOWS]
        self._passes: deque[tuple[_Window, Iterator[Counter]]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._counters.values()))

    def counter(self, name: StatName, key: str) -> Counter:
        """Return the counter to keep and add to; the shared one of `OTHER_KEY` if there are too
        many.
        """
        counter = self._counters[name].get(key)
        if counter is None:
            counter = self._removed.pop((name, key), None)
            if counter is None:
                if len(self) + len(self._removed) >= self._counters_max and name not in _PERMANENT:
                    return self._other(name)
                counter = Counter(name, key, self._now_ms)
            self._register(counter)
        return counter

    def all_of(self, name: StatName) -> list[tuple[str, Counter]]:
        """Return all keys of a name, with their counters."""
        self._collect()
        return list(self._counters[name].items())

    def view(self, name: str, key: str) -> StatsView | None:
        """Return the windows of a statistic; None if it does not exist or is a latest value, which
        Apache RocketMQ does not report either.
        """
        counter = self._find(name, key)
        if counter is None or name in _LATEST_VALUES:
            return None
        return StatsView(
            minute=counter.window(MINUTE), hour=counter.window(HOUR), day=counter.window(DAY)
        )

    def tps(self, name: StatName, key: str) -> float:
        """Return the rate per second over the last minute."""
        counter = self._find(name, key)
        return 0.0 if counter is None else counter.window(MINUTE).tps

    def delete_topic(self, topic: str) -> None:
        """Remove the counters of a topic."""
        self._remove_where(_TOPIC_AT, topic)

    def delete_group(self, group: str) -> None:
        """Remove the counters of a consumer group."""
        self._remove_where(_GROUP_AT, group)

    @property
    def next_ms(self) -> int:
        """Return when `tick` is due."""
        return self._now_ms if self._passes else min(self._due_ms)

    def tick(self, now_ms: int) -> None:
        """Take the samples that are due, up to the limit of one call."""
        self._now_ms = now_ms
        for window in _WINDOWS:
            due_ms = self._due_ms[window.at]
            if due_ms - window.interval_ms <= now_ms < due_ms:
                continue  # not due; if the clock was set back, it is
            late = due_ms + window.interval_ms <= now_ms or now_ms < due_ms
            self._due_ms[window.at] = (now_ms if late else due_ms) + window.interval_ms
            self._start_pass(window)
        left = COUNTERS_PER_TICK_MAX
        while self._passes and left:
            window, counters = self._passes[0]
            taken = 0
            for counter in islice(counters, left):
                taken += 1
                if window is HOUR and self._is_expired(counter, now_ms):
                    self._remove(counter)
                else:
                    counter.sample(window, now_ms)
            if taken < left:
                self._passes.popleft()
            left -= taken

    def _start_pass(self, window: _Window) -> None:
        if window is MINUTE:
            for counter in list(self._removed.values()):
                if counter.times or counter.value:
                    self._register_again(counter)
        self._passes.append(
            (
                window,
                iter([counter for table in self._counters.values() for counter in table.values()]),
            )
        )

    def _find(self, name: str, key: str) -> Counter | None:
        self._collect()
        counter = self._counters.get(name, {}).get(key)
        if counter is None:
            held = self._removed.get((name, key))
            if held is not None and (held.times or held.value):
                self._register_again(held)
                return held
        return counter

    def _register(self, counter: Counter) -> None:
        counter.changed_ms = self._now_ms
        # A pass that was under way at its removal may have added samples.
        counter.samples = _no_samples()
        self._counters[counter.name][counter.key] = counter

    def _register_again(self, counter: Counter) -> None:
        del self._removed[counter.name, counter.key]
        self._register(counter)

    def _other(self, name: StatName) -> Counter:
        if not self._is_full:
            self._is_full = True
            log.warning(
                "stats_full counters=%d: further keys are counted as %s; delete unused topics and"
                " groups",
                len(self),
                OTHER_KEY,
            )
        table = self._counters[name]
        return table.get(OTHER_KEY) or table.setdefault(
            OTHER_KEY, Counter(name, OTHER_KEY, self._now_ms)
        )

    def _is_expired(self, counter: Counter, now_ms: int) -> bool:
        if (
            self._idle_ms_max is None
            or counter.name in _PERMANENT
            or self._counters[counter.name].get(counter.key) is not counter
        ):
            return False
        return counter.is_idle_since(now_ms - self._idle_ms_max)

    def _remove_where(self, positions: dict[StatName, int], part: str) -> None:
        for name, at in positions.items():
            table = self._counters[name]
            for key in [
                key
                for key in table
                if part in key and key != OTHER_KEY and key.split("@")[at] == part
            ]:
                self._remove(table[key])

    def _remove(self, counter: Counter) -> None:
        del self._counters[counter.name][counter.key]
        counter.reset()
        self._removed[counter.name, counter.key] = counter
        self._is_full = False
