"""Keeps what a repair takes away: below `repair-<time>/` in the store, under the path it had.

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
    """One repair's copies; the folder is made with the first of them."""

    def __init__(self, directory: StoreDirectory, now_ms: int) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_ms // 1000))
        self.folder = directory.root / f"{BACKUP_PREFIX}{stamp}"
        self._directory = directory
        self._layer = OsFileLayer()
        if self.folder.exists():
            raise StoreError(f"{self.folder} is there already: a repair began within this second; try again")

    def place(self, path: Path) -> Path:
        """Where the copy of a file or folder of the store is kept."""
        relative = Path(self._directory.relative(path))
        return self.folder / (Path(*relative.parts[1:]) if relative.is_absolute() else relative)

    def move(self, path: Path) -> Path | None:
        """Take a file, or a folder with all that is in it, out of the store; None when there is none."""
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
        """Keep the bytes [begin, end) of a file, in a file of their own that says in its name where they begin."""
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
        """Give the store a copy of what was moved away from `path`."""
        self._layer.make_folder(path.parent)
        shutil.copytree(self.place(path), path)
