"""The TLS peers of a server: handshakes in progress, their limit and deadline, and connections on
asyncio transports.

A handshake costs memory and time before anything is known about the peer, so their number is
limited. At the limit, the oldest handshake that had `GRACE_MS` is closed for a new one: a stalled
peer blocks no others, and a burst of good peers does not undo its own work.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection
from typing import Final, cast

from orbitmq.common.clock import Clock
from orbitmq.remoting.budgets import Budgets
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.tls import ServerContext
from orbitmq.remoting.tls_transport import TlsTransport
from orbitmq.remoting.transport_link import TransportLink

log = logging.getLogger(__name__)

GRACE_MS: Final = 1_000
PEER_BYTES: Final = 64 * 1024  # allocated by OpenSSL per peer, roughly
HANDSHAKES_KEY: Final = "maxTlsHandshakes"
HANDSHAKE_MS_KEY: Final = "tlsHandshakeTimeoutMillis"


class TlsPeers:
    """The TLS connections of a server, from their first byte on."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        context: ServerContext,
        budgets: Budgets,
        *,
        unsent_max: int,
        handshakes_max: int,
        handshake_ms_max: int,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.budgets = budgets
        self.unsent_max = unsent_max
        self.links: dict[TlsLink, None] = {}  # oldest first
        self._context = context
        self._handshakes_max = handshakes_max
        self._handshake_ms_max = handshake_ms_max
        self._handshakes: dict[asyncio.Task[None], _Handshake] = {}  # oldest first

    def __len__(self) -> int:
        """Return the number of connected peers, including those in the handshake."""
        return len(self.links) + len(self._handshakes)

    @property
    def memory(self) -> int:
        """Estimate the bytes that the peers take besides those counted in the budgets."""
        return len(self) * PEER_BYTES

    def take(self, channel: Channel, peer: socket.socket) -> None:
        """Move a connection to TLS; it keeps its channel, whose end is reported once."""
        now_ms = self.clock.monotonic_ms()
        if not self._has_place(now_ms):
            peer.close()
            self._failed(
                channel,
                f"{self._handshakes_max} handshakes are in progress, the most allowed"
                f" ({HANDSHAKES_KEY})",
            )
            return
        handshake = _Handshake(channel, peer, now_ms)
        task = asyncio.get_running_loop().create_task(self._shake_hands(handshake))
        self._handshakes[task] = self.budgets.handshakes[task] = handshake
        task.add_done_callback(self._over)

    def _has_place(self, now_ms: int) -> bool:
        """Return whether one more handshake may start; if necessary, the oldest is ended for it."""
        going_on = [
            (task, handshake)
            for task, handshake in self.budgets.handshakes.items()
            if handshake.ended_by is None
        ]
        if len(going_on) < self._handshakes_max:
            return True
        task, oldest = going_on[0]
        age_ms = now_ms - oldest.begun_ms
        if age_ms < GRACE_MS:
            return False
        oldest.ended_by = (
            f"it was the oldest of {len(going_on)} handshakes, {age_ms} ms old, and another peer"
            f" came ({HANDSHAKES_KEY})"
        )
        task.cancel()
        return True

    async def _shake_hands(self, handshake: _Handshake) -> None:
        plain: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(self._handshake_ms_max / 1000):
                plain, transport = await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: TlsTransport(self._context.get(), TlsLink(self, handshake.channel)),
                    handshake.peer,
                )
                await transport.handshake
        except TimeoutError:
            handshake.ended_by = (
                f"it took longer than {self._handshake_ms_max} ms ({HANDSHAKE_MS_KEY})"
            )
            raise
        finally:
            if plain is not None and not handshake.channel.is_tls:
                cast("asyncio.Transport", plain).abort()

    def _over(self, task: asyncio.Task[None]) -> None:
        """Remove a handshake; one that failed, or was cancelled before it began, ends its
        connection.
        """
        handshake = self._handshakes.pop(task)
        del self.budgets.handshakes[task]
        problem = None if task.cancelled() else task.exception()
        if task.cancelled() or problem is not None:
            handshake.peer.close()
            if not handshake.channel.is_tls:  # otherwise its transport reports the end
                self._failed(handshake.channel, handshake.ended_by or problem)

    def _failed(self, channel: Channel, why: object) -> None:
        if why is not None:
            log.warning("TLS handshake failed peer=%s why=%s", channel.remote_address, why)
        self.endpoint.closed(
            channel,
            (
                None
                if why is None
                else why
                if isinstance(why, BaseException)
                else ConnectionAbortedError(why)
            ),
        )

    def recounted(self) -> Collection[TlsLink]:
        """Return the connections after updating their bytes in the budgets: transports do not
        report when they have sent something.
        """
        for link in self.links:
            link.count()
        return self.links

    def rest(self) -> None:
        """Accept no more requests."""
        for link in self.links:
            link.reading = False

    async def stop(self, reason: str) -> None:
        """End every handshake and every connection."""
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        while self.links:  # transports report their end in a later iteration of the loop
            for link in list(self.links):
                link.channel.close(reason)
            await asyncio.sleep(0)


class _Handshake:
    """A peer between its first byte and the end of its handshake."""

    __slots__ = ("begun_ms", "channel", "ended_by", "peer")

    def __init__(self, channel: Channel, peer: socket.socket, begun_ms: int) -> None:
        self.channel = channel
        self.peer = peer
        self.begun_ms = begun_ms
        self.ended_by: str | None = None


class TlsLink(TransportLink):
    """A connection after its handshake, and the bytes it holds in the budgets."""

    def __init__(self, peers: TlsPeers, channel: Channel) -> None:
        super().__init__(
            peers.endpoint, peers.clock, unsent_max=peers.unsent_max, is_tls=True, of_server=channel
        )
        self._peers = peers
        self.backlog = 0  # counted in the budgets
        self.unfinished = 0

    def count(self) -> None:
        """Bring the budgets up to date."""
        budgets = self._peers.budgets
        unsent, unfinished = self._held()
        budgets.unsent += unsent - self.backlog
        budgets.unfinished += unfinished - self.unfinished
        self.backlog, self.unfinished = unsent, unfinished

    def _held(self) -> tuple[int, int]:
        if self._transport is None or self._transport.is_closing() or self not in self._peers.links:
            return 0, 0
        return self._transport.get_write_buffer_size(), len(self._pending)

    def _count_and_relieve(self) -> None:
        self.count()
        budgets = self._peers.budgets
        if budgets.unsent > budgets.unsent_max or budgets.unfinished > budgets.unfinished_max:
            budgets.relieve()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._peers.links[self] = None
        super().connection_made(transport)

    def _consume(self) -> None:
        super()._consume()
        if len(self._pending) != self.unfinished:
            self._count_and_relieve()

    def _flush(self) -> None:
        super()._flush()
        assert self._transport is not None
        if (
            self.backlog or self._transport.get_write_buffer_size()
        ):  # some bytes stay behind, or did
            self._count_and_relieve()

    def close(self) -> None:
        super().close()
        self.count()

    def connection_lost(self, error: Exception | None) -> None:
        self._peers.links.pop(self, None)
        self.count()
        super().connection_lost(error)
        self._is_closed = True
        self._of_server, self.channel = (
            None,
            cast("Channel", None),
        )  # breaks the cycle, which would wait for the garbage collector
