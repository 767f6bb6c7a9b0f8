"""Producers: which clients produce for which group, and on which connection each is reached.

Sans-IO: time comes in as `now_ms`, connections to close go out as return values. Invariant: a client is found by its id as long as it is
a member of any group, on the connection that joined last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from orbitmq.broker.clients import ClientInfo, Member, Memberships
from orbitmq.remoting.channel import Channel

log = logging.getLogger(__name__)


class Producers:
    """The producer groups that are online."""

    def __init__(self) -> None:
        self._memberships = Memberships()
        self._channels: dict[str, dict[Channel, int]] = {}  # by client id and connection, newest last: in how many groups
        self._turn = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._memberships)

    def __len__(self) -> int:
        return len(self._memberships)

    def members(self, group: str) -> Mapping[Channel, Member]:
        """The members of a group by connection; nobody when it is not online."""
        return self._memberships.members(group)

    def groups(self) -> dict[str, list[Member]]:
        """Every group that is online, and its members."""
        return {group: list(self._memberships.members(group).values()) for group in self._memberships}

    def channel_of_client(self, client_id: str) -> Channel | None:
        """Where a client is reached."""
        channels = self._channels.get(client_id)
        return next(reversed(channels)) if channels else None

    def any_channel(self, group: str) -> Channel | None:
        """A connection to one of the group's members, another one at each call; one that takes what is sent to it if there is any."""
        channels = [channel for channel in self._memberships.members(group) if channel.is_open]
        self._turn += 1
        ready = [channel for channel in channels if channel.link.reading] or channels
        return ready[self._turn % len(ready)] if ready else None

    def register(self, group: str, channel: Channel, info: ClientInfo, now_ms: int) -> bool:
        """Hear that a client produces for a group; whether it is new there."""
        before = self._memberships.members(group).get(channel)
        old_id = None if before is None else before.info.client_id
        joined = self._memberships.join(group, channel, info, now_ms)
        if joined:
            log.info("producer_joined group=%s client=%s peer=%s", group, info.client_id, channel.remote_address)
        if joined or old_id != info.client_id:
            channels = self._channels.setdefault(info.client_id, {})
            channels[channel] = channels.pop(channel, 0) + 1  # which makes it the last
        if old_id is not None and old_id != info.client_id:
            self._left_a_group(old_id, channel)
        return joined

    def unregister(self, group: str, channel: Channel) -> bool:
        """Take a client out of a group; whether it was in it."""
        member = self._memberships.leave(group, channel)
        if member is None:
            return False
        log.info("producer_left group=%s client=%s peer=%s", group, member.info.client_id, channel.remote_address)
        self._left_a_group(member.info.client_id, channel)
        return True

    def on_close(self, channel: Channel) -> Iterator[str]:
        """Take a connection that is gone out of its groups, one for each step of the iterator."""
        for group in self._memberships.groups_of(channel):
            self.unregister(group, channel)
            yield group

    def groups_of(self, channel: Channel) -> list[str]:
        """The groups that are joined by a connection."""
        return self._memberships.groups_of(channel)

    def hear_all(self, now_ms: int) -> None:
        """Take a sign of life from every client."""
        self._memberships.hear_all(now_ms)

    def scan(self, now_ms: int) -> Iterator[Channel]:
        """Take away the clients that were silent for too long, one for each step; their connections are to be closed."""
        for group, member in self._memberships.silent(now_ms):
            if self.unregister(group, member.channel):
                log.warning("producer_expired group=%s client=%s peer=%s", group, member.info.client_id, member.channel.remote_address)
                yield member.channel

    def _left_a_group(self, client_id: str, channel: Channel) -> None:
        """The client is reached by the connection no more, unless it is in another group by it."""
        channels = self._channels[client_id]
        channels[channel] -= 1
        if channels[channel] == 0:
            del channels[channel]
        if not channels:
            del self._channels[client_id]
