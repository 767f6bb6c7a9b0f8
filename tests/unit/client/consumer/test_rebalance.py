"""Allocation strategies: Apache's examples, and that every queue and member is considered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.consumer.rebalance import (
    Averagely,
    AveragelyByCircle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    allocate,
)
from orbitmq.protocol.bodies.clients import MessageQueue


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


def shares(strategy: Strategy, of: list[MessageQueue], members: list[str]) -> dict[str, list[int]]:
    return {
        member: [queue.queue_id for queue in allocate(strategy, of, members, member)]
        for member in members
    }


@pytest.mark.parametrize(
    ("queue_count", "expected"),
    [
        (8, {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}),
        (6, {"a": [0, 1], "b": [2, 3], "c": [4, 5]}),
        (2, {"a": [0], "b": [1], "c": []}),
        (0, {"a": [], "b": [], "c": []}),
    ],
)
def test_averagely_gives_parts_that_lie_side_by_side(
    queue_count: int, expected: dict[str, list[int]]
) -> None:
    assert shares(Averagely(), queues(queue_count), ["a", "b", "c"]) == expected


def test_by_circle_deals_them_out() -> None:
    assert shares(AveragelyByCircle(), queues(7), ["a", "b", "c"]) == {
        "a": [0, 3, 6],
        "b": [1, 4],
        "c": [2, 5],
    }


def test_configured_gives_what_is_configured_whatever_there_is() -> None:
    assert allocate(Configured(queues(2)), queues(9), ["a"], "a") == queues(2)


def test_a_machine_room_shares_the_queues_of_its_own_brokers_and_leaves_others_out() -> None:
    own, other = queues(7, "room1@broker-a"), queues(4, "room2@broker-a")
    found = shares(MachineRoom({"room1"}), [*own, *other, *queues(3)], ["a", "b", "c"])
    assert found == {"a": [0, 1, 6], "b": [2, 3], "c": [4, 5]}


def test_nearby_prefers_the_own_room_and_shares_rooms_without_members() -> None:
    def room(name: str) -> str:
        return name.partition("-")[0]

    strategy = MachineRoomNearby(Averagely(), room, room)
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    of = [*queues(4, "r1-x"), *queues(2, "r2-x"), *queues(2, "r3-x")]
    members = ["r1-a", "r1-b", "r2-a"]
    found = {
        member: [
            (queue.broker_name, queue.queue_id) for queue in allocate(strategy, of, members, member)
        ]
        for member in members
    }
    assert found == {
        "r1-a": [("r1-x", 0), ("r1-x", 1), ("r3-x", 0)],
        "r1-b": [("r1-x", 2), ("r1-x", 3), ("r3-x", 1)],
        "r2-a": [("r2-x", 0), ("r2-x", 1)],
    }


def test_a_member_that_the_group_does_not_know_yet_gets_nothing() -> None:
    assert allocate(Averagely(), queues(4), ["a", "b"], "c") == []


MEMBERS = st.lists(
    st.text("abc123#@.", min_size=1, max_size=6), min_size=1, max_size=8, unique=True
)
QUEUES = st.lists(
    st.builds(
        MessageQueue, st.just("T"), st.sampled_from(["r1@a", "r1@b", "r2@c"]), st.integers(0, 20)
    ),
    max_size=40,
    unique=True,
)
NEARBY = MachineRoomNearby(
    AveragelyByCircle(), lambda name: name[:2], lambda name: f"r{len(name) % 3}"
)


@pytest.mark.parametrize(
    "strategy",
    [Averagely(), AveragelyByCircle(), ConsistentHash(), NEARBY, MachineRoom({"r1", "r2"})],
)
@given(of=QUEUES, members=MEMBERS)
def test_every_queue_has_exactly_one_member_in_whatever_order_they_are_seen(
    strategy: Strategy, of: list[MessageQueue], members: list[str]
) -> None:
    found = [
        queue for member in members for queue in allocate(strategy, of[::-1], members[::-1], member)
    ]
    assert sorted(found) == sorted(of)
    assert found == [
        queue for member in members for queue in allocate(strategy, of, members, member)
    ]


@given(of=QUEUES, members=MEMBERS, leaving=st.integers(0, 7))
def test_with_consistent_hashing_only_the_queues_of_who_leaves_move(
    of: list[MessageQueue], members: list[str], leaving: int
) -> None:
    gone = members[leaving % len(members)]
    rest = [member for member in members if member != gone]
    for member in rest:
        before, after = (
            set(allocate(ConsistentHash(), of, some, member)) for some in (members, rest)
        )
        assert before <= after
