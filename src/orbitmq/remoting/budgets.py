"""Kernel: limits the unsent and unfinished bytes that all connections of a process hold together.

Servers that share a `Budgets` share its limits, plaintext and TLS alike. Connections add only bytes
that stay behind: bytes that were sent or handled at once are never counted. When a sum exceeds its
limit, the connection that holds most is closed, the oldest among equals, until the others fit.

Invariant: after `relieve` both sums are within their limits. It frees the bytes of a closed
connection at once; the owner of the connection is notified later, outside of the handler whose
write exceeded the limit.
"""

from collections.abc import Callable, Iterable
from typing import Any

import cython

UNSENT_KEY = "maxUnsentBytes"
UNFINISHED_KEY = "maxPendingBytes"


@cython.cclass
class Budgets:
    """The sums and their limits. `unsent` and `unfinished` are updated by the connections
    themselves.
    """

    unsent: cython.Py_ssize_t
    unfinished: cython.Py_ssize_t
    unsent_max: cython.Py_ssize_t
    unfinished_max: cython.Py_ssize_t
    handshakes: dict[Any, Any]
    _servers: list[Any]

    def __init__(self, *, unsent_max: int, unfinished_max: int) -> None:
        self.unsent = 0
        self.unfinished = 0
        self.unsent_max = unsent_max
        self.unfinished_max = unfinished_max
        self.handshakes = {}  # TLS handshakes in progress, oldest first; maintained by `TlsPeers`
        self._servers = []

    def join(self, links: Callable[[], Iterable[Any]]) -> None:
        """Add the connections that `links` returns, oldest first, to those that may be closed."""
        self._servers.append(links)

    def leave(self, links: Callable[[], Iterable[Any]]) -> None:
        """Remove the connections of a stopped server."""
        self._servers.remove(links)

    def relieve(self) -> None:
        """Close the connections that hold most until both sums are within their limits; the oldest
        first among equals.
        """
        links = [link for links_of in self._servers for link in links_of()]
        if self.unsent > self.unsent_max:
            # stable: keeps the order of equals
            for link in sorted(links, key=_unsent, reverse=True):
                if self.unsent <= self.unsent_max:
                    break
                link.fail(
                    _exceeded(link.backlog, self.unsent, self.unsent_max, "unsent", UNSENT_KEY)
                )
        if self.unfinished > self.unfinished_max:
            for link in sorted(links, key=_unfinished, reverse=True):
                if self.unfinished <= self.unfinished_max:
                    break
                link.fail(
                    _exceeded(
                        link.unfinished,
                        self.unfinished,
                        self.unfinished_max,
                        "unfinished incoming",
                        UNFINISHED_KEY,
                    )
                )


def _unsent(link: Any) -> int:
    return int(link.backlog)


def _unfinished(link: Any) -> int:
    return int(link.unfinished)


def _exceeded(size: int, total: int, limit: int, what: str, key: str) -> MemoryError:
    return MemoryError(
        f"it holds {size} of the {total} {what} bytes of all connections, which is the most, and"
        f" together they may hold {limit} ({key})"
    )
