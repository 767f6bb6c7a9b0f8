"""Disks that are full: one that takes no small file any more, for tests of tables in this process,
and a small one for real brokers.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orbitmq.common import atomic_file

REASON = os.strerror(errno.ENOSPC)


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file that is replaced as a whole can be written meanwhile."""

    def write(path: Path, data: bytes, mode: int) -> None:
        raise OSError(errno.ENOSPC, REASON, str(path))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "_write_synced", write)
        yield


def assert_plain(text: str | None) -> None:
    """The answer says why in words that are not Python's."""
    assert text is not None
    assert REASON in text
    for internal in (
        "Errno",
        "Error:",
        "Exception",
        "Traceback",
        ".py",
        ", line",
        " line ",
        ".tmp",
    ):
        assert internal not in text, text


class NoSmallDisk(Exception):
    """Why no small disk can be mounted here."""


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A file system in memory of that size, mounted on `folder`; NoSmallDisk where that is not
    possible.
    """
    if os.geteuid() != 0:
        raise NoSmallDisk("a small disk is mounted for this, which only root may do")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise NoSmallDisk(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left; deleting the file that this returns gives it back."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast
