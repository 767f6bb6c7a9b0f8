"""A configuration file follows its table: soon, coalesced, told, and again after a failure."""

from __future__ import annotations

import asyncio
import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder, digest
from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError
from support.broker.manual_worker import InlineWorker, ManualLoop


class Table:
    """A number, and the file that follows it."""

    def __init__(self, path: Path) -> None:
        self.loop = ManualLoop()
        self.worker = InlineWorker()
        self.file = ConfigFile(path, self.worker, self.loop)
        self.snapshots = 0
        self.value = 0
        loaded, self.digest = self.file.open(int, self._snapshot)
        self.value = loaded or 0

    def _snapshot(self) -> Encoder:
        self.snapshots += 1
        value = self.value
        return lambda: b"%d" % value

    def set(self, value: int) -> None:
        self.value = value
        self.file.changed()


class Disk:
    """Lets writes fail while `error` is set, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        self.written: list[bytes] = []
        original = atomic_file.write

        def write(path: Path, data: bytes) -> None:
            if self.error is not None:
                raise self.error
            self.written.append(data)
            original(path, data)

        monkeypatch.setattr(atomic_file, "write", write)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "table.json"


@pytest.fixture
def table(path: Path) -> Table:
    return Table(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_change_is_on_disk_soon_and_the_content_before_it_in_the_backup(
    table: Table, path: Path
) -> None:
    table.set(1)
    table.loop.run()
    table.set(2)
    table.loop.run()
    assert path.read_bytes() == b"2"
    assert atomic_file.backup_path(path).read_bytes() == b"1"
    assert Table(path).value == 2
    assert Table(path).digest == digest(b"2")


def test_a_file_that_was_never_written_is_known_by_the_digest_of_nothing(table: Table) -> None:
    assert (table.value, table.digest) == (0, digest(b""))


@pytest.mark.parametrize("damaged", [None, b"", b"x"], ids=["missing", "empty", "damaged"])
def test_the_backup_is_read_when_the_file_cannot_be_and_its_digest_is_told(
    table: Table, path: Path, damaged: bytes | None
) -> None:
    for value in (1, 2):
        table.set(value)
        table.loop.run()
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)
    again = Table(path)
    assert (again.value, again.digest) == (1, digest(b"1"))


def test_damage_of_both_is_told_instead_of_starting_empty(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"x")
    with pytest.raises(CorruptFileError, match="restore one of them"):
        Table(path)


def test_changes_during_a_save_share_the_next_one(table: Table, disk: Disk) -> None:
    table.worker.holds = True
    table.set(1)
    for value in range(2, 100):
        table.set(value)
    while table.worker.work() or table.loop.step():
        pass
    assert disk.written == [b"1", b"99"]
    assert table.snapshots == 2


def test_who_waits_is_told_when_exactly_its_change_is_on_disk(table: Table, disk: Disk) -> None:
    told: list[tuple[str, list[bytes], object]] = []

    def tell(name: str) -> None:
        table.file.when_saved(lambda failure: told.append((name, list(disk.written), failure)))

    tell("nothing to save")
    table.worker.holds = True
    table.set(1)
    tell("first")
    table.set(2)
    tell("second")
    while table.worker.work() or table.loop.step():
        pass
    assert told == [
        ("nothing to save", [], None),
        ("first", [b"1"], None),
        ("second", [b"1", b"2"], None),
    ]


def test_a_failed_save_is_logged_told_and_tried_again_until_it_succeeds(
    table: Table, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[object] = []
    disk.error = OSError(errno.ENOSPC, "disk full")
    table.set(1)
    table.file.when_saved(told.append)
    with caplog.at_level(logging.ERROR):
        table.loop.run()
    assert told == [disk.error]
    assert table.file.failure is disk.error
    assert "config_save_failed" in caplog.text
    assert "disk full" in caplog.text

    table.set(2)
    table.file.when_saved(told.append)
    table.loop.run()
    assert len(told) == 1, "no try before its time"
    table.loop.let_time_pass()
    assert told == [disk.error, disk.error]
    table.file.when_saved(told.append)
    disk.error = None
    table.loop.let_time_pass()
    assert told[2:] == [None]
    assert disk.written == [b"2"]
    assert table.file.failure is None


def test_a_change_that_cannot_be_encoded_is_a_failed_save_and_no_crash(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = ManualLoop()
    file = ConfigFile(path, InlineWorker(), loop)
    file.open(int, lambda: lambda: bytes([300]))
    file.changed()
    with caplog.at_level(logging.ERROR):
        loop.run()
    assert isinstance(file.failure, ValueError)
    assert "Traceback" in caplog.text


def test_save_now_has_everything_on_disk_when_it_returns_whatever_was_under_way(path: Path) -> None:
    with ThreadPoolExecutor(1) as worker:
        loop, values = ManualLoop(), [0]
        file = ConfigFile(path, worker, loop)
        file.open(int, lambda: (b"%d" % values[-1]).strip)
        for value in range(1, 5):
            values.append(value)
            file.changed()
        file.save_now()
        assert path.read_bytes() == b"4"
        loop.run()  # the callbacks of the steps that save_now waited for come late and do nothing
        assert path.read_bytes() == b"4"


def test_save_now_raises_what_keeps_it_from_saving_and_can_be_called_again(
    table: Table, disk: Disk, path: Path
) -> None:
    disk.error = OSError(errno.EIO, "bad disk")
    table.set(1)
    with pytest.raises(OSError, match="bad disk"):
        table.file.save_now()
    disk.error = None
    table.file.save_now()
    assert path.read_bytes() == b"1"


def test_it_runs_on_an_event_loop_of_asyncio(path: Path) -> None:
    async def save(worker: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        file = ConfigFile(path, worker, loop)
        file.open(int, lambda: b"7".strip)
        saved: asyncio.Future[Exception | None] = loop.create_future()
        file.changed()
        file.when_saved(saved.set_result)
        assert await saved is None

    with ThreadPoolExecutor(1) as worker:
        asyncio.run(save(worker))
    assert path.read_bytes() == b"7"


class Watcher:
    """Takes note of what it is told, and what the file was then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None
        self.told: list[tuple[str, bytes, bytes | None]] = []

    def before_write(self, content_digest: bytes) -> None:
        if self.error is not None:
            raise self.error
        self._note("before", content_digest)

    def after_write(self, content_digest: bytes) -> None:
        self._note("after", content_digest)

    def _note(self, when: str, content_digest: bytes) -> None:
        self.told.append(
            (when, content_digest, self.path.read_bytes() if self.path.exists() else None)
        )


def test_a_watcher_is_told_the_digest_before_the_file_has_it_and_after(path: Path) -> None:
    loop, watcher = ManualLoop(), Watcher(path)
    file = ConfigFile(path, InlineWorker(), loop)
    file.open(int, lambda: b"5".strip, watcher)
    file.changed()
    loop.run()
    assert watcher.told == [("before", digest(b"5"), None), ("after", digest(b"5"), b"5")]


def test_a_watcher_that_fails_keeps_the_file_from_being_written(path: Path, disk: Disk) -> None:
    loop, watcher = ManualLoop(), Watcher(path)
    watcher.error = OSError(errno.ENOSPC, "disk full")
    file = ConfigFile(path, InlineWorker(), loop)
    file.open(int, lambda: b"5".strip, watcher)
    file.changed()
    loop.run()
    assert (disk.written, file.failure) == ([], watcher.error)
    watcher.error = None
    loop.let_time_pass()
    assert disk.written == [b"5"]
