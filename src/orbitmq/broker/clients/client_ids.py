"""Ownership of client ids. Messages for a client go to the connection with its id, so no other user
may claim the id while the client lives.

Sans-IO: time comes in as `now_ms` of the monotonic clock, connections are keys. With access control
an id belongs to the user that used it first, until its last connection unregistered, or closed
SILENCE_MS_MAX ago: reconnecting takes less. Without access control there are no users, and the
newest connection has the id.

Invariants: an id in use has one user; the number of ids per connection, and of ids that wait for
their users to reconnect, is limited.
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.broker.clients.registry import SILENCE_MS_MAX, Peer

IDS_PER_CONNECTION_MAX: Final = 16  # a client has one
ID_CHARS_MAX: Final = 1024  # an address and some names; it appears in log lines, replies and tables
WAITING_MAX: Final = 100_000  # ids without a connection; the oldest are evicted first

log = logging.getLogger(__name__)


class _Owner:
    """The user of an id, and the connections that use it, newest last."""

    __slots__ = ("channels", "user")

    def __init__(self, user: str | None) -> None:
        self.user = user
        self.channels: dict[Peer, None] = {}


class ClientIds:
    """The ids of the clients that are online, or were a moment ago."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        self._used: dict[Peer, dict[str, None]] = {}
        self._waiting: dict[
            str, int
        ] = {}  # ids without a connection, with the time the last one closed; oldest first

    def __len__(self) -> int:
        return len(self._owners)

    def problem(self, client_id: str, user: str | None) -> str | None:
        """Return why a user may not act as a client; None if it may."""
        if len(client_id) > ID_CHARS_MAX:
            return (
                f"this client id has {len(client_id)} characters, and {ID_CHARS_MAX} are the most"
                " allowed; set a shorter instance name"
            )
        owner = self._owners.get(client_id)
        if owner is None or owner.user == user or user is None:
            return None
        return (
            f"client id {client_id[:80]} belongs to another user; set an instance name of your own,"
            f" or wait until the other has been gone for {SILENCE_MS_MAX // 1000} s"
        )

    def use(self, client_id: str, user: str | None, channel: Peer) -> str | None:
        """Register the connection of a client; return why that is not allowed, if so: then nothing
        changed.
        """
        problem = self.problem(client_id, user)
        if problem is not None:
            return problem
        used = self._used.get(channel, {})
        if client_id in used:
            return None
        if len(used) >= IDS_PER_CONNECTION_MAX:
            return (
                f"this connection has {len(used)} client ids, the most allowed; open another"
                " connection for more"
            )
        owner = self._owners.get(client_id)
        if owner is None:
            owner = self._owners[client_id] = _Owner(user)
        elif owner.channels:
            before = next(reversed(owner.channels)).remote_address
            log.warning(
                "client_id_moved client=%s user=%s peer=%s before=%s",
                client_id,
                user or "-",
                channel.remote_address,
                before,
            )
        owner.channels[channel] = None
        self._waiting.pop(client_id, None)
        self._used.setdefault(channel, {})[client_id] = None
        return None

    def left(self, channel: Peer) -> None:
        """Forget the ids of a connection whose clients unregistered."""
        for client_id in self._without(channel):
            del self._owners[client_id]

    def on_close(self, channel: Peer, now_ms: int) -> None:
        """Note that a connection closed: its users may reclaim their ids, others have to wait."""
        for client_id in self._without(channel):
            if self._owners[client_id].user is None:
                del self._owners[client_id]
            else:
                self._waiting[client_id] = now_ms
        while len(self._waiting) > WAITING_MAX:
            self._forget_oldest()

    def scan(self, now_ms: int) -> None:
        """Forget the ids whose users did not reconnect."""
        while self._waiting and now_ms - next(iter(self._waiting.values())) > SILENCE_MS_MAX:
            self._forget_oldest()

    def _without(self, channel: Peer) -> list[str]:
        """Remove a connection; return the ids that have none left."""
        used = list(self._used.pop(channel, ()))
        for client_id in used:
            del self._owners[client_id].channels[channel]
        return [client_id for client_id in used if not self._owners[client_id].channels]

    def _forget_oldest(self) -> None:
        client_id = next(iter(self._waiting))
        del self._waiting[client_id], self._owners[client_id]
