"""Linearizability of registers against an oracle that tries every permutation."""

from __future__ import annotations

from itertools import permutations
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import InvalidStateError
from orbitmq.testing import register_histories
from orbitmq.testing.register_histories import (
    RegisterHistory,
    RegisterOperation,
    is_linearizable,
)


@st.composite
def operations(draw: st.DrawFn) -> list[RegisterOperation]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        called = draw(st.integers(0, 9))
        returned = draw(st.none() | st.integers(called, 12))
        value = draw(st.sampled_from([None, 1, 2, 3]))
        is_write = value is not None and draw(st.booleans())
        found.append(
            RegisterOperation(is_write=is_write, value=value, called=called, returned=returned)
        )
    return found


def has_linearization(history: list[RegisterOperation]) -> bool:
    """Try every order of every choice of the writes that did not return."""
    returned = [each for each in history if each.returned is not None]
    unsettled = [each for each in history if each.is_write and each.returned is None]
    for chosen in range(1 << len(unsettled)):
        happened = returned + [each for at, each in enumerate(unsettled) if chosen >> at & 1]
        if any(is_sequential(order) for order in permutations(happened)):
            return True
    return False


def is_sequential(order: tuple[RegisterOperation, ...]) -> bool:
    value = None
    for at, each in enumerate(order):
        end = inf if each.returned is None else each.returned
        if any(earlier.called > end for earlier in order[:at]):
            return False
        if each.is_write:
            value = each.value
        elif each.value != value:
            return False
    return True


@settings(max_examples=400)
@given(operations())
def test_the_search_agrees_with_every_permutation(history: list[RegisterOperation]) -> None:
    assert is_linearizable(history) == has_linearization(history)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["call", "apply", "return"]), max_size=60),
    st.randoms(use_true_random=False),
)
def test_a_register_that_applies_each_operation_once_is_linearizable(
    steps: list[str], random: Random
) -> None:
    history = RegisterHistory(initial=0)
    value, number = 0, 0
    called: list[RegisterOperation] = []
    applied: list[tuple[RegisterOperation, int]] = []
    for step in steps:
        if step == "call" and len(called) + len(applied) < 5:
            number += 1
            called.append(
                history.call_write(number) if random.random() < 0.5 else history.call_read()
            )
        elif step == "apply" and called:
            operation = called.pop(random.randrange(len(called)))
            if operation.is_write:
                assert operation.value is not None
                value = operation.value
            applied.append((operation, value))
        elif step == "return" and applied:
            operation, read = applied.pop(random.randrange(len(applied)))
            if operation.is_write:
                history.write_returned(operation)
            else:
                history.read_returned(operation, read)
    assert is_linearizable(history)


def test_a_read_of_an_overwritten_value_is_not_linearizable() -> None:
    history = RegisterHistory()
    for value in (1, 2):
        history.write_returned(history.call_write(value))
    history.read_returned(history.call_read(), 2)
    assert is_linearizable(history)
    history.read_returned(history.call_read(), 1)
    assert not is_linearizable(history)


def test_a_write_without_a_reply_may_happen_late_and_then_for_good() -> None:
    history = RegisterHistory()
    history.call_write(1)
    history.write_returned(history.call_write(2))
    for value in (2, 1):
        history.read_returned(history.call_read(), value)
    assert is_linearizable(history)
    history.read_returned(history.call_read(), 2)
    assert not is_linearizable(history)


def test_an_operation_returns_once_and_as_what_it_is() -> None:
    history = RegisterHistory()
    write = history.call_write(1)
    with pytest.raises(InvalidStateError):
        history.read_returned(write, 1)
    history.write_returned(write)
    with pytest.raises(InvalidStateError):
        history.write_returned(write)


def test_a_search_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_histories, "STATES_MAX", 100)
    history = RegisterHistory()
    for value in range(20):
        history.call_write(value)
    history.read_returned(history.call_read(), -1)
    with pytest.raises(ValueError, match="check a shorter history"):
        is_linearizable(history)
