"""The begin of a simulated connection: request, reply and confirmation each cross a link.

The request is repeated while packets are lost, until the time is up. Without a listener the reply
is a refusal. The confirmation precedes the caller's bytes; when it arrives, the network passes the
other end to the listening process. Invariant: the caller's process learns one outcome: a
connection, which may be over already, or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orbitmq.testing.network_host import MakeProtocol, NetworkHost
from orbitmq.testing.simulated_link import LinkPacket, SimulatedLink
from orbitmq.testing.simulated_transport import SimulatedTransport


class Handshake:
    """One attempt to connect; `is_served` returns whether a process listens."""

    def __init__(
        self,
        *,
        host: NetworkHost,
        end: SimulatedTransport,
        links: tuple[SimulatedLink, SimulatedLink],
        is_served: Callable[[], bool],
        accepted: Callable[[], object],
        make_protocol: MakeProtocol,
        failed: Callable[[OSError], object],
    ) -> None:
        self._host = host
        self._end = end  # the caller's
        self._there, self._back = links
        self._is_served = is_served
        self._accepted = accepted
        self._make_protocol = make_protocol
        self._failed = failed
        self._is_done = False

    def start(self, timeout_ms: int) -> None:
        """Send the request."""
        self._send(self._there, "connect", self._requested)
        text = f"{self._there.name}: no reply within {timeout_ms} ms; the host is off or cut off"
        self._host.call_later_ms(
            timeout_ms, partial(self._fail, TimeoutError(text)), "connect timeout"
        )

    def _send(self, link: SimulatedLink, what: str, arrive: Callable[[], object]) -> None:
        link.send(LinkPacket(what=what, arrive=arrive, is_repeated=lambda: not self._is_over))

    @property
    def _is_over(self) -> bool:
        return self._is_done or self._end.is_over

    def _requested(self) -> None:
        if self._is_served():
            self._send(self._back, "accepted", self._confirm)
        else:
            _, port = self._end.get_extra_info("peername")
            text = f"{self._there.name}: nothing listens on port {port}"
            self._send(self._back, "refused", partial(self._fail, ConnectionRefusedError(text)))

    def _confirm(self) -> None:
        if not self._is_over:
            self._is_done = True
            self._accepted()
            self._end.complete_handshake()
            self._host.call_soon(partial(self._end.connect, self._make_protocol), "connected")

    def _fail(self, error: OSError) -> None:
        if not self._is_over:
            self._is_done = True
            self._end.vanish()
            self._host.call_soon(partial(self._failed, error), "connect failed")
