"""Removes brokers: silent ones when they expire, those with a closed connection at once.

Knows neither sockets nor the event loop: their owner runs the slices of `scan` every
`scanNotActiveBrokerInterval` and those of `connection_closed` for each closed connection.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final, Protocol, cast

from orbitmq.common.clock import Clock
from orbitmq.common.slices import Slices
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.nameserver.notices import MinBrokerIdNotices
from orbitmq.nameserver.route_table import RouteTable

CONFIG_LOG_FIRST_MS: Final = 60_000
CONFIG_LOG_PERIOD_MS: Final = 600_000

log = logging.getLogger(__name__)


class Connection(Hashable, Protocol):
    """A peer's connection, equal only to itself."""

    @property
    def remote_address(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    def close(self, reason: str) -> None: ...


class Housekeeping:
    """The periodic work of a name server."""

    def __init__(
        self, table: RouteTable, kv_config: KvConfig, notices: MinBrokerIdNotices, clock: Clock
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._notices = notices
        self._clock = clock
        self._next_config_log_ms = clock.monotonic_ms() + CONFIG_LOG_FIRST_MS

    def scan(self) -> Slices[None]:
        """Remove the brokers that were silent for too long and close their connections; now and
        then log the KV configuration.
        """
        now_ms = self._clock.monotonic_ms()
        self._notices.send((yield from self._table.expire(now_ms, _close)))
        if now_ms >= self._next_config_log_ms:
            self._next_config_log_ms = now_ms + CONFIG_LOG_PERIOD_MS
            yield from self._kv_config.log_tables()

    def connection_closed(self, connection: Connection) -> Slices[None]:
        """Remove the brokers that registered on a closed connection."""
        self._notices.send((yield from self._table.connection_closed(connection)))


def _close(connection: Hashable) -> None:
    peer = cast("Connection", connection)
    log.warning("broker_expired connection=%s", peer.remote_address)
    peer.close("the broker that registered on it was silent for longer than its heartbeat timeout")
