"""Memberships: which clients are members of which group, on which connection, and when each was
last heard of.

The common part of producers and consumers. Sans-IO: time comes in as `now_ms` of the monotonic
clock, connections are keys here and nothing is sent on them.

Invariants: a member is in its group and its group in the list of its connection, or neither is; a
group without members does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from orbitmq.protocol.codes import LanguageCode

SILENCE_MS_MAX: Final = 120_000  # a client that was silent for longer counts as dead
SCAN_PERIOD_MS: Final = 10_000


class Peer(Protocol):
    """The connection of a client. Equal only to itself, so it serves as a key."""

    def __hash__(self) -> int: ...

    @property
    def remote_address(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_reading(self) -> bool:
        """Return whether the client reads what is sent to it."""
        ...

    def close(self, reason: str) -> None: ...


_NO_MEMBERS: Final[Mapping[Peer, Member]] = MappingProxyType({})


class ClientInfo(NamedTuple):
    """The identity that a client claims."""

    client_id: str
    language: LanguageCode
    version: int


class Member:
    """A client in a group, through one of its connections."""

    __slots__ = ("channel", "heard_ms", "info")

    def __init__(self, channel: Peer, info: ClientInfo, heard_ms: int) -> None:
        self.channel = channel
        self.info = info
        self.heard_ms = heard_ms

    def __repr__(self) -> str:
        return (
            f"Member({self.info.client_id} at {self.channel.remote_address},"
            f" {self.info.language.name} {self.info.version})"
        )


class Memberships:
    """The members of all groups, found by group or by connection."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Peer, Member]] = {}
        self._groups_by_channel: dict[Peer, dict[str, None]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def members(self, group: str) -> Mapping[Peer, Member]:
        """Return the members of a group, in the order they joined."""
        return self._groups.get(group, _NO_MEMBERS)

    def groups_of(self, channel: Peer) -> list[str]:
        """Return the groups that a connection has joined."""
        return list(self._groups_by_channel.get(channel, ()))

    def join(self, group: str, channel: Peer, info: ClientInfo, now_ms: int) -> bool:
        """Add a member, or renew it; return whether it is new."""
        members = self._groups.setdefault(group, {})
        member = members.get(channel)
        if member is None:
            members[channel] = Member(channel, info, now_ms)
            self._groups_by_channel.setdefault(channel, {})[group] = None
            return True
        member.info = info
        member.heard_ms = now_ms
        return False

    def leave(self, group: str, channel: Peer) -> Member | None:
        """Remove and return a member; None if there is none."""
        members = self._groups.get(group)
        member = members.pop(channel, None) if members is not None else None
        if members is None or member is None:
            return None
        if not members:
            del self._groups[group]
        groups = self._groups_by_channel[channel]
        del groups[group]
        if not groups:
            del self._groups_by_channel[channel]
        return member

    def hear_all(self, now_ms: int) -> None:
        """Count as a heartbeat from every member."""
        for members in self._groups.values():
            for member in members.values():
                member.heard_ms = now_ms

    def silent(self, now_ms: int) -> list[tuple[str, Member]]:
        """Yield the members that were silent for too long, with their groups."""
        return [
            (group, member)
            for group, members in self._groups.items()
            for member in members.values()
            if now_ms - member.heard_ms > SILENCE_MS_MAX
        ]
