"""Filter servers: processes of RocketMQ 4.9 that filter messages with Java classes. They register
here, and name servers advertise them to clients.

This broker starts none (docs/decisions/0007-filter-servers.md). Sans-IO: time comes in as `now_ms`
of the monotonic clock, connections to close go out. Invariant: a filter server is known from its
first registration until its connection ends or it was silent for too long; one that registers again
on the same connection keeps its first address, as in Apache RocketMQ.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from orbitmq.broker.clients.registry import Peer

SILENCE_MS_MAX: Final = 30_000

log = logging.getLogger(__name__)


class _FilterServer(NamedTuple):
    address: str
    heard_ms: int


class FilterServers:
    """The filter servers that are alive."""

    def __init__(self) -> None:
        self._servers: dict[Peer, _FilterServer] = {}

    @property
    def addresses(self) -> list[str]:
        """Return their addresses, as registrations with name servers list them."""
        return [server.address for server in self._servers.values()]

    def register(self, channel: Peer, address: str, now_ms: int) -> None:
        """Register a filter server, or renew its registration."""
        known = self._servers.get(channel)
        if known is None:
            log.info("filter_server_joined address=%s peer=%s", address, channel.remote_address)
        self._servers[channel] = _FilterServer(address if known is None else known.address, now_ms)

    def on_close(self, channel: Peer) -> None:
        """Remove the filter server of a closed connection."""
        server = self._servers.pop(channel, None)
        if server is not None:
            log.info(
                "filter_server_left address=%s peer=%s", server.address, channel.remote_address
            )

    def scan(self, now_ms: int) -> list[Peer]:
        """Remove those that were silent for too long; return their connections, to be closed."""
        silent = {
            channel: server
            for channel, server in self._servers.items()
            if now_ms - server.heard_ms > SILENCE_MS_MAX
        }
        for channel, server in silent.items():
            log.warning(
                "filter_server_expired address=%s peer=%s", server.address, channel.remote_address
            )
            del self._servers[channel]
        return list(silent)
