"""Flushers of simulated hosts: syncs take virtual time, and die with the process."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.flush.fsync_thread import FlushReport
from orbitmq.testing.simulated_disk import DiskKind
from orbitmq.testing.simulated_host import SimulatedHost
from simulation.host_pair import new_host, nothing


@dataclass(frozen=True, slots=True)
class FileJob:
    """A job of one file."""

    descriptors: Sequence[int]


class FlushedFile:
    """A file whose syncs are reported to a list."""

    def __init__(self, host: SimulatedHost, name: str = "file") -> None:
        self.reports: list[FlushReport[FileJob]] = []
        self.path = host.disk.root / name
        self._layer = host.disk.layer
        self.descriptor = self._layer.open(self.path, create=True)
        self._layer.sync_dir(host.disk.root)
        self.flusher = host.flushers(self._layer, self._reported, "flusher")
        self.flusher.start()
        self.on_report: Callable[[], object] = lambda: None

    def _reported(self, reports: list[FlushReport[FileJob]]) -> None:
        self.reports += reports
        self.on_report()

    def write(self, data: bytes) -> None:
        self._layer.pwrite(self.descriptor, data, self.path.stat().st_size)

    def flush(self) -> FileJob:
        self.flusher.submit(job := FileJob((self.descriptor,)))
        return job


def test_a_sync_is_reported_after_virtual_time_and_later_jobs_follow_together(
    tmp_path: Path,
) -> None:
    simulation, host = new_host(tmp_path)
    host.start(nothing)
    host.flushers.sync_ms_max = 50
    file = FlushedFile(host)
    jobs = [file.flush() for _ in range(3)]
    assert file.reports == []
    simulation.run_until(lambda: file.reports, 51)
    assert [report.job for report in file.reports] == jobs[:1]
    simulation.run_until(lambda: len(file.reports) == 3, 51)
    assert [report.job for report in file.reports] == jobs
    assert all(report.error is None for report in file.reports)


def test_a_loss_of_power_finds_jobs_unsynced_synced_or_reported(tmp_path: Path) -> None:
    outcomes = set()
    for seed in range(40):
        simulation, host = new_host(tmp_path / str(seed), seed)
        host.start(nothing)
        file = FlushedFile(host)
        file.write(b"data")
        file.flush()
        simulation.run_for(4)
        host.lose_power()
        outcomes.add((file.path.read_bytes(), bool(file.reports)))
        simulation.run_for(100)
    assert outcomes == {(b"", False), (b"data", False), (b"data", True)}


def test_code_that_waits_for_a_flush_has_it_promptly(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    host.start(nothing)
    file = FlushedFile(host)
    first = file.flush()
    second = file.flush()
    with host.flushers.prompt():
        assert [report.job for report in file.reports] == [first, second]
        third = file.flush()
        assert [report.job for report in file.reports] == [first, second, third]
    file.flush()
    assert len(file.reports) == 3
    simulation.run_for(100)
    assert len(file.reports) == 4


def test_a_stopped_flusher_finishes_its_jobs_and_takes_no_more(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    host.start(nothing)
    file = FlushedFile(host)
    file.flush()
    file.flusher.stop()
    assert len(file.reports) == 1
    with pytest.raises(StoreError, match="was stopped"):
        file.flush()
    simulation.run_for(100)
    assert len(file.reports) == 1


def test_a_failed_sync_is_reported_with_its_error(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path, disk_kind=DiskKind.TEARING)
    host.start(nothing)
    file = FlushedFile(host)
    host.disk.faults.fail("fdatasync", errno.EIO)
    file.flush()
    simulation.run_until(lambda: file.reports, 100)
    assert isinstance(file.reports[0].error, OSError)


def test_a_report_may_submit_the_next_job(tmp_path: Path) -> None:
    simulation, host = new_host(tmp_path)
    host.start(nothing)
    file = FlushedFile(host)
    file.on_report = lambda: len(file.reports) < 3 and file.flush()
    file.flush()
    simulation.run_for(100)
    assert len(file.reports) == 3
