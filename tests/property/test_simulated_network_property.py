"""Any faults, in any order: what a simulated connection delivers is a prefix of what was written,
everything if it survives, and the same seed gives the same events.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.testing.simulated_host import SimulatedHost
from orbitmq.testing.simulated_network import SimulatedNetwork
from orbitmq.testing.simulated_transport import SimulatedTransport
from orbitmq.testing.simulation import Simulation

NAMES = ("a", "b")
ENDS = ("cut", "reset", "close", "abort", "kill", "lose_power")

sides = st.integers(0, 1)
gentle = st.one_of(
    st.tuples(st.just("write"), sides, st.integers(1, 100_000)),
    st.tuples(st.sampled_from(["silence", "pause_reading", "resume_reading"]), sides, st.just(0)),
    st.tuples(st.sampled_from(["pause", "resume"]), sides, st.just(0)),
    st.tuples(st.just("slow"), sides, st.integers(5_000, 1_000_000)),
    st.tuples(st.just("delay"), sides, st.integers(0, 300)),
    st.tuples(st.just("heal"), sides, st.just(0)),
    st.tuples(st.just("wait"), sides, st.integers(0, 2_000)),
)
rough = st.tuples(st.sampled_from(ENDS), sides, st.just(0))
Action = tuple[str, int, int]


class Side(asyncio.Protocol):
    """One end: a numbered stream of its own bytes, and what it got."""

    def __init__(self, salt: int) -> None:
        self.salt = salt
        self.written = bytearray()
        self.got = bytearray()
        self.lost = 0
        self.transport: SimulatedTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self.transport is None
        self.transport = cast("SimulatedTransport", transport)

    def data_received(self, data: bytes) -> None:
        assert not self.lost
        assert data
        self.got += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost += 1

    def write(self, size: int) -> None:
        assert self.transport is not None
        if not self.transport.is_closing():
            first = len(self.written)
            data = bytes((each * self.salt) & 0xFF for each in range(first, first + size))
            self.written += data
            self.transport.write(data)


class Conversation:
    """One connection between two hosts, to which actions happen."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.simulation = Simulation(seed)
        self.network = SimulatedNetwork(self.simulation)
        self.hosts = [
            SimulatedHost(
                name, simulation=self.simulation, network=self.network, folder=folder / name
            )
            for name in NAMES
        ]
        self.sides = [Side(7), Side(11)]
        self.failures: list[OSError] = []
        for host in self.hosts:
            host.start(lambda host: None)
        self.hosts[1].listen(1, lambda: self.sides[1])
        self.hosts[0].connect(("b", 1), lambda: self.sides[0], failed=self.failures.append)
        self.simulation.run_until(lambda: all(side.transport for side in self.sides), 1_000)

    def act(self, action: Action) -> None:
        name, at, number = action
        side, host = self.sides[at], self.hosts[at]
        ways = NAMES[at], NAMES[1 - at]
        if name == "write" and host.is_running and not host.is_paused:
            side.write(number)
        elif name == "silence":
            self.network.silence(*ways)
        elif name == "slow":
            self.network.slow(*ways, number)
        elif name == "delay":
            self.network.delay(*ways, ms_min=number // 2, ms_max=number)
        elif name in ("heal", "cut", "reset"):
            getattr(self.network, name)(*ways)
        elif name in ("pause_reading", "resume_reading", "close", "abort"):
            getattr(side.transport, name)()
        elif name in ("pause", "resume", "kill", "lose_power"):
            getattr(host, name)()
        elif name == "wait":
            self.simulation.run_for(number)
        self.check()

    def check(self) -> None:
        for side, other in (self.sides, self.sides[::-1]):
            assert side.written.startswith(other.got)
            assert side.lost <= 1

    def settle(self) -> None:
        """End all faults, and let everything arrive."""
        self.network.heal_all()
        for side, host in zip(self.sides, self.hosts, strict=True):
            host.resume()
            if side.transport is not None and host.is_running:
                side.transport.resume_reading()
        self.simulation.run_for(600_000)
        self.check()


def run(seed: int, actions: list[Action]) -> Conversation:
    with tempfile.TemporaryDirectory() as folder:
        conversation = Conversation(seed, Path(folder))
        with conversation.simulation:
            for action in actions:
                conversation.act(action)
            conversation.settle()
        return conversation


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.lists(gentle, max_size=12))
def test_a_connection_that_is_not_ended_delivers_everything(
    seed: int, actions: list[Action]
) -> None:
    conversation = run(seed, actions)
    one, other = conversation.sides
    assert (one.got, other.got) == (other.written, one.written)
    assert one.lost == other.lost == 0


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.lists(gentle | rough, max_size=12))
def test_a_connection_that_ends_somehow_delivers_a_prefix_and_ends_once(
    seed: int, actions: list[Action]
) -> None:
    conversation = run(seed, actions)
    for name, at, _ in actions:
        if name == "close" and not any(each in ENDS for each, _, _ in actions if each != "close"):
            assert conversation.sides[at].lost == 1


@settings(max_examples=50)
@given(st.integers(0, 1 << 32), st.lists(gentle | rough, max_size=12))
def test_the_same_seed_gives_the_same_events(seed: int, actions: list[Action]) -> None:
    traces = [run(seed, actions).simulation.trace for _ in range(2)]
    assert list(traces[0].lines) == list(traces[1].lines)
    assert traces[0].digest() == traces[1].digest()
