"""Keeps what a repair removes: below `repair-<time>/` in the store, under its original path.

Invariant: nothing is changed or removed before its copy is durable.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.tools.directory import BACKUP_PREFIX, StoreDirectory

_CHUNK = 1 << 20


class Backup:
    """The copies of one repair; the first creates the folder."""

    def __init__(self, directory: StoreDirectory, now_ms: int) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_ms // 1000))
        self.folder = directory.root / f"{BACKUP_PREFIX}{stamp}"
        self._directory = directory
        self._layer = OsFileLayer()
        if self.folder.exists():
            raise StoreError(
                f"{self.folder} exists already: a repair began within this second; try again"
            )

    def place(self, path: Path) -> Path:
        """Return where the copy of a file or folder of the store is kept."""
        relative = Path(self._directory.relative(path))
        return self.folder / (Path(*relative.parts[1:]) if relative.is_absolute() else relative)

    def move(self, path: Path) -> Path | None:
        """Move a file, or a folder with its content, out of the store; return its place, None if it
        does not exist.
        """
        if not path.exists():
            return None
        place = self.place(path)
        self._layer.make_folder(place.parent)
        shutil.move(path, place)
        self._layer.sync_dir(place.parent)
        with suppress(FileNotFoundError):
            self._layer.sync_dir(path.parent)
        return place

    def copy_range(self, path: Path, begin: int, end: int) -> Path:
        """Copy the bytes [begin, end) of a file to a file whose name states where they begin."""
        place = self.place(path).with_name(f"{path.name}.from-{begin}")
        self._layer.make_folder(place.parent)
        with path.open("rb") as source, place.open("xb") as target:
            source.seek(begin)
            left = end - begin
            while left > 0 and (part := source.read(min(left, _CHUNK))):
                target.write(part)
                left -= len(part)
            target.flush()
            os.fsync(target.fileno())
        self._layer.sync_dir(place.parent)
        return place

    def put_back(self, path: Path) -> None:
        """Copy what was moved away from `path` back into the store."""
        self._layer.make_folder(path.parent)
        shutil.copytree(self.place(path), path)
