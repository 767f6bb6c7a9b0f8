"""Ports for servers of tests, that no other process gets in the meantime."""

from __future__ import annotations

from collections import deque
from typing import Final

from orbitmq.embedded.ports import ReservedPort

_KEPT: Final[deque[ReservedPort]] = deque(maxlen=64)  # of one test process: 3 sockets each


def free_port(host: str) -> int:
    """Return a port that is free, with those beside it that a broker uses.

    It stays reserved, so that it is not the local port of a connection that somebody opens before
    the server listens, or while it is restarted.
    """
    if len(_KEPT) == _KEPT.maxlen:
        _KEPT.popleft().close()
    _KEPT.append(reserved := ReservedPort(host))
    return reserved.port
