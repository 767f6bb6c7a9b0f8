"""Whatever happens to the files of the index, a start finds by key exactly what the log has."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import StoreError
from orbitmq.store import queue_manifest
from orbitmq.store.index_file import IndexShape
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store.damage import QUEUES, STEPS, Damage, Lives, Stored, damages, inflict, run_steps
from support.store.indexes import UnsyncedLayer
from support.store.logs import NOW_MS
from support.store.stores import InlineFlusher, new_store, order

SHAPE = IndexShape(slots=7, entries=40)


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir()) if (root / "index").exists() else []


def index_and_what_proves_it(root: Path) -> list[Path]:
    """The manifest is never missing: a store without one is taken for an Apache broker's."""
    return [
        *index_files(root),
        *(path for path in (root / "checkpoint", root / "queues.manifest") if path.exists()),
    ]


@settings(max_examples=80, deadline=None)
@given(STEPS, st.booleans(), st.lists(st.tuples(st.integers(0, 50), damages()), max_size=4))
def test_any_damage_to_the_index_costs_no_hit(
    steps: list[tuple],  # type: ignore[type-arg]
    is_clean: bool,
    wanted: list[tuple[int, Damage]],
) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitmq-damaged-") as folder:
        root, older, other = Path(folder, "store"), Path(folder, "older"), Path(folder, "other")
        others = Stored(other, Lives(), index_shape=SHAPE)
        for number, queue in enumerate(QUEUES):
            others.put(queue, 5 + 7 * number)
        others.store.close()
        stored = Stored(root, Lives(), index_shape=SHAPE)
        run_steps(stored, steps, older)
        if is_clean:
            stored.store.close()
        else:
            stored.store.abandon()
        has_manifest = (root / "queues.manifest").exists()
        inflict(root, older, other, index_and_what_proves_it, wanted)
        if has_manifest and not (root / "queues.manifest").exists():
            (root / "queues.manifest").touch()
        _start_and_check(stored)


def _refusal(stored: Stored) -> str | None:
    """Open the store; why it could not be."""
    try:
        stored.open()
    except StoreError as error:
        return str(error)
    return None


def _start_and_check(stored: Stored) -> None:
    """A store without a manifest may be refused, if the file is named: its size may have been set
    otherwise.
    """
    refusal = _refusal(stored)
    if refusal is not None and "queues.manifest and checkpoint list" in refusal:
        return  # both are another store's
    if refusal is not None:
        assert not (stored.root / "queues.manifest").exists()
        wrong = [
            path for path in index_files(stored.root) if path.stat().st_size != SHAPE.file_size
        ]
        assert any(str(path) in refusal for path in wrong), refusal
        return
    stored.check()
    stored.check_index()
    stored.put(QUEUES[0], 1)
    stored.check_index()
    stored.store.close()
    stored.open()
    stored.check()
    stored.check_index()
    stored.store.close()


def _closed(root: Path, count: int = 90) -> Stored:
    """A store with five index files, the last not full, and stopped."""
    stored = Stored(root, Lives(), index_shape=SHAPE)
    stored.put(QUEUES[0], count)
    stored.store.close()
    assert len(index_files(root)) == 5
    return stored


def _told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.getMessage().startswith(event)
    ]


