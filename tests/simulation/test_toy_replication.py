"""A whole system in a simulation: two hosts that replicate bytes, killed, without power, cut off
and paused as the seed decides, and a history that is checked. A toy that acknowledges too early is
found out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.testing.histories import MessageHistory, MessageReport
from orbitmq.testing.simulated_host import SimulatedHost
from orbitmq.testing.simulated_network import SimulatedNetwork
from orbitmq.testing.simulation import Simulation, seeds_to_run
from simulation.toy_replication import QUEUE, Follower, Leader, log_of

FAULTS = (
    "kill",
    "lose_power",
    "pause",
    "partition",
    "silence",
    "cut",
    "reset",
    "slow",
    "delay",
)
STEPS = 25


class ToyCluster:
    """A leader, a follower and a client, and faults that the seed chooses."""

    def __init__(
        self,
        simulation: Simulation,
        folder: Path,
        *,
        waits_for_disks: bool = True,
    ) -> None:
        self.simulation = simulation
        self.history = MessageHistory()
        self.network = SimulatedNetwork(simulation)
        self.hosts = {
            name: SimulatedHost(
                name,
                simulation=simulation,
                network=self.network,
                folder=folder / name,
                skew_ms=skew_ms,
            )
            for name, skew_ms in (("leader", 0), ("follower", -400))
        }
        self._waits_for_disks = waits_for_disks
        self._count = 0
        self._is_sending = True
        for host in self.hosts.values():
            host.start(self.program)

    def program(self, host: SimulatedHost) -> None:
        if host.name == "leader":
            Leader(host, self.history, self._next_message, waits_for_disks=self._waits_for_disks)
        else:
            Follower(host)

    def _next_message(self) -> str | None:
        if not self._is_sending:
            return None
        self._count += 1
        return f"m{self._count}"

    def break_something(self) -> None:
        """Let the next fault happen."""
        random, network = self.simulation.random, self.network
        host = random.choice(list(self.hosts.values()))
        one, other = random.sample(list(self.hosts), 2)
        fault = random.choice(FAULTS)
        self.simulation.note(f"{fault} {host.name} {one}>{other}")
        if fault in ("kill", "lose_power", "pause"):
            getattr(host, fault)()
        elif fault in ("partition", "silence", "cut", "reset"):
            getattr(network, fault)(one, other)
        elif fault == "slow":
            network.slow(one, other, random.randint(2_000, 100_000))
        else:
            network.delay(one, other, ms_min=0, ms_max=random.randint(1, 60))

    def repair(self) -> None:
        """End all faults."""
        self.network.heal_all()
        for host in self.hosts.values():
            host.resume()
            if not host.is_running:
                host.start(self.program)

    def run(self) -> MessageReport:
        """Break and repair, then let the follower catch up, and compare both logs."""
        for _ in range(STEPS):
            self.simulation.run_for(self.simulation.random.randint(1, 120))
            if self.simulation.random.random() < 0.3:
                self.repair()
            self.break_something()
        self._is_sending = False
        self.repair()
        leader, follower = self.hosts.values()
        self.simulation.run_until(
            lambda: len(log_of(leader)) == len(log_of(follower)), 30_000, "the follower's log"
        )
        self.simulation.run_for(1_000)
        for host in self.hosts.values():
            for offset, message in enumerate(log_of(host)):
                self.history.deliver(message, QUEUE, offset, reader=host.name)
        return self.history.check(readers=list(self.hosts))


@pytest.mark.parametrize("seed", seeds_to_run(40))
def test_what_both_disks_have_is_never_lost(seed: int, tmp_path: Path) -> None:
    with Simulation(seed) as simulation:
        report = ToyCluster(simulation, tmp_path).run()
        assert report.is_clean, report.line(seed=seed)


def test_the_seeds_cover_every_outcome(tmp_path: Path) -> None:
    totals = []
    for seed in range(10):
        with Simulation(seed) as simulation:
            totals.append(ToyCluster(simulation, tmp_path / str(seed)).run().totals)
    assert sum(each.acknowledged for each in totals) > 500
    assert sum(each.indeterminate for each in totals) > 20
    assert any(each.delivered < each.attempted for each in totals), "power takes unsynced sends"


def test_a_toy_that_acknowledges_before_the_disks_have_it_is_found_out(tmp_path: Path) -> None:
    lost = 0
    for seed in range(20):
        with Simulation(seed) as simulation:
            cluster = ToyCluster(simulation, tmp_path / str(seed), waits_for_disks=False)
            lost += cluster.run().totals.lost
    assert lost > 0


def test_a_seed_gives_the_same_events_and_the_same_report(tmp_path: Path) -> None:
    def once(name: str, seed: int) -> tuple[str, str]:
        with Simulation(seed) as simulation:
            line = ToyCluster(simulation, tmp_path / name).run().line(seed=seed)
            return simulation.trace.digest(), line

    assert once("first", 5) == once("second", 5)
    assert once("third", 6) != once("fourth", 5)
