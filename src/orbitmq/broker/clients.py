"""Clients: who is a member of which group, on which connection, and when it last gave a sign of life.

What producers and consumers have in common. Sans-IO: time comes in as `now_ms` of the monotonic clock, connections are keys here and
nothing is sent on them.

Invariants: a member stands in its group and its group in the list of its connection, or neither does; a group without members is not
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from orbitmq.protocol.codes import LanguageCode
from orbitmq.remoting.channel import Channel

SILENCE_MS_MAX: Final = 120_000  # a client that was silent for longer is taken for dead
SCAN_PERIOD_MS: Final = 10_000

_NOBODY: Final[Mapping[Channel, Member]] = MappingProxyType({})


class ClientInfo(NamedTuple):
    """Who a client says it is."""

    client_id: str
    language: LanguageCode
    version: int


class Member:
    """A client in a group, by one of its connections."""

    __slots__ = ("channel", "heard_ms", "info")

    def __init__(self, channel: Channel, info: ClientInfo, heard_ms: int) -> None:
        self.channel = channel
        self.info = info
        self.heard_ms = heard_ms

    def __repr__(self) -> str:
        return f"Member({self.info.client_id} at {self.channel.remote_address}, {self.info.language.name} {self.info.version})"


class Memberships:
    """The members of all groups, found by group or by connection."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Channel, Member]] = {}
        self._groups_by_channel: dict[Channel, dict[str, None]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def members(self, group: str) -> Mapping[Channel, Member]:
        """The members of a group, in the order they joined."""
        return self._groups.get(group, _NOBODY)

    def groups_of(self, channel: Channel) -> list[str]:
        """The groups that are joined by a connection."""
        return list(self._groups_by_channel.get(channel, ()))

    def join(self, group: str, channel: Channel, info: ClientInfo, now_ms: int) -> bool:
        """Let a client be a member, or hear that it still is; whether it was none before."""
        members = self._groups.setdefault(group, {})
        member = members.get(channel)
        if member is None:
            members[channel] = Member(channel, info, now_ms)
            self._groups_by_channel.setdefault(channel, {})[group] = None
            return True
        member.info = info
        member.heard_ms = now_ms
        return False

    def leave(self, group: str, channel: Channel) -> Member | None:
        """Take a member away; None when there is no such one."""
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
        """Take a sign of life from every member."""
        for members in self._groups.values():
            for member in members.values():
                member.heard_ms = now_ms

    def silent(self, now_ms: int) -> list[tuple[str, Member]]:
        """The members that were not heard of for too long, and their groups."""
        return [
            (group, member)
            for group, members in self._groups.items()
            for member in members.values()
            if now_ms - member.heard_ms > SILENCE_MS_MAX
        ]
