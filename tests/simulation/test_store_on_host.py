"""A message store on a simulated host: killed, without power and closed as the seed decides, it has
all that it acknowledged, and the same seed gives the same events.
"""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from crash import store_load
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.store.config import FlushMode
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.histories import MessageHistory, MessageReport, RecordedSend
from orbitmq.testing.simulated_disk import DiskKind
from orbitmq.testing.simulated_host import SimulatedHost
from orbitmq.testing.simulated_network import SimulatedNetwork
from orbitmq.testing.simulated_store import SimulatedStore
from orbitmq.testing.simulation import Simulation, seeds_to_run
from support.store.stores import order

KEYS = [QueueKey("orders", 0), QueueKey("orders", 1)]
STEPS = 12


def queue_of(key: QueueKey) -> MessageQueue:
    return MessageQueue(key.topic, "broker-a", key.queue_id)


class StoreRun:
    """One host with a store that is written to all the time."""

    def __init__(
        self, simulation: Simulation, folder: Path, mode: FlushMode, kind: DiskKind
    ) -> None:
        self.simulation = simulation
        self.history = MessageHistory()
        self.host = SimulatedHost(
            "broker",
            simulation=simulation,
            network=SimulatedNetwork(simulation),
            folder=folder,
            disk_kind=kind,
        )
        self.host.flushers.sync_ms_max = 40  # so that deaths find syncs in flight
        self._mode = mode
        self._count = 0
        self.is_writing = True
        self.open: SimulatedStore | None = None
        self.host.start(self.program)

    @property
    def store(self) -> MessageStore:
        assert self.open is not None
        return self.open.store

    def program(self, host: SimulatedHost) -> None:
        config = store_load.small(host.disk.root / "store", flush_mode=self._mode)
        self.open = SimulatedStore(host, config)
        self._write()

    def _write(self) -> None:
        """Put some messages, and acknowledge them when the store says so."""
        store, random = self.store, self.simulation.random
        if not self.is_writing:
            return
        for _ in range(random.choice((1, 1, 2, 9))):
            self._count += 1
            key = random.choice(KEYS)
            send = self.history.attempt(f"{self._count:06}", queue_of(key))
            appended = store.put(order(self._count, key))
            if self._mode is FlushMode.ASYNC:
                self._decided(send, key, appended.queue_offset, Outcome.DONE)
            else:
                store.when_durable(
                    appended.end, partial(self._decided, send, key, appended.queue_offset)
                )
        self.host.call_later_ms(random.choice((1, 3, 60)), self._write, "puts")

    def _decided(self, send: RecordedSend, key: QueueKey, offset: int, outcome: Outcome) -> None:
        if outcome is Outcome.DONE:
            send.acknowledged(queue_of(key), offset)

    def restart(self, *ends: str) -> None:
        """End the process in one of these ways, and start it again later."""
        random, host = self.simulation.random, self.host
        end = random.choice(ends)
        self.simulation.note(end)
        if end == "close":
            assert self.open is not None
            self.open.close()
            host.kill()
        else:
            getattr(host, end)()
        self.simulation.run_for(random.randint(0, 50))
        host.start(self.program)

    def run(self, *ends: str) -> MessageReport:
        for _ in range(STEPS):
            self.simulation.run_for(self.simulation.random.randint(1, 300))
            self.restart(*ends)
        self.is_writing = False
        self.simulation.run_for(5_000)
        for key in KEYS:
            self._read(key)
        return self.history.check()

    def _read(self, key: QueueKey) -> None:
        offset = QueueOffset(0)
        while True:
            result = self.store.reads.get(key, offset, count_max=32)
            for message in decode_all(result.records):
                self.history.deliver(message.body[:6].decode(), queue_of(key), message.queue_offset)
            if result.next_offset <= offset:
                return
            offset = result.next_offset


@pytest.mark.parametrize("kind", DiskKind, ids=lambda kind: kind.value)
@pytest.mark.parametrize("seed", seeds_to_run(6))
def test_a_store_that_loses_power_has_all_that_it_acknowledged(
    seed: int, kind: DiskKind, tmp_path: Path
) -> None:
    with Simulation(seed) as simulation:
        report = StoreRun(simulation, tmp_path, FlushMode.SYNC, kind).run(
            "kill", "lose_power", "close"
        )
        assert report.is_clean, report.line(seed=seed)
        assert report.totals.acknowledged > 20


