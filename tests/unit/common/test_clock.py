"""Time is a parameter."""

from __future__ import annotations

import time

import pytest

from orbitmq.common.clock import Clock, SystemClock
from orbitmq.testing.manual_clock import ManualClock


def test_the_system_clock_reads_milliseconds() -> None:
    clock: Clock = SystemClock()
    before_ms, now_ms, after_ms = (
        time.time_ns() // 1_000_000,
        clock.now_ms(),
        time.time_ns() // 1_000_000,
    )
    assert before_ms <= now_ms <= after_ms
    before = clock.monotonic_ms()
    assert clock.monotonic_ms() >= before


def test_a_manual_clock_moves_only_when_told_and_its_wall_may_jump_alone() -> None:
    manual = ManualClock(now_ms=1_000)
    clock: Clock = manual
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 0)
    manual.advance_ms(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_250, 250)
    manual.set_wall_ms(7)
    assert (clock.now_ms(), clock.monotonic_ms()) == (7, 250)
    with pytest.raises(ValueError, match="cannot go backwards"):
        manual.advance_ms(-1)
