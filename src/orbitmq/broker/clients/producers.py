"""Producers: which clients produce for which group, and through which connection each is reached.

Sans-IO: time comes in as `now_ms`, connections to close go out as return values. Invariant: a
client is found by its id as long as it is a member of any group, through the connection that joined
last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from orbitmq.broker.clients.registry import ClientInfo, Member, Memberships, Peer

log = logging.getLogger(__name__)


class Producers:
    """The producer groups that are online."""

    def __init__(self) -> None:
        self._memberships = Memberships()
        self._channels: dict[
            str, dict[Peer, int]
        ] = {}  # number of groups by client id and connection, newest last
        self._turn = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._memberships)

    def __len__(self) -> int:
        return len(self._memberships)

    def members(self, group: str) -> Mapping[Peer, Member]:
        """Return the members of a group by connection; empty if it is not online."""
        return self._memberships.members(group)

    def groups(self) -> dict[str, list[Member]]:
        """Return every group that is online, and its members."""
        return {
            group: list(self._memberships.members(group).values()) for group in self._memberships
        }

    def channel_of_client(self, client_id: str) -> Peer | None:
        """Return the connection that reaches a client."""
        channels = self._channels.get(client_id)
        return next(reversed(channels)) if channels else None

    def any_channel(self, group: str) -> Peer | None:
        """Return a connection to one of the group's members, round-robin; one that reads its data
        is preferred.
        """
        channels = [channel for channel in self._memberships.members(group) if channel.is_open]
        self._turn += 1
        ready = [channel for channel in channels if channel.is_reading] or channels
        return ready[self._turn % len(ready)] if ready else None

    def register(self, group: str, channel: Peer, info: ClientInfo, now_ms: int) -> bool:
        """Register a client in a group; return whether it is new there."""
        before = self._memberships.members(group).get(channel)
        old_id = None if before is None else before.info.client_id
        joined = self._memberships.join(group, channel, info, now_ms)
        if joined:
            log.info(
                "producer_joined group=%s client=%s peer=%s",
                group,
                info.client_id,
                channel.remote_address,
            )
        if joined or old_id != info.client_id:
            channels = self._channels.setdefault(info.client_id, {})
            channels[channel] = channels.pop(channel, 0) + 1  # moves it to the end
        if old_id is not None and old_id != info.client_id:
            self._left_a_group(old_id, channel)
        return joined

    def unregister(self, group: str, channel: Peer) -> bool:
        """Remove a client from a group; return whether it was a member."""
        member = self._memberships.leave(group, channel)
        if member is None:
            return False
        log.info(
            "producer_left group=%s client=%s peer=%s",
            group,
            member.info.client_id,
            channel.remote_address,
        )
        self._left_a_group(member.info.client_id, channel)
        return True

    def on_close(self, channel: Peer) -> Iterator[str]:
        """Remove a closed connection from its groups, one per step of the iterator."""
        for group in self._memberships.groups_of(channel):
            self.unregister(group, channel)
            yield group

    def groups_of(self, channel: Peer) -> list[str]:
        """Return the groups that a connection has joined."""
        return self._memberships.groups_of(channel)

    def hear_all(self, now_ms: int) -> None:
        """Count as a heartbeat from every client."""
        self._memberships.hear_all(now_ms)

    def scan(self, now_ms: int) -> Iterator[Peer]:
        """Remove the clients that were silent for too long, one per step; yield their connections,
        to be closed.
        """
        for group, member in self._memberships.silent(now_ms):
            if self.unregister(group, member.channel):
                log.warning(
                    "producer_expired group=%s client=%s peer=%s",
                    group,
                    member.info.client_id,
                    member.channel.remote_address,
                )
                yield member.channel

    def _left_a_group(self, client_id: str, channel: Peer) -> None:
        """Forget the connection of a client, unless it is in another group through it."""
        channels = self._channels[client_id]
        channels[channel] -= 1
        if channels[channel] == 0:
            del channels[channel]
        if not channels:
            del self._channels[client_id]
