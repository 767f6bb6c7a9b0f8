"""The slot that is due: its messages in their order, each at its time, however they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.delay.timer.due_slot import DueMessage, DueSlot

SLOT = 5_000


def message(number: int) -> DueMessage:
    return DueMessage(number, SLOT - 1_000, number % 2 == 1)


def offsets(slot: DueSlot, now_ms: int, count_max: int = 100) -> list[int]:
    return [each.log_offset for each in slot.due(now_ms, count_max)]


def test_a_message_that_was_delivered_before_a_kill_is_not_given_out_again() -> None:
    slot = DueSlot(SLOT, delivered=[2])
    for number in (3, 2, 1):
        slot.add(message(number), SLOT + 10)
    slot.sort()
    slot.add(message(2), SLOT + 10)
    assert offsets(slot, SLOT + 10) == [1, 3]


def test_what_is_given_out_comes_again_until_it_is_done() -> None:
    slot = DueSlot(SLOT)
    for number in (2, 1):
        slot.add(message(number), SLOT)
    slot.sort()
    assert slot.due(SLOT, 1) == [message(1)] == slot.due(SLOT, 1)
    slot.done(1)
    assert (slot.due(SLOT, 2), len(slot), slot.next_ms()) == ([message(2)], 1, SLOT)
    slot.done(1)
    assert (slot.due(SLOT, 2), len(slot), slot.next_ms()) == ([], 0, None)


@given(
    st.lists(st.integers(-500, 1_000), max_size=30),
    st.lists(
        st.tuples(
            st.integers(0, 400), st.lists(st.integers(-500, 1_000), max_size=4), st.integers(1, 5)
        ),
        max_size=12,
    ),
)
def test_messages_come_by_time_then_as_they_came_whether_they_were_there_or_came_late(
    early: list[int], steps: list[tuple[int, list[int], int]]
) -> None:
    slot, waiting, number = DueSlot(SLOT), [], 0
    for number, after in enumerate(early):
        waiting.append((max(SLOT + after, SLOT), number))
    for _, newest in reversed(waiting):
        slot.add(message(newest), SLOT + early[newest])
    slot.sort()
    number, now = len(early), SLOT
    for elapsed, late, count_max in [*steps, (2_000, [], 1_000)]:
        now += elapsed
        for after in late:
            slot.add(message(number), SLOT + after)
            waiting.append((max(SLOT + after, SLOT), number))
            number += 1
        waiting.sort()
        assert slot.next_ms() == (waiting[0][0] if waiting else None)
        expected = [offset for time, offset in waiting if time <= now][:count_max]
        assert offsets(slot, now, count_max) == expected
        slot.done(len(expected))
        waiting = [each for each in waiting if each[1] not in expected]
        assert len(slot) == len(waiting)
    assert not waiting
