"""Ports for brokers: free ones are found, and kept for as long as somebody may come back to them."""

from __future__ import annotations

import socket
from typing import Final

from orbitmq.common.errors import ConfigurationError

FAST: Final = -2  # the distance from a broker's port to its fast one
REPLICATION: Final = 1
_TRIES: Final = 50


def free_port(*hosts: str) -> int:
    """A port on which nothing listens, nor on the two that a broker takes beside it."""
    with KeptPort(*hosts) as kept:
        return kept.port


class KeptPort:
    """A port that is free on every one of some addresses, and those beside it, which nobody else gets until `close`.

    They are bound and not listened on: whoever connects is refused, and a server that binds them with SO_REUSEADDR may.
    """

    def __init__(self, *hosts: str) -> None:
        self._sockets: list[socket.socket] = []
        first, *others = hosts
        for _ in range(_TRIES):
            try:
                self.port = port = self._bind(first, 0)
                for host, distances in [(first, (FAST, REPLICATION)), *((other, (0, FAST, REPLICATION)) for other in others)]:
                    for distance in distances:
                        self._bind(host, port + distance)
            except (OSError, OverflowError):
                self.close()
            else:
                return
        raise ConfigurationError(f"no free port was found on {' and '.join(hosts)} in {_TRIES} tries; give one with --broker-port")

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
