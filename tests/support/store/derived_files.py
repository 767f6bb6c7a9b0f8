"""The files that a store derives from its commit log, and what may happen to them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def queue_files(root: Path) -> list[Path]:
    """All files of consume queues, the checkpoint and the manifest."""
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*")] + [
        root / "checkpoint",
        root / "queues.manifest",
    ]
    return sorted(path for path in paths if path.is_file())


def unlink(path: Path) -> None:
    path.unlink()


def unlink_all(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def replace(path: Path, by: Path) -> None:
    """Put another file in its place, or none where there is no other."""
    if by.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(by, path)
    else:
        path.unlink(missing_ok=True)


def flip(path: Path, place: float, bit: int) -> None:
    """Change one bit of the bytes that are in use; `place` is from 0 up to 1."""
    content = bytearray(path.read_bytes())
    used = len(content.rstrip(b"\0")) or len(content)
    if content:
        content[int(place * used)] ^= 1 << bit
        path.write_bytes(content)
