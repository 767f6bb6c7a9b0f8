"""A commit log that ends before what was flushed: refused after a clean stop, counted after a
crash, and never taken for an empty store.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.recovery import LostLogError
from support.common.process_files import ProcessFiles
from support.store import derived_files, golden_stores
from support.store.stores import FILE_SIZE, kill, new_store, numbers, opened_store, order
from support.store.tools import directory, golden

COUNT = 60


def filled(root: Path, *, clean: bool = True) -> int:
    """A store with a log of several files; where its log ends."""
    store = opened_store(root)
    for number in range(COUNT):
        store.put(order(number))
    store.flush()
    end = store.log.end_offset
    assert end > 3 * FILE_SIZE
    if clean:
        store.close()
    else:
        kill(store)
        for path in set((root / "commitlog").iterdir()) - set(log_files(root)):
            path.unlink()
    return end


def log_files(root: Path) -> list[Path]:
    """The files that have records; one more may have been prepared."""
    return [path for path in sorted((root / "commitlog").iterdir()) if any(path.read_bytes())]


def zero_last_half(root: Path) -> None:
    path = log_files(root)[-1]
    path.write_bytes(path.read_bytes()[:500].ljust(FILE_SIZE, b"\0"))


LOSSES: dict[str, Callable[[Path], object]] = {
    "the folder is not there": lambda root: shutil.rmtree(root / "commitlog"),
    "all files are missing": lambda root: derived_files.unlink_all((root / "commitlog").iterdir()),
    "the last file is missing": lambda root: log_files(root)[-1].unlink(),
    "the last file is empty": lambda root: log_files(root)[-1].write_bytes(b""),
    "the last file has zeros": lambda root: log_files(root)[-1].write_bytes(bytes(FILE_SIZE)),
    "the end of the last file has zeros": zero_last_half,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_that_lost_its_end_after_a_clean_stop_is_not_opened(
    loss: str, tmp_path: Path
) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    end = filled(root)
    shutil.copytree(root, copy)
    LOSSES[loss](root)
    with pytest.raises(LostLogError, match=r"Is a disk not mounted.*orbitmq store repair") as error:
        new_store(root).open()
    assert str(root / "commitlog") in str(error.value)
    ends_at = int(str(error.value).split(" ends at ")[1].split()[0].rstrip(","))
    assert f": {end - ends_at} bytes of records are missing" in str(error.value)
    shutil.rmtree(root / "commitlog", ignore_errors=True)
    shutil.copytree(copy / "commitlog", root / "commitlog")
    again = opened_store(root)
    assert numbers(again) == list(range(COUNT))
    again.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_that_lost_its_end_in_a_crash_is_opened_and_the_loss_counted(
    loss: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = filled(tmp_path, clean=False)
    LOSSES[loss](tmp_path)
    store = opened_store(tmp_path)
    kept = store.log.end_offset
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith(
        f"log_shorter_than_flushed end={kept} flushed={end} missing={end - kept} "
    )
    assert numbers(store) == list(range(len(numbers(store))))
    store.put(order(1000))
    assert numbers(store)[-1] == 1000
    store.close()
    caplog.clear()
    again = opened_store(tmp_path)
    assert numbers(again)[-1] == 1000
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    again.close()


@pytest.mark.parametrize("manifest", ["kept", "missing"])
def test_a_checkpoint_that_claims_too_much_is_believed_only_without_a_manifest(
    manifest: str, tmp_path: Path
) -> None:
    end = filled(tmp_path)
    checkpoint = Checkpoint(ProcessFiles(), tmp_path / "checkpoint")
    checkpoint.load()
    checkpoint.queues_offset = end + 1000
    checkpoint.flush()
    checkpoint.close()
    if manifest == "missing":
        (tmp_path / "queues.manifest").unlink()
        with pytest.raises(LostLogError, match="1000 bytes of records are missing"):
            new_store(tmp_path).open()
    else:
        again = opened_store(tmp_path)
        assert numbers(again) == list(range(COUNT))
        again.close()


def test_a_manifest_that_fits_another_log_is_not_believed_against_the_checkpoint(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "long")
    store = opened_store(tmp_path / "short")
    store.put(order(0))
    store.close()
    shutil.copy(tmp_path / "long/queues.manifest", tmp_path / "short/queues.manifest")
    again = opened_store(tmp_path / "short")
    assert numbers(again) == [0]
    again.close()


@pytest.mark.parametrize("release", golden_stores.ARCHIVES)
def test_the_log_of_another_broker_is_not_opened_without_its_end_either(
    release: str, tmp_path: Path
) -> None:
    root = golden(tmp_path, f"{release}/clean/store")
    found = directory(root)
    max(extent.path for extent in found.log_files).unlink()
    with pytest.raises(LostLogError, match="are missing"):
        new_store(
            root,
            commit_log_file_size=found.log_file_size,
            queue_file_size=found.queue_file_size,
            index_enabled=False,
        ).open()


def test_a_file_of_another_length_is_not_to_be_moved_away(tmp_path: Path) -> None:
    filled(tmp_path)
    path = log_files(tmp_path)[-1]
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(StoreError, match=r"has 3000 bytes.*store repair --config") as error:
        new_store(tmp_path).open()
    assert "move" not in str(error.value)
