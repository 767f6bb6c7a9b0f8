"""Simulated hosts: a process and its timers die together, and writes survive as far as they were
synced.
"""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from orbitmq.common.errors import InvalidStateError
from orbitmq.testing.simulated_disk import DiskKind
from orbitmq.testing.simulated_host import SimulatedHost
from simulation.host_pair import new_host, nothing

# -- life and timers


def test_a_program_runs_as_an_event_and_again_after_its_death(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    seen: list[SimulatedHost] = []
    host.start(seen.append)
    assert seen == []
    simulation.run_for(0)
    assert seen == [host]
    with pytest.raises(InvalidStateError, match="a runs a program already"):
        host.start(seen.append)
    host.kill()
    host.kill()
    assert (host.is_running, host.is_on) == (False, True)
    host.start(seen.append)
    simulation.run_for(0)
    assert seen == [host, host]
    host.lose_power()
    assert (host.is_running, host.is_on) == (False, False)
    host.start(seen.append)
    assert host.is_on


def test_timers_follow_the_monotonic_clock_of_their_host(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path, skew_ms=-5_000)
    host.start(nothing)
    begun_ms, seen = host.clock.monotonic_ms(), list[int]()
    assert begun_ms > 0
    for time_ms in (begun_ms + 20, begun_ms - 100):
        host.call_at_ms(time_ms, lambda: seen.append(host.clock.monotonic_ms() - begun_ms))
    simulation.run_for(100)
    assert seen == [0, 20]


def test_nothing_of_a_dead_process_runs_and_it_can_schedule_nothing(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    seen: list[str] = []
    host.start(nothing)
    simulation.run_for(1)
    host.call_soon(lambda: seen.append("soon"))
    host.call_later_ms(10, lambda: seen.append("later"))
    host.on_death(lambda: seen.append("first"))
    host.on_death(lambda: seen.append("second"))
    host.kill()
    assert seen == ["second", "first"]
    with pytest.raises(InvalidStateError, match="no process runs on a"):
        host.call_soon(lambda: None)
    host.start(nothing)
    simulation.run_for(100)
    assert seen == ["second", "first"]


def test_a_paused_process_catches_up_in_order_and_cancelled_timers_stay_cancelled(
    tmp_path: Path,
) -> None:
    simulation, host = new_host(tmp_path)
    seen: list[tuple[int, int]] = []

    def happened(delay: int) -> None:
        seen.append((simulation.now_ms, delay))

    host.start(nothing)
    simulation.run_for(0)
    calls = [host.call_later_ms(delay, partial(happened, delay)) for delay in (10, 20, 30, 200)]
    host.pause()
    simulation.run_for(100)
    assert seen == []
    calls[1].cancel()
    host.resume()
    simulation.run_for(200)
    assert seen == [(100, 10), (100, 30), (200, 200)]


def test_a_process_that_is_killed_right_after_its_pause_runs_nothing(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    seen: list[str] = []
    host.start(nothing)
    host.call_later_ms(10, lambda: seen.append("timer"))
    host.pause()
    simulation.run_for(100)
    host.resume()
    host.kill()
    host.start(nothing)
    simulation.run_for(100)
    assert seen == []
    assert not host.is_paused


def test_the_end_of_the_simulation_ends_its_processes(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    with simulation:
        host.start(nothing)
    assert not host.is_running


# -- disk


def write(host: SimulatedHost, name: str, data: bytes, *, sync: bool) -> None:
    """Write a new file and leave it open."""
    layer, path = host.disk.layer, host.disk.root / name
    descriptor = layer.open(path, create=True)
    layer.pwrite(descriptor, data, 0)
    if sync:
        layer.fdatasync(descriptor)
        layer.sync_dir(path.parent)


def found(host: SimulatedHost) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in host.disk.root.iterdir()}


@pytest.mark.parametrize("kind", DiskKind)
def test_a_killed_process_loses_no_writes(tmp_path: Path, kind: DiskKind) -> None:
    _, host = new_host(tmp_path, disk_kind=kind)
    host.start(nothing)
    write(host, "file", b"written", sync=False)
    host.kill()
    assert found(host) == {"file": b"written"}


def test_a_forgetful_disk_loses_all_that_was_not_synced(tmp_path: Path) -> None:
    _, host = new_host(tmp_path)
    host.start(nothing)
    write(host, "synced", b"kept", sync=True)
    write(host, "unsynced", b"lost", sync=False)
    host.lose_power()
    assert found(host) == {"synced": b"kept"}
    with pytest.raises(InvalidStateError, match="TEARING"):
        _ = host.disk.faults


def test_a_tearing_disk_keeps_what_was_synced_and_any_part_of_the_rest(tmp_path: Path) -> None:
    endings = set()
    for seed in range(20):
        _, host = new_host(tmp_path / str(seed), seed, disk_kind=DiskKind.TEARING)
        host.start(nothing)
        write(host, "file", b"a" * 1024, sync=True)
        descriptor = host.disk.layer.open(host.disk.root / "file")
        host.disk.layer.pwrite(descriptor, b"b" * 1024, 1024)
        host.lose_power()
        content = found(host)["file"]
        assert content[:1024] == b"a" * 1024
        endings.add(content[1024:])
        host.start(nothing)
        write(host, "next", b"kept", sync=True)
        host.lose_power()
        assert found(host) == {"file": content, "next": b"kept"}
    assert len(endings) == 4  # nothing, all, or one of both sectors


def test_a_tearing_disk_can_be_made_to_fail(tmp_path: Path) -> None:
    _, host = new_host(tmp_path, disk_kind=DiskKind.TEARING)
    host.start(nothing)
    host.disk.faults.fail("pwrite", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        write(host, "file", b"x", sync=False)


@pytest.mark.parametrize("kind", DiskKind)
def test_the_used_share_of_the_disk_is_what_it_is_set_to(tmp_path: Path, kind: DiskKind) -> None:
    _, host = new_host(tmp_path, disk_kind=kind)
    assert host.disk.layer.disk_ratio(host.disk.root) == 0.0
    host.disk.used_ratio = 0.95
    host.lose_power()
    assert host.disk.layer.disk_ratio(host.disk.root) == 0.95
