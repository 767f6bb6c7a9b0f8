"""Statistics of the store for GET_BROKER_RUNTIME_INFO (Apache RocketMQ's StoreStatsService and
BrokerStats).

Totals are sampled every second, for rates over 10, 60 and 600 seconds. The distribution of put
latencies starts over every minute, and the last complete one is reported. Formats are those of
Apache RocketMQ, quirks included: a rate without enough samples is empty, zero puts count as one.

Sans-IO: `now_ms` is an argument. Invariant: at most 601 samples are kept.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from datetime import datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate, chain, repeat
from typing import Final, NamedTuple

from orbitmq.protocol import fastjson

SAMPLE_INTERVAL_MS: Final = 1_000
DISTRIBUTION_MS: Final = 60_000
_DAY_MS_MAX: Final = 25 * 3_600_000  # on the day when daylight saving time ends
RATE_SECONDS: Final = (10, 60, 600)

_SPANS: Final = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
_SPAN_BOUNDS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
# Finer bounds, for percentiles: step and number of steps, up to 10 s.
_STEPS_MS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS_MS: Final = tuple(
    accumulate(chain.from_iterable(repeat(step, times) for step, times in _STEPS_MS))
)

log = logging.getLogger(__name__)


class Totals(NamedTuple):
    """Messages put and got since the start, without those of system topics."""

    put: int
    got: int


class _Sample(NamedTuple):
    at_ms: int
    put: int
    found: int
    missed: int
    transferred: int


def local_midnight_after(now_ms: int) -> int:
    """Return when the next day begins in the local time zone."""
    tomorrow = datetime.fromtimestamp(now_ms / 1000).astimezone().date() + timedelta(days=1)
    return int(datetime.combine(tomorrow, time()).astimezone().timestamp() * 1000)


class StoreStats:
    """Totals, rates and put latencies of one store. `totals` returns the messages put and got; it
    is called at midnight, and for each report.
    """

    def __init__(
        self,
        now_ms: int,
        totals: Callable[[], Totals],
        *,
        midnight_after: Callable[[int], int] = local_midnight_after,
    ) -> None:
        self._boot_ms = now_ms
        self._totals = totals
        self._midnight_after = midnight_after
        self._messages_put = 0
        self._bytes_put = 0
        self._puts_failed = 0
        self._put_ms_max = 0
        self._get_ms_max = 0
        self._gets_found = 0
        self._gets_missed = 0
        self._messages_got = 0
        self._samples: deque[_Sample] = deque(maxlen=RATE_SECONDS[-1] + 1)
        self._spans, self._spans_shown = _zeros(len(_SPANS)), _zeros(len(_SPANS))
        self._times, self._times_shown = _zeros(len(_BOUNDS_MS) + 1), _zeros(len(_BOUNDS_MS) + 1)
        self._today = self._yesterday = Totals(0, 0)
        self._sample_ms = now_ms + SAMPLE_INTERVAL_MS
        self._distribution_ms = now_ms
        self._midnight_ms = midnight_after(now_ms)

    def put(self, messages: int, size: int) -> None:
        """Count stored messages and their total size in bytes."""
        self._messages_put += messages
        self._bytes_put += size

    def put_took(self, latency_ms: int, calls: int = 1) -> None:
        """Count `calls` puts of `latency_ms` each, measured up to the reply."""
        self._spans[bisect_right(_SPAN_BOUNDS_MS, latency_ms)] += calls
        self._times[bisect_left(_BOUNDS_MS, latency_ms)] += calls
        if latency_ms > self._put_ms_max:
            self._put_ms_max = latency_ms

    def put_failed(self, latency_ms: int, calls: int = 1) -> None:
        """Count `calls` puts that stored nothing."""
        self._puts_failed += calls
        self.put_took(latency_ms, calls)

    def get(self, found: int, missed: int, messages: int, latency_ms_max: int) -> None:
        """Count reads of queues: those that found messages, with their number, those that found
        none, and the longest latency.
        """
        self._gets_found += found
        self._gets_missed += missed
        self._messages_got += messages
        if latency_ms_max > self._get_ms_max:
            self._get_ms_max = latency_ms_max

    @property
    def next_ms(self) -> int:
        """Return when `tick` is due."""
        return self._sample_ms

    def tick(self, now_ms: int) -> None:
        """Sample the totals every second; start a new distribution each minute, and a new day at
        midnight.
        """
        if self._sample_ms - SAMPLE_INTERVAL_MS <= now_ms < self._sample_ms:
            return  # not due; sampling goes on if the clock was set back
        self._sample_ms = now_ms + SAMPLE_INTERVAL_MS
        self._samples.append(
            _Sample(
                now_ms, self._messages_put, self._gets_found, self._gets_missed, self._messages_got
            )
        )
        if not 0 <= now_ms - self._distribution_ms <= DISTRIBUTION_MS:
            self._distribution_ms = now_ms
            self._spans_shown, self._spans = self._spans, _zeros(len(self._spans))
            self._times_shown, self._times = self._times, _zeros(len(self._times))
        if now_ms < self._midnight_ms - _DAY_MS_MAX:  # the clock was set back
            self._midnight_ms = self._midnight_after(now_ms)
        if now_ms >= self._midnight_ms:
            self._midnight_ms = self._midnight_after(now_ms)
            self._yesterday, self._today = self._today, self._totals()
            put, got = self._today.put - self._yesterday.put, self._today.got - self._yesterday.got
            log.info("day_over messages_put=%d messages_got=%d", put, got)

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """Return the entries of the reply."""
        now = self._totals()
        times = self._messages_put or 1
        transferred = self._rates("transferred")
        return {
            "bootTimestamp": str(self._boot_ms),
            "runtime": _runtime(max(0, now_ms - self._boot_ms)),
            "putMessageEntireTimeMax": str(self._put_ms_max),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(self._puts_failed),
            "putMessageSizeTotal": str(self._bytes_put),
            "putMessageDistributeTime": "".join(
                f"[{span}]:{count} " for span, count in zip(_SPANS, self._spans_shown, strict=True)
            ),
            "putMessageAverageSize": java_double(self._bytes_put / times),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self._get_ms_max),
            "putTps": self._rates("put"),
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("missed"),
            "getTotalTps": " ".join(
                java_double(
                    (self._rate("found", seconds) or 0.0) + (self._rate("missed", seconds) or 0.0)
                )
                for seconds in RATE_SECONDS
            ),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # as spelled in 4.9, for its tools
            "putLatency99": _hundredths(_percentile(self._times_shown, 0.99)),
            "putLatency999": _hundredths(_percentile(self._times_shown, 0.999)),
            "msgPutTotalYesterdayMorning": str(self._yesterday.put),
            "msgPutTotalTodayMorning": str(self._today.put),
            "msgPutTotalTodayNow": str(now.put),
            "msgGetTotalYesterdayMorning": str(self._yesterday.got),
            "msgGetTotalTodayMorning": str(self._today.got),
            "msgGetTotalTodayNow": str(now.got),
        }

    def _rate(self, what: str, seconds: int) -> float | None:
        """Return the rate over the last `seconds` samples; None if there are fewer."""
        if len(self._samples) <= seconds:
            return None
        begin, end = self._samples[-seconds - 1], self._samples[-1]
        elapsed_ms = end.at_ms - begin.at_ms
        total: int = getattr(end, what) - getattr(begin, what)
        return total / elapsed_ms * 1000 if elapsed_ms > 0 else 0.0

    def _rates(self, what: str) -> str:
        rates = [self._rate(what, seconds) for seconds in RATE_SECONDS]
        return " ".join("" if rate is None else java_double(rate) for rate in rates)


def _zeros(count: int) -> list[int]:
    return [0] * count


def _percentile(counts: list[int], part: float) -> float:
    """Return the latency that this fraction of the puts did not exceed, interpolated between
    bounds, and at most the last bound.
    """
    index = int(sum(counts) * part)
    passed = 0
    low = 0
    for high, count in zip(_BOUNDS_MS, counts, strict=False):
        if index <= passed + count:
            return low + ((high - low) * (index - passed) / count if count else 0.0)
        passed += count
        low = high
    return float(low)


def java_double(value: float) -> str:
    """Format a number as Java does."""
    return fastjson.dumps(value).decode()


def _hundredths(value: float) -> str:
    """Format a number with two decimals, rounded as Java does."""
    return str(Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def _runtime(elapsed_ms: int) -> str:
    seconds = elapsed_ms // 1000
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
