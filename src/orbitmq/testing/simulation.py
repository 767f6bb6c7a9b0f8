"""A simulation of several machines on one thread: virtual time, and one seed that decides the rest.

The scheduler owns the next event: time moves to it, never in between. Events of the same
millisecond run in an order that the seed chooses; `call_soon` keeps the order of its calls, and
precedes them. Every delay and choice comes from `random`, so a seed gives the same events again,
which `trace` proves. Knows no hosts, networks and disks: see `simulated_host`.

    with Simulation(seed) as simulation:
        ...
        simulation.run_until(lambda: follower.is_caught_up, within_ms=5_000)

An exception inside the `with` block gets a note with the command that repeats it. Thread rule: one
thread, and no callback waits. Invariants: time never decreases; all clocks advance together.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from types import TracebackType
from typing import Final, Self, TypeVar

from orbitmq.common.errors import OrbitError
from orbitmq.testing.manual_clock import ManualClock

SEED_VARIABLE: Final = "ORBITMQ_SIMULATION_SEED"  # runs one seed
COUNT_VARIABLE: Final = "ORBITMQ_SIMULATION_SEEDS"  # runs so many seeds
EVENTS_PER_MS_MAX: Final = 100_000  # more are a loop in which no time passes
TRACE_LINES_MAX: Final = 10_000
_LINES_IN_NOTE: Final = 20
_BEFORE_OTHERS: Final = -1.0  # below every random number
T = TypeVar("T")


class SimulationTimeoutError(OrbitError, TimeoutError):
    """A condition that did not come true within its virtual time."""


class SimulationStuckError(OrbitError):
    """Events that schedule each other for ever, while no time passes."""


class ScheduledCall:
    """A callback that is due at `time_ms`, unless it is cancelled."""

    __slots__ = ("_callback", "time_ms")

    def __init__(self, time_ms: int, callback: Callable[[], object]) -> None:
        self.time_ms = time_ms
        self._callback: Callable[[], object] | None = callback

    @property
    def is_pending(self) -> bool:
        """Whether it neither ran nor was cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Do not call it; does nothing if it ran already."""
        self._callback = None

    def run(self) -> None:
        """Call it, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class EventTrace:
    """What happened: the last lines, and a digest of all of them."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=TRACE_LINES_MAX)
        self._hash = blake2b(digest_size=16)

    def add(self, line: str) -> None:
        self.lines.append(line)
        self._hash.update(line.encode())

    def digest(self) -> str:
        """Return a digest that is equal if all lines were."""
        return self._hash.hexdigest()


class Simulation:
    """One run of a seed: the events to come, and the clocks that follow them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_ms = 0
        self.trace = EventTrace()
        self._events: list[tuple[int, float, int, ScheduledCall]] = []
        self._count = 0  # of scheduled events: the last criterion of their order
        self._in_this_ms = 0  # events run since time moved
        self._clocks: list[ManualClock] = []
        self._closers: list[Callable[[], object]] = []

    def new_clock(self, *, skew_ms: int = 0, uptime_ms: int = 0) -> ManualClock:
        """Return a clock that follows virtual time: its wall clock is ahead by `skew_ms`, its
        monotonic clock by `uptime_ms`.
        """
        clock = ManualClock(ManualClock().now_ms() + skew_ms - uptime_ms)
        clock.advance_ms(uptime_ms + self.now_ms)
        self._clocks.append(clock)
        return clock

    # -- events

    def call_soon(self, callback: Callable[[], object]) -> ScheduledCall:
        """Call it now, after what runs and after earlier calls of this."""
        return self._schedule(self.now_ms, _BEFORE_OTHERS, callback)

    def call_later_ms(self, delay_ms: int, callback: Callable[[], object]) -> ScheduledCall:
        """Call it when that time has passed."""
        return self._schedule(self.now_ms + max(delay_ms, 0), self.random.random(), callback)

    def note(self, what: str) -> None:
        """Add a line to the trace, with the time: each event does so when it happens."""
        self.trace.add(f"{self.now_ms} {what}")

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call it at the end of the `with` block; the last one first."""
        self._closers.append(callback)

    # -- running

    def run_for(self, elapsed_ms: int) -> None:
        """Run everything that is due within that time; afterwards exactly that time has passed."""
        end_ms = self.now_ms + elapsed_ms
        while self._run_next(end_ms):
            pass
        self._advance_to(end_ms)

    def run_until(
        self, condition: Callable[[], T | None], within_ms: int, what: str = "the condition"
    ) -> T:
        """Run events until the condition is true, and return its value; SimulationTimeoutError if
        it is not within that time.
        """
        end_ms = self.now_ms + within_ms
        while not (value := condition()):
            if not self._run_next(end_ms):
                self._advance_to(end_ms)
                if value := condition():
                    break
                raise SimulationTimeoutError(
                    f"{what} did not come true within {within_ms} ms of virtual time; last value:"
                    f" {value!r}"
                )
        return value

    def _run_next(self, end_ms: int) -> bool:
        """Run the next event that is due by then; False if there is none."""
        while self._events and self._events[0][0] <= end_ms:
            time_ms, _, _, call = heappop(self._events)
            if call.is_pending:
                self._advance_to(time_ms)
                self._in_this_ms += 1
                if self._in_this_ms > EVENTS_PER_MS_MAX:
                    raise SimulationStuckError(
                        f"{EVENTS_PER_MS_MAX} events at {self.now_ms} ms: let time pass between"
                        " events that follow from each other"
                    )
                call.run()
                return True
        return False

    def _schedule(self, time_ms: int, rank: float, callback: Callable[[], object]) -> ScheduledCall:
        call = ScheduledCall(time_ms, callback)
        self._count += 1
        heappush(self._events, (time_ms, rank, self._count, call))
        return call

    def _advance_to(self, time_ms: int) -> None:
        if time_ms > self.now_ms:
            for clock in self._clocks:
                clock.advance_ms(time_ms - self.now_ms)
            self.now_ms, self._in_this_ms = time_ms, 0

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"seed {self.seed} failed; repeat it by: {repeat_command(self.seed)}")
            last = list(self.trace.lines)[-_LINES_IN_NOTE:]
            error.add_note("\n".join(["its last events:", *last]))
        while self._closers:
            self._closers.pop()()


def seeds_to_run(count: int) -> Sequence[int]:
    """Return the seeds of a test: `count` of them, unless the environment names one seed or another
    count.
    """
    if (seed := os.environ.get(SEED_VARIABLE)) is not None:
        return [int(seed)]
    return range(int(os.environ.get(COUNT_VARIABLE, count)))


def repeat_command(seed: int) -> str:
    """Return the command that runs the current test with that seed."""
    test, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    if not test:
        return f"{SEED_VARIABLE}={seed}, and the same program"
    name, _, _ = test.partition("[")  # without parameters: the variable chooses the seed
    return f"{SEED_VARIABLE}={seed} python -m pytest '{name}'"
