"""Finds free ports for brokers, and reserves them until they are no longer needed."""

from __future__ import annotations

import socket
from typing import Final

from orbitmq.common.errors import ConfigurationError

FAST: Final = -2  # offset of a broker's fast port from its main port
REPLICATION: Final = 1
_TRIES: Final = 50


class ReservedPort:
    """A port, with those beside it, that is free on all given addresses and reserved until `close`.

    The ports are bound but not listened on: connections are refused, and a server that binds them
    with SO_REUSEADDR may use them.
    """

    def __init__(self, *hosts: str) -> None:
        self._sockets: list[socket.socket] = []
        first, *others = hosts
        for _ in range(_TRIES):
            try:
                self.port = port = self._bind(first, 0)
                for host, distances in [
                    (first, (FAST, REPLICATION)),
                    *((other, (0, FAST, REPLICATION)) for other in others),
                ]:
                    for distance in distances:
                        self._bind(host, port + distance)
            except (OSError, OverflowError):
                self.close()
            else:
                return
        raise ConfigurationError(
            f"no free port was found on {' and '.join(hosts)} in {_TRIES} attempts: choose one with"
            " --broker-port"
        )

    def __enter__(self) -> ReservedPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the ports."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _bind(self, host: str, port: int) -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sockets.append(bound := socket.socket(family))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        return int(bound.getsockname()[1])
