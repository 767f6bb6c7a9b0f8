"""One store, one process; and a crash leaves its mark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.store_lock import AbortMark, StoreLock

TRY_TO_LOCK = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]), os.SEEK_SET)
except OSError:
    sys.exit(7)
"""


def tried_by_another_process(path: Path, at: int = 0) -> bool:
    """Whether another process gets the lock on that byte, as the original asks for it."""
    run = subprocess.run([sys.executable, "-c", TRY_TO_LOCK, str(path), str(at)], check=False)
    assert run.returncode in (0, 7)
    return run.returncode == 0


def test_the_first_byte_is_locked_from_acquire_to_release(tmp_path: Path) -> None:
    lock = StoreLock(OsFileLayer(), tmp_path / "store")
    lock.acquire()
    path = tmp_path / "store" / "lock"
    assert not tried_by_another_process(path)
    assert tried_by_another_process(path, at=1)
    lock.release()
    assert path.read_bytes() == b"lock"  # not before: who closes the file gives up the lock
    assert tried_by_another_process(path)
    lock.release()
    lock.acquire()
    lock.release()


def test_a_store_of_this_process_is_not_opened_twice(tmp_path: Path) -> None:
    lock = StoreLock(OsFileLayer(), tmp_path)
    lock.acquire()
    (tmp_path / "link").symlink_to(tmp_path)
    for root in (tmp_path, tmp_path / "link"):
        with pytest.raises(StoreError, match="this process has the store"):
            StoreLock(OsFileLayer(), root).acquire()
    assert not tried_by_another_process(tmp_path / "lock")
    lock.release()
    again = StoreLock(OsFileLayer(), tmp_path)
    again.acquire()
    again.release()


def test_a_store_of_another_process_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    hold = TRY_TO_LOCK + "print('held', flush=True)\nsys.stdin.read()\n"
    arguments = [sys.executable, "-c", hold, str(tmp_path / "lock"), "0"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        lock = StoreLock(OsFileLayer(), tmp_path)
        with pytest.raises(StoreError, match=f"another process has the store {tmp_path} open"):
            lock.acquire()
        other.stdin.close()
        other.wait()
        lock.acquire()
        lock.release()


def test_the_mark_is_there_while_the_store_is_open(tmp_path: Path) -> None:
    mark = AbortMark(OsFileLayer(), tmp_path)
    assert not mark.is_set()
    mark.set()
    assert mark.is_set()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    (tmp_path / "abort").write_text("99999999999")
    mark.set()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    mark.clear()
    assert not mark.is_set()
