"""Requests in flight leave once, for one reason."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from orbitmq.protocol.in_flight import InFlight, opaques


def test_request_ids_count_from_zero() -> None:
    assert list(islice(opaques(), 3)) == [0, 1, 2]


def test_an_answer_takes_its_waiter_once() -> None:
    waiting: InFlight[str] = InFlight()
    waiting.add(1, "peer", 100, "first")
    assert (waiting.take(1, "peer"), waiting.take(1, "peer"), len(waiting)) == ("first", None, 0)


def test_an_answer_of_another_peer_takes_nothing() -> None:
    waiting: InFlight[str] = InFlight()
    waiting.add(1, "peer", 100, "first")
    assert waiting.take(1, "other") is None
    assert waiting.take(2, "peer") is None
    assert len(waiting) == 1


def test_what_is_overdue_leaves_and_what_is_not_stays() -> None:
    waiting: InFlight[str] = InFlight()
    for opaque, deadline_ms in enumerate((100, 200, 100)):
        waiting.add(opaque, "peer", deadline_ms, f"waiter {opaque}")
    assert waiting.expire(99) == []
    assert waiting.expire(100) == ["waiter 0", "waiter 2"]
    assert waiting.expire(100) == []
    assert waiting.drop("peer") == ["waiter 1"]


def test_a_peer_that_dies_takes_only_its_own_waiters() -> None:
    waiting: InFlight[str] = InFlight()
    for opaque in range(6):
        waiting.add(opaque, f"peer {opaque % 2}", 100, f"waiter {opaque}")
    assert waiting.drop("peer 0") == ["waiter 0", "waiter 2", "waiter 4"]
    assert waiting.drop("peer 0") == []
    assert len(waiting) == 3


def test_a_number_that_waits_is_not_given_twice() -> None:
    waiting: InFlight[str] = InFlight()
    waiting.add(1, "peer", 100, "first")
    with pytest.raises(AssertionError, match="opaque 1 is in flight already"):
        waiting.add(1, "other", 100, "second")


def test_nothing_is_kept_of_who_left() -> None:
    waiting: InFlight[str] = InFlight()
    ways: list[Callable[[], object]] = [
        lambda: waiting.take(0, "peer"),
        lambda: waiting.expire(100),
        lambda: waiting.drop("peer"),
    ]
    for opaque, leave in enumerate(ways):
        waiting.add(opaque, "peer", 100, "waiter")
        leave()
        assert (waiting._entries, waiting._by_owner) == ({}, {})
