"""Assigns the queues of a group to its members: the six strategies of Apache RocketMQ. Every member
computes the result by itself, so all must agree exactly.

Pure: a group's queues and members in, the queues of one member out. Both are sorted first: queues
by topic, broker and id, members as text. Invariant: as long as all members see the same input,
every queue has exactly one owner, except for queues that a strategy leaves out on purpose.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from orbitmq.protocol.bodies.clients import MessageQueue

_VIRTUAL_NODES: Final = 10
T = TypeVar("T")


class Strategy(Protocol):
    """An allocation strategy; brokers and tools show its `name`."""

    @property
    def name(self) -> str: ...

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        """Return the queues of `member`, one of `members`; both inputs are sorted."""
        ...


def allocate(
    strategy: Strategy, queues: Iterable[MessageQueue], members: Iterable[str], member: str
) -> list[MessageQueue]:
    """Return the queues of a member; none if the group does not know it yet."""
    in_order = sorted(set(members))
    return strategy.allocate(sorted(set(queues)), in_order, member) if member in in_order else []


class Averagely:
    """Assigns contiguous ranges; the first ones get one queue more if they cannot be equal."""

    name = "AVG"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        place = members.index(member)
        size, longer = divmod(len(queues), len(members))
        start = place * size + min(place, longer)
        return list(queues[start : start + size + (place < longer)])


class AveragelyByCircle:
    """Assigns queues round robin."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        return list(queues[members.index(member) :: len(members)])


class Configured:
    """Assigns the queues that the application names, whatever exists."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        return list(self._queues)


class MachineRoom:
    """Assigns only queues of brokers named `room@name` in the given rooms."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        here = [
            queue
            for queue in queues
            if (parts := queue.broker_name.split("@"))
            and len(parts) == 2
            and parts[0] in self._rooms
        ]
        place = members.index(member)
        size, longer = divmod(len(here), len(members))
        found = here[place * size : (place + 1) * size]
        if place < longer:
            found.append(here[place + size * len(members)])
        return found


class MachineRoomNearby:
    """Applies another strategy per room; queues of rooms without members are shared by all."""

    def __init__(
        self,
        inner: Strategy,
        room_of_broker: Callable[[str], str],
        room_of_member: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_member = room_of_member

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        queues_of = _by_room(queues, lambda queue: self._room_of_broker(queue.broker_name))
        members_of = _by_room(members, self._room_of_member)
        own_room = self._room_of_member(member)
        found = self._inner.allocate(queues_of.get(own_room, []), members_of[own_room], member)
        for room in sorted(queues_of.keys() - members_of.keys()):
            found += self._inner.allocate(queues_of[room], members, member)
        return found


def _by_room(items: Iterable[T], room_of: Callable[[T], str]) -> Mapping[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        rooms.setdefault(room_of(item), []).append(item)
    return rooms


class ConsistentHash:
    """Assigns by consistent hashing: a member that joins or leaves moves few queues."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = _VIRTUAL_NODES) -> None:
        self._virtual_nodes = virtual_nodes

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> list[MessageQueue]:
        ring = {
            _place(f"{each}-{number}"): each
            for each in members
            for number in range(self._virtual_nodes)
        }
        places = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[places[bisect_left(places, _place(_queue_text(queue))) % len(places)]] == member
        ]


def _place(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _queue_text(queue: MessageQueue) -> str:
    """Return a queue as Java prints it: the hash depends on it."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )
