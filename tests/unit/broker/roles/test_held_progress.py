"""Delivery progress that waits for its copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.roles.held_progress import HeldProgress


def test_progress_is_released_once_the_log_has_reached_its_end() -> None:
    held = HeldProgress[str]()
    held.hold("first", 100)
    assert held.release(99) is None
    assert held.release(100) == ("first", 100)
    assert held.release(200) is None


def test_progress_that_arrives_later_does_not_replace_what_waits() -> None:
    held = HeldProgress[str]()
    for number in range(1, 5):
        held.hold(str(number), 100 * number)
    assert held.release(150) == ("1", 100)
    assert held.release(399) is None
    assert held.release(400) == ("4", 400)


def test_progress_of_a_master_that_sends_no_log_end_is_released_at_once() -> None:
    held = HeldProgress[str]()
    held.hold("any", 0)
    assert held.release(0) == ("any", 0)


def test_nothing_of_another_master_is_released() -> None:
    held = HeldProgress[str]()
    held.hold("old", 1)
    held.clear()
    assert held.release(10) is None


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40))
def test_what_is_released_was_reached_and_never_goes_back(steps: list[tuple[bool, int]]) -> None:
    held, master_end, own_end, last = HeldProgress[int](), 0, 0, -1
    for is_progress, growth in steps:
        if is_progress:
            master_end += growth
            held.hold(master_end, master_end)
        else:
            own_end = min(own_end + growth, master_end)
            released = held.release(own_end)
            if released is not None:
                assert last <= released.value <= own_end
                last = released.value
    released = held.release(master_end)
    assert master_end == 0 or (released.value if released else last) in (master_end, last)
