"""Message totals of a broker over several days."""

from __future__ import annotations

from orbitmq.broker.observability.store_stats import local_midnight_after
from orbitmq.testing.manual_clock import ManualClock
from support.broker.listeners import stats_recorder

SECOND_MS = 1000


class Day:
    """A recorder that is ticked every second, starting one minute before midnight."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance_ms(
            local_midnight_after(self.clock.now_ms()) - self.clock.now_ms() - 60 * SECOND_MS
        )
        self.figures = stats_recorder(self.clock, lambda topic: topic == "SYSTEM")

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance_ms(SECOND_MS)
            self.figures.tick(self.clock.now_ms())

    def totals(self, what: str) -> list[int]:
        """Return the totals at the start of yesterday and of today, and now."""
        info = self.figures.store.runtime_info(self.clock.now_ms())
        return [
            int(info[f"msg{what}Total{when}"])
            for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
        ]


def count(day: Day, messages: int) -> None:
    day.figures.stored("T", messages, 100)
    day.figures.stored("SYSTEM", 1000, 100)
    day.figures.pulled("g", "T", 0, messages // 2, 100)
    day.figures.pulled("g", "SYSTEM", 0, 1000, 100)


def test_totals_are_noted_at_midnight_and_exclude_system_topics() -> None:
    day = Day()
    count(day, 10)
    day.pass_seconds(59)
    assert (day.totals("Put"), day.totals("Get")) == ([0, 0, 10], [0, 0, 5])
    day.pass_seconds(1)
    assert (day.totals("Put"), day.totals("Get")) == ([0, 10, 10], [0, 5, 5])
    count(day, 100)
    day.pass_seconds(5)
    assert (day.totals("Put"), day.totals("Get")) == ([0, 10, 110], [0, 5, 55])
    day.clock.advance_ms(local_midnight_after(day.clock.now_ms()) - day.clock.now_ms())
    day.pass_seconds(1)
    assert (day.totals("Put"), day.totals("Get")) == ([10, 110, 110], [5, 55, 55])
