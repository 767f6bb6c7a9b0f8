"""The network between simulated hosts: listening addresses, connections, and faults.

Every pair of hosts has a link in each direction (`simulated_link`); a connection uses both
(`simulated_transport`). A connection needs a handshake: the caller's request, the reply, and the
caller's confirmation each cross a link. Without a listener the reply is a refusal; without an
answer the attempt times out. Faults:

- `silence`: packets from one host to another vanish; `partition`: in both directions. Connections
  stay, and go on after `heal` with what was lost, as TCP repeats it;
- `cut`: both ends of each connection see the end of the stream, and bytes on the way are lost;
- `reset`: the same with a ConnectionResetError;
- `slow` and `delay`: bandwidth and delay of a direction.

Thread rule: that of the simulation. Invariant: the seed decides all delays, so hosts and faults
that are the same lead to the same bytes in the same pieces.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final

from orbitmq.testing.network_host import MakeProtocol, NetworkAddress, NetworkHost
from orbitmq.testing.simulated_handshake import Handshake
from orbitmq.testing.simulated_link import SimulatedLink
from orbitmq.testing.simulated_transport import SimulatedTransport
from orbitmq.testing.simulation import Simulation

CONNECT_TIMEOUT_MS: Final = 3_000
_FIRST_FREE_PORT: Final = 32_768


class SimulatedListener:
    """A port on which a process accepts connections, until `close`."""

    def __init__(
        self, address: NetworkAddress, make_protocol: MakeProtocol, close: Callable[[], object]
    ) -> None:
        self.address = address
        self.make_protocol = make_protocol
        self._close = close

    def close(self) -> None:
        """Accept no more connections; those that exist stay."""
        self._close()


class SimulatedNetwork:
    """The hosts of a simulation, and what connects them. Hosts are named by name or address."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._hosts: dict[str, NetworkHost] = {}  # by name
        self._links: dict[tuple[str, str], SimulatedLink] = {}  # by names
        self._listeners: dict[NetworkAddress, SimulatedListener] = {}
        self._ends: dict[str, list[SimulatedTransport]] = {}  # by name of their host
        self._next_port = _FIRST_FREE_PORT

    def join(self, host: NetworkHost) -> None:
        """Add a host, linked to all others and to itself."""
        if host.name in self._hosts:
            raise ValueError(f"there is a host {host.name} already: choose another name")
        self._hosts[host.name] = host
        self._ends[host.name] = []
        for other in self._hosts.values():
            for source, target in ((host, other), (other, host)):
                self._links[source.name, target.name] = SimulatedLink(
                    self._simulation, f"{source.name}>{target.name}", partial(_is_on, target)
                )

    def next_address(self) -> str:
        """Return the IP address for the host that joins next."""
        number = len(self._hosts)
        return f"10.0.{number // 250}.{number % 250 + 1}"

    # -- connections

    def listen(
        self, host: NetworkHost, port: int, make_protocol: MakeProtocol
    ) -> SimulatedListener:
        """Accept connections to a port of the host; 0 chooses a free one."""
        address = host.address, port or self._free_port()
        if address in self._listeners:
            raise OSError(
                errno.EADDRINUSE, f"{host.name} listens on port {port} already: close that listener"
            )
        listener = SimulatedListener(
            address, make_protocol, lambda: self._stop_listening(address, listener)
        )
        self._listeners[address] = listener
        return listener

    def connect(
        self,
        host: NetworkHost,
        target: NetworkAddress,
        make_protocol: MakeProtocol,
        *,
        failed: Callable[[OSError], object],
        timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        """Connect to an address; the protocol gets the connection, or `failed` the error."""
        server = self._host(target[0])
        address, peer_address = (host.address, self._free_port()), (server.address, target[1])
        caller = self._new_end(
            host, server, address=address, peer_address=peer_address, accept=None
        )
        callee = self._new_end(
            server, host, address=peer_address, peer_address=address, accept=self._accept
        )
        caller.peer, callee.peer = callee, caller
        self._ends[host.name].append(caller)
        Handshake(
            host=host,
            end=caller,
            links=(self._links[host.name, server.name], self._links[server.name, host.name]),
            is_served=lambda: peer_address in self._listeners,
            accepted=partial(self._ends[server.name].append, callee),
            make_protocol=make_protocol,
            failed=failed,
        ).start(timeout_ms)

    def _accept(self, end: SimulatedTransport) -> None:
        """Pass a connection to the listening process, or reset it if none listens any more."""
        listener = self._listeners.get(end.get_extra_info("sockname"))
        if listener is None:
            end.abort()
        else:
            end.host.call_soon(partial(end.connect, listener.make_protocol), "accepted")

    # -- faults

    def silence(self, source: str, target: str) -> None:
        """Lose everything that goes from one host to another, until `heal`."""
        self._link(source, target).silence()

    def partition(self, first: str, second: str) -> None:
        """Lose everything between two hosts, until `heal`."""
        self.silence(first, second)
        self.silence(second, first)

    def heal(self, first: str, second: str) -> None:
        """Carry packets in both directions again; lost bytes of open connections are repeated."""
        for link in (self._link(first, second), self._link(second, first)):
            link.heal()

    def heal_all(self) -> None:
        """Heal all links, and remove limits of bandwidth."""
        for link in self._links.values():
            link.bytes_per_s = None
            link.heal()

    def slow(self, source: str, target: str, bytes_per_s: int | None) -> None:
        """Limit the bandwidth of a direction; None removes the limit."""
        self._link(source, target).bytes_per_s = bytes_per_s

    def delay(self, source: str, target: str, *, ms_min: int, ms_max: int) -> None:
        """Set the limits between which the delay of each packet of a direction is chosen."""
        self._link(source, target).delay_ms = (ms_min, ms_max)

    def cut(self, first: str, second: str) -> None:
        """End all connections between two hosts, as a closing proxy does."""
        self._end_all(first, second, None)

    def reset(self, first: str, second: str) -> None:
        """Reset all connections between two hosts, at both ends."""
        self._end_all(first, second, ConnectionResetError("the network reset the connection"))

    def _end_all(self, first: str, second: str, error: Exception | None) -> None:
        one, other = self._host(first), self._host(second)
        for host, peer in ((one, other), (other, one)):
            for end in self._open_ends(host):
                if end.is_connected and end.get_extra_info("peername")[0] == peer.address:
                    delay_ms = self._simulation.random.randint(*self._link(first, second).delay_ms)
                    self._simulation.call_later_ms(delay_ms, partial(end.end, error))

    # -- the life of hosts

    def drop_host(self, host: NetworkHost, *, with_resets: bool) -> None:
        """End all connections and listeners of a process that died; its peers get resets, or hear
        nothing if the machine died with it.
        """
        for address in [each for each in self._listeners if each[0] == host.address]:
            del self._listeners[address]
        for end in self._open_ends(host):
            if with_resets:
                end.reset_peer()
            end.vanish()

    def host_is_on(self, host: NetworkHost) -> None:
        """Repeat what was sent to a machine while it had no power."""
        for (_, target), link in self._links.items():
            if target == host.name:
                link.repeat_lost()

    # -- inside

    def _host(self, name: str) -> NetworkHost:
        for host in self._hosts.values():
            if name in (host.name, host.address):
                return host
        raise ValueError(f"there is no host {name}: those that joined are {', '.join(self._hosts)}")

    def _link(self, source: str, target: str) -> SimulatedLink:
        return self._links[self._host(source).name, self._host(target).name]

    def _stop_listening(self, address: NetworkAddress, listener: SimulatedListener) -> None:
        if self._listeners.get(address) is listener:
            del self._listeners[address]

    def _open_ends(self, host: NetworkHost) -> list[SimulatedTransport]:
        ends = self._ends[host.name]
        ends[:] = [end for end in ends if not end.is_over]
        return list(ends)

    def _new_end(
        self,
        host: NetworkHost,
        peer: NetworkHost,
        *,
        address: NetworkAddress,
        peer_address: NetworkAddress,
        accept: Callable[[SimulatedTransport], object] | None,
    ) -> SimulatedTransport:
        return SimulatedTransport(
            host=host,
            link=self._links[host.name, peer.name],
            random=self._simulation.random,
            address=address,
            peer_address=peer_address,
            accept=accept,
        )

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _is_on(host: NetworkHost) -> bool:
    return host.is_on
