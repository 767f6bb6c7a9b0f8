"""Admission: when sends are refused because the broker is behind, and what their senders are told.

Sends and pulls are served within the turn that reads them, so no queue of requests stands in memory: who waits, waits in a socket while the
loop is held. A beat every `BEAT_MS` makes that wait known: as late as the beat is, so long may requests have waited. Anybody may ask at any
time, so the turn that follows a stall knows of it before the late beat comes. What does wait in memory is sends that the disk has to
confirm, and those are counted.

Sends are refused:
- PCBUSY_CLEAN_QUEUE, when writes of the log held the loop for more than osPageCacheBusyTimeOutMills;
- TIMEOUT_CLEAN_QUEUE, when the beat is later than waitTimeMillsInSendQueue and the one before was, too: one hiccup is served, for its
  requests are late already and to answer them costs less than to have them sent again; two in a row are overload. Not when the machine
  let nobody run: a refusal would give nothing back;
- OVERLOAD, when sendThreadPoolQueueCapacity messages wait for the disk. This alone holds with brokerFastFailureEnable off.

Sans-IO: time comes in as `now_ms` of the monotonic clock, meters are callables. Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.water_marks import WaterMark

BEAT_MS: Final = 100
LAG_WINDOW_MS: Final = 30_000


class Cause(Enum):
    """Why a send was refused, by the name that metrics and logs have for it."""

    DISK_WRITE = "disk_write"  # writes of the log take long
    CPU = "cpu"  # the loop has more to do than it can
    MACHINE = "machine"  # the loop did neither: it did not run, or waited for reads
    DISK_SYNC = "disk_sync"  # too many wait for the disk to confirm them
    DISK_FULL = "disk_full"
    DISK_ERROR = "disk_error"  # the disk did not take what was written


class AdmissionSettings(Protocol):
    """What of the configuration admission looks at."""

    @property
    def broker_fast_failure_enable(self) -> bool: ...
    @property
    def wait_time_mills_in_send_queue(self) -> int: ...
    @property
    def os_page_cache_busy_time_out_mills(self) -> int: ...
    @property
    def send_thread_pool_queue_capacity(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """Where admission reads what happened: ms that only grow, and what waits for the disk at a time."""

    write_ms: Callable[[], int]  # that writes of the log took, all together
    cpu_ms: Callable[[], int]  # that the loop computed, all together
    waiting: Callable[[int], WaterMark]


class Hold(NamedTuple):
    """What the time since the last beat went to."""

    held_ms: int
    write_ms: int
    cpu_ms: int

    @property
    def lag_ms(self) -> int:
        """How late the next beat is."""
        return max(self.held_ms - BEAT_MS, 0)

    @property
    def cause(self) -> Cause:
        """What took at least half of the lag; writes first, for what they take is computed by nobody."""
        if 2 * self.write_ms >= self.lag_ms:
            return Cause.DISK_WRITE
        return Cause.CPU if 2 * self.cpu_ms >= self.lag_ms else Cause.MACHINE


class LoopLag:
    """The longest wait for the loop of late, as beats saw it: of this window and the one before."""

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
    """See above. Before the first beat nothing is late."""

    def __init__(self, settings: AdmissionSettings, meters: Meters) -> None:
        self._settings = settings
        self._meters = meters
        self._beat_ms: int | None = None  # when it was last
        self._lag_before_ms = 0  # how late it was
        self._write_ms = 0  # as the meter stood then
        self._cpu_ms = 0
        self.loop_lag = LoopLag()

    def beat(self, now_ms: int) -> Hold:
        """The next is due in `BEAT_MS`; what the time up to this one went to."""
        hold = self._hold(now_ms)
        self._beat_ms, self._lag_before_ms = now_ms, hold.lag_ms
        self.loop_lag.heard(now_ms, hold.lag_ms)
        self._write_ms, self._cpu_ms = self._meters.write_ms(), self._meters.cpu_ms()
        return hold

    def catch_up(self, now_ms: int) -> None:
        """Take the beat for due now: the clock was moved by hand, and nothing is late because of that."""
        if self._beat_ms is not None:
            self._beat_ms = now_ms - BEAT_MS

    def lag_ms(self, now_ms: int) -> int:
        """For how long requests that are read now may have waited."""
        return 0 if self._beat_ms is None else max(now_ms - self._beat_ms - BEAT_MS, 0)

    def refusal(self, now_ms: int) -> Busy | None:
        """Why a send that is read now is refused; None when it is served."""
        settings, waiting = self._settings, self._meters.waiting(now_ms)
        if waiting.size >= settings.send_thread_pool_queue_capacity:
            return Busy(Cause.DISK_SYNC, _overload(waiting, settings.send_thread_pool_queue_capacity))
        if self.lag_ms(now_ms) == 0 or not settings.broker_fast_failure_enable:  # nearly always
            return None
        hold = self._hold(now_ms)
        busy_ms, wait_ms = settings.os_page_cache_busy_time_out_mills, settings.wait_time_mills_in_send_queue
        if hold.lag_ms > busy_ms and hold.cause is Cause.DISK_WRITE:
            return _late("PCBUSY", hold, waiting, f"more than osPageCacheBusyTimeOutMills={busy_ms}")
        if hold.lag_ms > wait_ms and self._lag_before_ms > wait_ms and hold.cause is not Cause.MACHINE:
            return _late("TIMEOUT", hold, waiting, f"more than waitTimeMillsInSendQueue={wait_ms}, twice in a row")
        return None

    def _hold(self, now_ms: int) -> Hold:
        if self._beat_ms is None:
            return Hold(0, 0, 0)
        return Hold(now_ms - self._beat_ms, self._meters.write_ms() - self._write_ms, self._meters.cpu_ms() - self._cpu_ms)


def _late(mark: str, hold: Hold, waiting: WaterMark, limit: str) -> Busy:
    remark = (
        f"[{mark}_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {hold.lag_ms}ms, "
        f"size of queue: {waiting.size}; {limit}: {_REASONS[hold.cause].format(hold=hold)}"
    )
    return Busy(hold.cause, remark)


def _overload(waiting: WaterMark, capacity: int) -> str:
    return (
        f"[OVERLOAD]system busy, start flow control for a while: {waiting.size} messages wait for the disk to confirm them, the first for "
        f"{waiting.head_wait_ms} ms, and {capacity} may (sendThreadPoolQueueCapacity); retry in a moment. If it goes on, the disk syncs "
        "too slowly for SYNC_FLUSH: see what else uses it, or put storePathCommitLog on a faster one"
    )


_REASONS: Final = {
    Cause.DISK_WRITE: (
        "the disk took {hold.write_ms} of the last {hold.held_ms} ms for writes of the commit log; retry in a moment. "
        "If it goes on, see what else uses the disk, or put storePathCommitLog on a faster one"
    ),
    Cause.CPU: (
        "the broker computed for {hold.cpu_ms} of the last {hold.held_ms} ms before it came to this request; retry in a moment. "
        "If it goes on, send in batches, or spread the topic over more brokers"
    ),
}
