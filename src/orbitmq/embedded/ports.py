"""Ports for brokers: free ones are found, and kept for as long as somebody may come back to them."""

from __future__ import annotations

import socket
from typing import Final

from orbitmq.common.errors import ConfigurationError

FAST: Final = -2  # the distance from a broker's port to its fast one
REPLICATION: Final = 1
_TRIES: Final = 50


def free_port(host: str) -> int:
    """A port on which nothing listens, nor on the two that a broker takes beside it."""
    with KeptPort(host) as kept:
        return kept.port


class KeptPort:
    """A free port and those beside it, which nobody else gets until `close`.

    They are bound and not listened on: whoever connects is refused, and a server that binds them with SO_REUSEADDR may.
    """

    def __init__(self, host: str) -> None:
        self._sockets: list[socket.socket] = []
        for _ in range(_TRIES):
            try:
                self.port = self._bind(host, 0)
                for distance in (FAST, REPLICATION):
                    self._bind(host, self.port + distance)
            except (OSError, OverflowError):
                self.close()
            else:
                return
        raise ConfigurationError(f"no free port was found on {host} in {_TRIES} tries; give one with --broker-port")

    def __enter__(self) -> KeptPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _bind(self, host: str, port: int) -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sockets.append(bound := socket.socket(family))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        return int(bound.getsockname()[1])