@pytest.mark.parametrize("which", ["missing", "zeroed", "cut"])
def test_a_start_says_which_file_it_rebuilt_the_index_from(
    which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = _closed(tmp_path)
    first, path, *_ = index_files(tmp_path)
    content = path.read_bytes()
    (
        path.unlink()
        if which == "missing"
        else path.write_bytes(bytes(len(content)) if which == "zeroed" else content[:100])
    )
    recovered = stored.open()
    stored.check_index()
    recovered.close()
    (line,) = _told(caplog, "index_rebuilt")
    assert line.endswith(f"reason={path} is missing or corrupt")
    assert index_files(tmp_path)[0] == first
    caplog.clear()
    stored.open().close()
    assert _told(caplog, "index") == []


def test_a_killed_store_keeps_the_index_that_its_manifest_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = _closed(tmp_path)
    before = index_files(tmp_path)
    stored.open()
    stored.put(QUEUES[0], 3)
    stored.store.abandon()
    stored.open()
    stored.check_index()
    assert index_files(tmp_path) == before
    assert _told(caplog, "index_rebuilt") == []
    stored.store.close()


def test_a_manifest_that_is_written_while_the_store_runs_proves_the_index_after_a_kill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(NOW_MS)
    store = new_store(
        tmp_path, UnsyncedLayer(), clock, make_flusher=InlineFlusher, index_shape=SHAPE
    )
    store.open()
    for number in range(90):
        store.put(order(number))
    for _ in range(300):
        clock.advance_ms(1000)
        store.tick()
        store.flushing.run_in_worker(lambda: None).result(
            60
        )  # behind the manifest, if it is being written
        if (tmp_path / "queues.manifest").exists():
            break
    manifest = queue_manifest.read(ProcessFiles(), tmp_path)
    assert manifest is not None
    assert manifest.index is not None
    assert sum(file.header.entry_count - 1 for file in manifest.index.files) == 180
    store.put(order(90))
    store.abandon()
    again = new_store(tmp_path, UnsyncedLayer(), clock, index_shape=SHAPE)
    caplog.clear()
    again.open()
    assert _told(caplog, "index") == []
    assert [len(again.reads.query("orders", f"k{number}")) for number in range(91)] == [1] * 91
    again.close()


def test_messages_that_came_while_the_index_was_off_are_found_when_it_is_on_again(
    tmp_path: Path,
) -> None:
    stored = _closed(tmp_path)
    off = Stored(tmp_path, stored.lives, index_shape=SHAPE, index_enabled=False)
    off.continue_from(stored)
    off.put(QUEUES[0], 30)
    off.store.close()
    stored.continue_from(off)
    stored.open()
    stored.check_index()
    stored.store.close()


@pytest.mark.parametrize(
    "which",
    ["first missing", "middle missing", "last missing", "another's", "older", "all missing"],
)
def test_an_index_for_which_nobody_vouches_is_held_against_the_log(
    which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored, other = (
        _closed(tmp_path / "store"),
        Stored(tmp_path / "other", Lives(), index_shape=SHAPE),
    )
    other.put(QUEUES[2], 90)
    other.store.close()
    (stored.root / "queues.manifest").unlink()
    files = index_files(stored.root)
    match which:
        case "another's":
            files[2].write_bytes(index_files(other.root)[2].read_bytes())
        case "older":  # as it was when it was not full
            small = Stored(tmp_path / "small", Lives(), index_shape=SHAPE)
            small.put(QUEUES[0], 30)
            small.store.close()
            files[1].write_bytes(index_files(small.root)[1].read_bytes())
        case "all missing":
            shutil.rmtree(stored.root / "index")
        case _:
            files[{"first": 0, "middle": 2, "last": -1}[which.split()[0]]].unlink()
    stored.open()
    stored.check_index()
    stored.store.close()
    assert (_told(caplog, "index_rebuilt") != []) == (which not in ("last missing", "all missing"))


def test_a_full_disk_does_not_keep_a_store_whose_index_is_damaged_from_opening(
    tmp_path: Path,
) -> None:
    stored = _closed(tmp_path / "store")
    index_files(stored.root)[1].unlink()
    disk = FaultyDisk(UnsyncedLayer(), stored.root)
    disk.fail("truncate", errno.ENOSPC, times=1 << 30)  # no file gets its size
    store = new_store(stored.root, disk, ManualClock(NOW_MS), lives=stored.lives, index_shape=SHAPE)
    store.open()
    stored.store = store
    stored.check()
    with pytest.raises(StoreError, match="No space left"):
        store.put(order(1000))
    disk.heal()
    store.tick()
    stored.check_index()
    stored.put(QUEUES[0], 1)
    store.close()
    stored.open()
    stored.check_index()
    stored.store.close()
