"""Which messages of a delay level are due, and where a level goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.delay.levels.levels import DueLevels, Levels

NOW = 1_000_000


def levels(offset: int = 0) -> Levels:
    found = Levels((1_000, 5_000))
    found.load({1: offset})
    return found


def test_entries_are_due_in_their_order_up_to_the_first_that_is_not() -> None:
    assert levels().due(1, [NOW - 1, NOW, NOW + 1, NOW], NOW) == DueLevels(2, NOW + 1)
    assert levels().due(1, [NOW - 1, NOW], NOW) == DueLevels(2, None)
    assert levels().due(1, [], NOW) == DueLevels(0, None)


def test_a_level_goes_on_within_its_queue() -> None:
    found = levels(7)
    assert found.bound(1, 0, 10) == 7
    assert found.bound(1, 8, 10) == 8  # what was before is deleted
    assert found.bound(1, 0, 5) == 5  # the log lost its end
    assert found.bound(2, 3, 9) == 3  # nobody knows of it yet
    assert found.offsets == {1: 5, 2: 3}


def test_entries_of_a_clock_that_went_back_wait_once_more_for_the_delay_of_their_level_and_not_longer() -> (
    None
):
    found = levels()
    hour = 3_600_000
    found.see_end(1, 3, NOW + hour, NOW)
    found.see_end(1, 3, NOW + hour, NOW + 500)
    assert found.due(1, [NOW + hour] * 3, NOW) == DueLevels(0, NOW + 1_000)
    assert found.due(1, [NOW + hour] * 3, NOW + 999) == DueLevels(0, NOW + 1_000)
    assert found.due(1, [NOW + hour] * 3, NOW + 1_000) == DueLevels(3, None)
    found.delivered(1, 3)
    assert found.due(1, [NOW + 2_000], NOW + 1_000) == DueLevels(
        0, NOW + 2_000
    )  # one that came since has its own time


def test_entries_that_come_while_store_times_are_ahead_of_the_clock_wait_from_when_they_were_seen() -> (
    None
):
    found, far = levels(), NOW + 3_600_000
    for number in range(1, 4):
        found.see_end(1, number, far, NOW + 300 * number)
    assert found.due(1, [far] * 3, NOW + 1_299) == DueLevels(0, NOW + 1_300)
    assert found.due(1, [far] * 3, NOW + 1_300) == DueLevels(1, NOW + 1_600)
    found.delivered(1, 1)
    found.see_end(1, 3, far, NOW - 5_000)  # set back once more
    assert found.due(1, [far] * 2, NOW - 5_000) == DueLevels(0, NOW - 4_000)
    assert found.due(1, [far] * 2, NOW - 4_000) == DueLevels(2, None)


def test_a_level_that_is_configured_no_more_is_delivered_by_the_times_that_its_entries_have() -> (
    None
):
    found = levels()
    found.bound(9, 0, 2)
    assert found.due(9, [NOW, NOW + 7_200_000], NOW) == DueLevels(1, NOW + 7_200_000)


@given(st.lists(st.integers(0, 3_000), max_size=20), st.lists(st.integers(1, 700), max_size=12))
def test_whatever_the_times_are_nothing_is_early_and_all_come_in_their_order(
    delays: list[int], steps: list[int]
) -> None:
    found, now, taken = levels(), NOW, 0
    times = [NOW + delay for delay in delays]
    for step in [*steps, 5_000]:
        now += step
        found.see_end(1, len(times), max(times[taken:], default=0), now)
        ready = found.due(1, times[taken:], now).ready
        assert all(time <= now or time > NOW + 1_000 for time in times[taken : taken + ready])
        taken += ready
        found.delivered(1, ready)
    assert taken == len(times)
