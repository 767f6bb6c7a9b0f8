"""What a master requires of its replicas, compared with a count by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.replication.quorum import Quorum, Replica
from orbitmq.store.types import LogOffset

GAP = 100


@dataclass
class Settings:
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False
    ha_max_gap_not_in_sync: int = GAP
    slave_timeout: int = 3000


class Log:
    """The end of a log."""

    end = 1000


def quorum(
    *acknowledged: int, is_sync: bool = True, members: int = 1, hosts: int = 1, **settings: int
) -> Quorum:
    """A master with a log that ends at 1000, and slaves that have acknowledged so much."""
    made = Quorum(
        Settings(**settings),  # type: ignore[arg-type]
        is_sync_master=is_sync,
        log_end=lambda: LogOffset(Log.end),
        members_at=lambda _host: members,
    )
    for number, offset in enumerate(acknowledged):
        made.join(Replica(f"h{number % hosts}:{number}", f"h{number % hosts}", LogOffset(offset)))
    return made


def test_an_async_master_requires_nothing() -> None:
    for acknowledged in ((), (0,), (1000, 1000)):
        found = quorum(*acknowledged, is_sync=False, in_sync_replicas=2, min_in_sync_replicas=2)
        assert (found.is_required, found.is_missing, found.refusal) == (False, False, None)


def test_by_default_one_slave_in_sync_must_have_a_message_and_without_one_it_is_missing() -> None:
    assert (quorum().is_required, quorum().is_missing) == (False, True)
    too_far = quorum(1000 - GAP)
    assert (too_far.is_required, too_far.is_missing) == (False, True)
    one = quorum(990)
    assert (one.is_required, one.is_missing, one.acknowledged) == (True, False, 990)
    two = quorum(990, 995, hosts=2)
    assert two.acknowledged == 995, "one of them is enough"


@pytest.mark.parametrize(
    ("wanted", "acknowledged", "expected"),
    [
        (2, (), 0),
        (2, (500,), 500),
        (2, (500, 700, 600), 700),
        (3, (500, 700, 600), 600),
        (4, (500, 700, 600), 500),
        (5, (500, 700, 600), 0),
    ],
)
def test_so_many_copies_as_configured_must_have_a_message(
    wanted: int, acknowledged: tuple[int, ...], expected: int
) -> None:
    found = quorum(*acknowledged, hosts=9, in_sync_replicas=wanted)
    assert (found.is_required, found.is_missing) == (True, False)
    assert found.acknowledged == expected


def test_with_auto_in_sync_replicas_fewer_copies_are_enough_while_fewer_are_in_sync() -> None:
    def wanting(*acknowledged: int) -> Quorum:
        return quorum(
            *acknowledged,
            hosts=9,
            in_sync_replicas=3,
            min_in_sync_replicas=2,
            enable_auto_in_sync_replicas=True,
        )

    assert wanting(990, 991).acknowledged == 990
    assert wanting(990, 0).acknowledged == 990, "one is not in sync, two copies are enough"
    assert wanting(0, 0).acknowledged == 0


def test_below_the_minimum_messages_are_refused_with_the_numbers() -> None:
    assert quorum(990, min_in_sync_replicas=2).refusal is None
    refusal = quorum(0, min_in_sync_replicas=2).refusal
    assert refusal is not None
    assert refusal.startswith("in-sync replicas not enough: 1 of the 2 copies")


def test_a_host_counts_as_often_as_it_has_members() -> None:
    """A slave that connects again while its old connection is open is one copy."""
    assert quorum(900, 950, in_sync_replicas=3).acknowledged == 0
    assert quorum(900, 950, in_sync_replicas=2).acknowledged == 950
    assert quorum(950, 900, in_sync_replicas=2).acknowledged == 900, "the newest counts"
    assert quorum(900, 950, members=2, in_sync_replicas=3).acknowledged == 900


def test_a_slave_that_left_counts_no_more() -> None:
    found = quorum(900, 950, hosts=2, in_sync_replicas=2)
    found.leave(found.replicas[1])
    assert found.acknowledged == 900
    assert found.slowest is None, "it is out of sync"
    found.replicas[0].acknowledged = LogOffset(999)
    assert found.slowest is found.replicas[0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(800, 1000)), max_size=8),
    st.integers(2, 5),
    st.integers(1, 3),
)
def test_everything_up_to_the_acknowledged_offset_is_on_enough_members(
    slaves: list[tuple[int, int]], wanted: int, members: int
) -> None:
    made = Quorum(
        Settings(in_sync_replicas=wanted),
        is_sync_master=True,
        log_end=lambda: LogOffset(1000),
        members_at=lambda _host: members,
    )
    for number, (host, offset) in enumerate(slaves):
        made.join(Replica(f"h{host}:{number}", f"h{host}", LogOffset(offset)))
    counted = []
    for host in range(4):
        newest_first = [offset for at, offset in reversed(slaves) if at == host]
        counted += newest_first[:members]
    expected = max(
        (end for end in range(1001) if sum(has >= end for has in counted) >= wanted - 1), default=0
    )
    assert made.acknowledged == expected
