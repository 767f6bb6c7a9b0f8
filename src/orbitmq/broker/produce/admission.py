"""Admission: refuses sends when the broker is behind, with a remark that names cause and remedy.

Sends and pulls are served within the loop iteration that reads them, so no request queue builds up
in memory: while the loop is busy, requests wait in their sockets. A task that is due every
`BEAT_MS` (the beat) measures that wait: its delay is the longest that a request waited. The lag can
be read at any time, so the iteration after a stall knows of it before the late beat arrives. The
only requests pending in memory are sends that wait for the disk or for slaves, and those are
counted.

Sends are refused:
- PCBUSY_CLEAN_QUEUE, when writes of the log held the loop for more than
  osPageCacheBusyTimeOutMills;
- TIMEOUT_CLEAN_QUEUE, when two beats in a row are later than waitTimeMillsInSendQueue. A single
  hiccup is served: its requests are late already, and to answer them costs less than to have them
  sent again; two in a row are overload. Sends are not refused if the machine did not run the
  process meanwhile: that would free no resources;
- OVERLOAD, when sendThreadPoolQueueCapacity messages wait for the disk or for slaves. Only this one
  applies with brokerFastFailureEnable off.

Sans-IO: time comes in as `now_ms` of the monotonic clock, meters are callables. Thread rule: the
loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.observability.watermarks import WaterMark

BEAT_MS: Final = 100
LAG_WINDOW_MS: Final = 30_000


class Cause(Enum):
    """The cause of a refusal, by its name in metrics and logs."""

    DISK_WRITE = "disk_write"  # writes of the log take too long
    CPU = "cpu"  # the loop has more work than it can do
    MACHINE = "machine"  # neither of these: the process did not run, or waited for reads
    DISK_SYNC = "disk_sync"  # too many messages wait for the disk to confirm them
    REPLICA = "replica"  # too many messages wait for slaves, or too few slaves are in sync
    DISK_FULL = "disk_full"
    DISK_ERROR = "disk_error"  # the disk rejected a write


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """The meters that admission reads: cumulative milliseconds, and the messages waiting for the
    disk or for slaves.
    """

    write_ms: Callable[[], int]  # total time of log writes
    cpu_ms: Callable[[], int]  # total CPU time of the loop
    waiting: Callable[[int], WaterMark]
    slow_replica: Callable[[], str | None]  # which slave messages wait for; None if for the disk


class Hold(NamedTuple):
    """How the time since the last beat was spent."""

    held_ms: int
    write_ms: int
    cpu_ms: int

    @property
    def lag_ms(self) -> int:
        """How late the next beat is."""
        return max(self.held_ms - BEAT_MS, 0)

    @property
    def cause(self) -> Cause:
        """What took at least half of the lag; writes come first, as they use no CPU time."""
        if 2 * self.write_ms >= self.lag_ms:
            return Cause.DISK_WRITE
        return Cause.CPU if 2 * self.cpu_ms >= self.lag_ms else Cause.MACHINE


class LoopLag:
    """The longest recent wait for the loop, as measured by beats: in this window and the previous
    one.
    """

    def __init__(self) -> None:
        self._window = 0
        self._max_ms = 0
        self._before_ms = 0

    def heard(self, now_ms: int, lag_ms: int) -> None:
        self._turn(now_ms)
        self._max_ms = max(self._max_ms, lag_ms)

    def max_ms(self, now_ms: int) -> int:
        self._turn(now_ms)
        return max(self._max_ms, self._before_ms)

    def _turn(self, now_ms: int) -> None:
        window = now_ms // LAG_WINDOW_MS
        if window != self._window:
            self._before_ms = self._max_ms if window == self._window + 1 else 0
            self._window, self._max_ms = window, 0


class Busy(NamedTuple):
    """A refusal: the remark names the wait, its cause and what to do."""

    cause: Cause
    remark: str


class Admission:
    """Decides whether a send is admitted. Before the first beat nothing is late."""

    def __init__(self, settings: BrokerConfig, meters: Meters) -> None:
        self._settings = settings
        self._meters = meters
        self._beat_ms: int | None = None  # time of the last beat
        self._lag_before_ms = 0  # how late it was
        self._write_ms = 0  # value of the meter at that time
        self._cpu_ms = 0
        self.loop_lag = LoopLag()

    def beat(self, now_ms: int) -> Hold:
        """Record a beat; return how the time since the last one was spent. The next is due in
        `BEAT_MS`.
        """
        hold = self._hold(now_ms)
        self._beat_ms, self._lag_before_ms = now_ms, hold.lag_ms
        self.loop_lag.heard(now_ms, hold.lag_ms)
        self._write_ms, self._cpu_ms = self._meters.write_ms(), self._meters.cpu_ms()
        return hold

    def catch_up(self, now_ms: int) -> None:
        """Treat the beat as due now: the clock was moved by hand, and nothing is late because of
        it.
        """
        if self._beat_ms is not None:
            self._beat_ms = now_ms - BEAT_MS

    def lag_ms(self, now_ms: int) -> int:
        """Return how long requests that are read now may have waited."""
        return 0 if self._beat_ms is None else max(now_ms - self._beat_ms - BEAT_MS, 0)

    def refusal(self, now_ms: int) -> Busy | None:
        """Return why a send that is read now is refused; None if it is admitted."""
        settings, waiting = self._settings, self._meters.waiting(now_ms)
        if waiting.size >= settings.send_thread_pool_queue_capacity:
            return _overload(
                waiting, settings.send_thread_pool_queue_capacity, self._meters.slow_replica()
            )
        if self.lag_ms(now_ms) == 0 or not settings.broker_fast_failure_enable:  # the common case
            return None
        hold = self._hold(now_ms)
        busy_ms, wait_ms = (
            settings.os_page_cache_busy_time_out_mills,
            settings.wait_time_mills_in_send_queue,
        )
        if hold.lag_ms > busy_ms and hold.cause is Cause.DISK_WRITE:
            return _late(
                "PCBUSY", hold, waiting, f"more than osPageCacheBusyTimeOutMills={busy_ms}"
            )
        if (
            hold.lag_ms > wait_ms
            and self._lag_before_ms > wait_ms
            and hold.cause is not Cause.MACHINE
        ):
            return _late(
                "TIMEOUT",
                hold,
                waiting,
                f"more than waitTimeMillsInSendQueue={wait_ms}, twice in a row",
            )
        return None

    def _hold(self, now_ms: int) -> Hold:
        if self._beat_ms is None:
            return Hold(0, 0, 0)
        return Hold(
            now_ms - self._beat_ms,
            self._meters.write_ms() - self._write_ms,
            self._meters.cpu_ms() - self._cpu_ms,
        )


def _late(mark: str, hold: Hold, waiting: WaterMark, limit: str) -> Busy:
    remark = (
        f"[{mark}_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
        f" {hold.lag_ms}ms, size of queue: {waiting.size}; {limit}:"
        f" {_REASONS[hold.cause].format(hold=hold)}"
    )
    return Busy(hold.cause, remark)


def _overload(waiting: WaterMark, capacity: int, replica: str | None) -> Busy:
    what, remedy = (
        (
            "the disk",
            "the disk syncs too slowly for SYNC_FLUSH: check what else uses it, or move"
            " storePathCommitLog to a faster one",
        )
        if replica is None
        else (
            replica,
            "that slave or the network to it is too slow for SYNC_MASTER: see orbitmq replica list",
        )
    )
    return Busy(
        Cause.DISK_SYNC if replica is None else Cause.REPLICA,
        f"[OVERLOAD]system busy, start flow control for a while: {waiting.size} messages wait for"
        f" {what} to confirm them, the first for {waiting.head_wait_ms} ms; the limit is"
        f" {capacity} (sendThreadPoolQueueCapacity); retry in a moment. If it persists, {remedy}",
    )


_REASONS: Final = {
    Cause.DISK_WRITE: (
        "the disk took {hold.write_ms} of the last {hold.held_ms} ms for writes of the commit log;"
        " retry in a moment. If it persists, check what else uses the disk, or move"
        " storePathCommitLog to a faster one"
    ),
    Cause.CPU: (
        "the broker computed for {hold.cpu_ms} of the last {hold.held_ms} ms before it came to this"
        " request; retry in a moment. If it persists, send in batches, or spread the topic over"
        " more brokers"
    ),
}
