"""What is to be done about transactions that have not ended, and from where on their queues are
needed.
"""

from __future__ import annotations

import pytest

from orbitmq.broker.transactions.pending import WINDOW_MIN, Floors, Pending, PendingStep, Rules
from orbitmq.message.half_messages import Half

RULES = Rules(timeout_ms=6_000, checks_max=15, age_ms_max=72 * 3_600_000)
CAME_MS = 1_700_000_000_000


def half(
    root: int, offset: int | None = None, *, checks: int = 0, immunity_s: int | None = None
) -> Half:
    return Half(
        root,
        root if offset is None else offset,
        1_000 * (offset or root),
        CAME_MS,
        checks,
        immunity_s,
        "g",
        "T",
    )


def table(*halves: Half) -> Pending:
    pending = Pending()
    pending.begin(Floors(0, 0))
    for each in halves:
        pending.took_half(each)
    return pending


@pytest.mark.parametrize(
    ("known", "age_ms", "can_ask", "step"),
    [
        (half(0), 0, True, PendingStep.WAIT),
        (half(0), 6_000, True, PendingStep.WAIT),
        (half(0), 6_001, True, PendingStep.ASK),
        (half(0), 6_001, False, PendingStep.WAIT),
        (half(0), -1, True, PendingStep.ASK),  # the clock was set back
        (half(0, immunity_s=60), 6_001, True, PendingStep.WAIT),
        (half(0, immunity_s=60), 60_001, True, PendingStep.ASK),
        (half(0, immunity_s=1), 1_001, True, PendingStep.ASK),
        (half(0, 5, checks=14), 60_000, True, PendingStep.ASK),
        (half(0, 5, checks=15), 60_000, True, PendingStep.GIVE_UP),
        (half(0, 5, checks=15), 60_000, False, PendingStep.GIVE_UP),
        (half(0), RULES.age_ms_max + 1, False, PendingStep.GIVE_UP),
        (half(0), RULES.age_ms_max + 1, True, PendingStep.ASK),
    ],
)
def test_what_is_done_depends_on_age_questions_and_who_can_be_asked(
    known: Half, age_ms: int, can_ask: bool, step: PendingStep
) -> None:
    assert table(known).step(known, CAME_MS + age_ms, RULES, can_ask=can_ask) is step


def test_one_that_waits_is_moved_when_too_many_lie_behind_it() -> None:
    first = half(0)
    pending = table(first, half(WINDOW_MIN - 1))
    assert pending.step(first, CAME_MS, RULES, can_ask=True) is PendingStep.WAIT
    pending.took_half(half(WINDOW_MIN))
    assert pending.step(first, CAME_MS, RULES, can_ask=True) is PendingStep.MOVE


def test_a_copy_takes_the_place_of_what_was_known_and_only_its_own_op_record_ends_the_transaction() -> (
    None
):
    pending = table(half(3), half(3, 7, checks=1), half(3, 9, checks=2))
    assert list(pending) == [half(3, 9, checks=2)]
    assert pending.took_op(0, [3, 7]) == []
    assert pending.took_op(1, [9]) == [half(3, 9, checks=2)]
    assert (len(pending), pending.took_op(2, [3, 7, 9])) == (0, [])


def test_queues_are_needed_from_the_oldest_that_is_open_and_from_the_first_op_that_names_one_behind_it() -> (
    None
):
    pending = table(*map(half, range(6)))
    assert pending.floors() == Floors(0, 0)
    for op_offset, ended in enumerate(([4], [0], [1, 2])):
        pending.took_op(op_offset, ended)
    assert pending.floors() == Floors(3, 0)  # the first op names 4, which is behind 3
    pending.took_op(3, [3])
    assert pending.floors() == Floors(5, 4)
    pending.took_op(4, [5])
    assert pending.floors() == Floors(6, 5)


def test_half_messages_that_were_not_taken_yet_are_needed_whatever_copies_lie_behind_them() -> None:
    pending = table(half(0))
    pending.moved(half(0, 8))
    assert pending.floors() == Floors(1, 0)