@pytest.mark.parametrize("kind", DiskKind, ids=lambda kind: kind.value)
def test_losses_of_power_find_messages_in_flight(kind: DiskKind, tmp_path: Path) -> None:
    totals = []
    for seed in range(3):
        with Simulation(seed) as simulation:
            run = StoreRun(simulation, tmp_path / str(seed), FlushMode.SYNC, kind)
            totals.append(run.run("lose_power").totals)
    assert sum(each.indeterminate for each in totals) > 20
    assert sum(each.attempted - each.delivered for each in totals) > 10, "unsynced ones are lost"


@pytest.mark.parametrize("seed", seeds_to_run(4))
def test_a_store_that_does_not_wait_for_the_disk_survives_kills(seed: int, tmp_path: Path) -> None:
    with Simulation(seed) as simulation:
        run = StoreRun(simulation, tmp_path, FlushMode.ASYNC, DiskKind.FORGETFUL)
        report = run.run("kill", "close")
        assert report.is_clean, report.line(seed=seed)


def test_a_store_that_does_not_wait_for_the_disk_loses_messages_with_the_power(
    tmp_path: Path,
) -> None:
    lost = 0
    for seed in range(3):
        with Simulation(seed) as simulation:
            run = StoreRun(simulation, tmp_path / str(seed), FlushMode.ASYNC, DiskKind.FORGETFUL)
            lost += run.run("lose_power").totals.lost
    assert lost > 0


@pytest.mark.parametrize("kind", DiskKind, ids=lambda kind: kind.value)
def test_a_seed_gives_the_same_events_and_the_same_report(kind: DiskKind, tmp_path: Path) -> None:
    def once(name: str, seed: int) -> tuple[str, str]:
        with Simulation(seed) as simulation:
            run = StoreRun(simulation, tmp_path / name, FlushMode.SYNC, kind)
            return run.run("kill", "lose_power").line(), simulation.trace.digest()

    assert once("first", 5) == once("second", 5)
    assert once("third", 6) != once("fourth", 5)


def test_no_thread_is_started_for_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread.start", lambda thread: pytest.fail(f"{thread} starts"))
    with Simulation(1) as simulation:
        run = StoreRun(simulation, tmp_path, FlushMode.SYNC, DiskKind.FORGETFUL)
        run.run("kill", "close")
        assert len(list((run.host.disk.root / "store/commitlog").iterdir())) > 1


def test_a_failed_sync_makes_the_store_read_only_until_it_is_started_again(tmp_path: Path) -> None:
    with Simulation(1) as simulation:
        run = StoreRun(simulation, tmp_path, FlushMode.SYNC, DiskKind.TEARING)
        simulation.run_for(100)
        run.is_writing = False
        simulation.run_for(2_000)
        run.host.disk.faults.fail("fdatasync", errno.EIO, times=1_000)
        run.store.put(order(999_999))
        simulation.run_until(lambda: run.store.refusal, 5_000, "the refusal")
        run.host.disk.faults.heal()
        run.restart("kill")
        simulation.run_for(1)
        assert run.store.refusal is None


def test_a_full_disk_is_refused_and_its_end_noticed(tmp_path: Path) -> None:
    with Simulation(1) as simulation:
        run = StoreRun(simulation, tmp_path, FlushMode.SYNC, DiskKind.FORGETFUL)
        run.is_writing = False
        simulation.run_for(100)
        run.host.disk.used_ratio = 0.99
        simulation.run_until(lambda: run.store.refusal, 60_000, "the refusal")
        run.host.disk.used_ratio = 0.1
        simulation.run_until(lambda: run.store.refusal is None, 60_000, "the end of the refusal")


def test_a_store_has_to_be_on_the_disk_of_its_host(tmp_path: Path) -> None:
    with Simulation(1) as simulation:
        host = SimulatedHost(
            "a",
            simulation=simulation,
            network=SimulatedNetwork(simulation),
            folder=tmp_path / "a",
        )
        with pytest.raises(ValueError, match="choose a root below"):
            SimulatedStore(host, store_load.small(tmp_path / "elsewhere"))
