"""What the tests of the simulated network share: two hosts, and protocols that record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from orbitmq.testing.simulated_host import SimulatedHost
from orbitmq.testing.simulated_network import SimulatedNetwork
from orbitmq.testing.simulated_transport import SimulatedTransport
from orbitmq.testing.simulation import Simulation, SimulationTimeoutError

PORT = 9000


class Recorder(asyncio.Protocol):
    """Records what a connection brings."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self.stays_open = False  # when the peer ends its stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")
        self.transport = cast("SimulatedTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.pieces.append(len(data))
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("end")
        return self.stays_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self.events.append("lost")

    @property
    def is_lost(self) -> bool:
        return "lost" in self.events


def nothing(host: SimulatedHost) -> None:
    """Be a program that sets up nothing."""


def new_host(folder: Path, seed: int = 1, **settings: object) -> tuple[Simulation, SimulatedHost]:
    simulation = Simulation(seed)
    network = SimulatedNetwork(simulation)
    host = SimulatedHost(
        "a",
        simulation=simulation,
        network=network,
        folder=folder,
        **settings,  # type: ignore[arg-type]
    )
    return simulation, host


class Pair:
    """Two hosts, `a` and `b`; b listens."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.network = SimulatedNetwork(self.simulation)
        self.a, self.b = (
            SimulatedHost(
                name, simulation=self.simulation, network=self.network, folder=folder / name
            )
            for name in ("a", "b")
        )
        self.accepted: list[Recorder] = []
        self.failures: list[OSError] = []
        self.a.start(nothing)
        self.b.start(self.serve)
        self.simulation.run_for(1)

    def serve(self, host: SimulatedHost) -> None:
        host.listen(PORT, self.make_server)

    def make_server(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    def dial(self, port: int = PORT) -> Recorder:
        """Begin to connect a to b."""
        client = Recorder()
        self.a.connect(("b", port), lambda: client, failed=self.failures.append)
        return client

    def connect(self) -> tuple[Recorder, Recorder]:
        """Return the client's and the server's end of a new connection."""
        client, count = self.dial(), len(self.accepted)
        self.until(lambda: client.events and len(self.accepted) > count)
        return client, self.accepted[-1]

    def until(self, condition: Callable[[], object], within_ms: int = 10_000) -> None:
        self.simulation.run_until(condition, within_ms)

    def never(self, condition: Callable[[], object], within_ms: int = 60_000) -> None:
        with pytest.raises(SimulationTimeoutError):
            self.until(condition, within_ms)
