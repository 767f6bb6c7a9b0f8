"""A store's directory as found: its files by kind, the sizes they were created with, and which
release wrote it.

Finds and names, and judges nothing: that is for `check`. Read-only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from orbitmq.common.errors import StoreError
from orbitmq.store import queue_manifest
from orbitmq.store.config import DELAY_LEVELS_MS, StoreConfig
from orbitmq.store.file_queue import FileQueue, file_name
from orbitmq.store.index_file import IndexShape
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.queues import BATCH_FILE_SIZE, EXT_FILE_SIZE, QUEUE_FILE_SIZE
from orbitmq.store.tools import sizes
from orbitmq.store.tools.read_only import ReadOnlyLayer, lock_owner
from orbitmq.store.tools.sizes import Extent, StoreLayout
from orbitmq.store.types import QueueKey

_CHECKPOINT = Struct(">6q")
CHECKPOINT_SIZE = 4096
INDEX_NAME_SIZE = 17
BACKUP_PREFIX = "repair-"
_NAMES_OF_5 = (
    "abort.bak",
    "compaction",
    "rocksdbstore",
    "timerwheel",
    "timerlog",
    "batchconsumequeue",
    "config/consumerOrderInfo.json",
)
KNOWN = frozenset(
    (
        *(
            "commitlog",
            "consumequeue",
            "consumequeue_ext",
            "batchconsumequeue",
            "index",
            "checkpoint",
            "queues.manifest",
            "abort",
            "abort.bak",
            "lock",
        ),
        *(
            "config",
            "timerwheel",
            "timerlog",
            "compaction",
            "rocksdbstore",
            "epochFileCheckpoint",
            "brokerIdentity",
        ),
        *("brokerIdentity-temp", "epochFileCheckpoint.bak", "timerwheel.gz"),
        # The name server that `orbitmq up` runs beside its broker keeps its files here, too.
        *("kvConfig.json", "kvConfig.json.bak", "namesrv.properties", "namesrv.properties.bak"),
    )
)


class CheckpointNumbers(NamedTuple):
    """The checkpoint as read; see `store.checkpoint`."""

    log_time_ms: int
    queues_time_ms: int
    index_time_ms: int
    master_flushed_offset: int
    confirmed_offset: int
    queues_offset: int


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one log or queue, in order, and the foreign files in its folder."""

    path: Path
    files: tuple[Extent, ...]
    foreign: tuple[Path, ...]

    def is_whole(self, file_size: int) -> bool:
        """Whether every file has that length and follows the one before."""
        starts = [extent.start for extent in self.files]
        expected = (
            range(starts[0], starts[0] + len(starts) * file_size, file_size) if starts else range(0)
        )
        return (
            list(expected) == starts
            and all(extent.length == file_size for extent in self.files)
            and not (starts and starts[0] % file_size)
        )


class StoreDirectory:
    """The content of one store root."""

    def __init__(self, layout: StoreLayout) -> None:
        self.layer = ReadOnlyLayer()
        self.root = root = layout.root
        if not root.is_dir():
            raise StoreError(
                f"{root} is not a directory: name the one that holds commitlog/ (storePathRootDir"
                " of the broker)"
            )
        folders = layout.log_folders or (root / "commitlog",)
        if not any(folder.is_dir() for folder in folders):
            names = ", ".join(str(folder) for folder in folders)
            raise StoreError(
                f"{root} is not a store: {names} does not exist; name the directory that holds"
                " commitlog/, or give --config; a broker creates it with the first message"
            )
        self.log_folders = [self._folder(folder) for folder in folders]
        self.plain = self._queues("consumequeue")
        self.ext = self._queues("consumequeue_ext")
        self.batch = self._queues("batchconsumequeue")
        in_index = [root / "index" / name for name in self.layer.list(root / "index")]
        self.index_files = [
            path for path in in_index if len(path.name) == INDEX_NAME_SIZE and path.name.isdecimal()
        ]
        self.index_foreign = [path for path in in_index if path not in set(self.index_files)]
        self.log_files = sorted(extent for folder in self.log_folders for extent in folder.files)
        self.log_file_size = layout.log_file_size or sizes.file_size([self.log_files]) or 1 << 30
        self.log_size_is_guessed = layout.log_file_size is None and len(self.log_files) == 1
        self.queue_file_size = (
            layout.queue_file_size
            or sizes.file_size(q.files for q in self.plain.values())
            or QUEUE_FILE_SIZE
        )
        self.batch_file_size = (
            layout.batch_file_size
            or sizes.file_size(q.files for q in self.batch.values())
            or BATCH_FILE_SIZE
        )
        self.ext_file_size = (
            layout.ext_file_size
            or sizes.file_size(q.files for q in self.ext.values())
            or EXT_FILE_SIZE
        )
        self.manifest = manifest = queue_manifest.read(self.layer, root)
        self.index_state = None if manifest is None else manifest.index
        self.index_shape = sizes.index_shape(self.layer, self.index_files, layout, self.index_state)
        self.delay_levels_ms = layout.delay_levels_ms or DELAY_LEVELS_MS
        self.delays_are_known = layout.delay_levels_ms is not None
        self.is_clean = not (root / "abort").exists()
        self.checkpoint = self._checkpoint()

    def lock_owner(self) -> int | None:
        """Return the id of the process that has the store open, if any."""
        return lock_owner(self.root)

    def log_runs(self) -> list[FileQueue]:
        """Return the files of the log as runs without a gap: one run, if none is missing. Empty
        files are skipped.
        """
        runs: list[FileQueue] = []
        for extent in self.log_files:
            if not extent.length:
                continue
            file = MappedFile(
                self.layer, extent.path, extent.start, min(extent.length, self.log_file_size)
            )
            if runs and runs[-1].files[-1].start + self.log_file_size == extent.start:
                if runs[-1].files[-1].size == self.log_file_size:
                    runs[-1].files.append(file)
                    continue
            elif runs and extent.start < runs[-1].files[-1].start + self.log_file_size:
                continue  # duplicate or misnamed
            run = FileQueue(self.layer, [extent.path.parent], self.log_file_size)
            run.files = [file]
            runs.append(run)
        for run in runs:
            run.end_offset = run.files[-1].end
        return runs

    def store_config(self, **changes: object) -> StoreConfig:
        """Return the configuration to open this store with."""
        values: dict[str, object] = {
            "root": self.root,
            "commit_log_folders": tuple(folder.path for folder in self.log_folders),
            "commit_log_file_size": self.log_file_size,
            "queue_file_size": self.queue_file_size,
            "queue_ext_file_size": self.ext_file_size if self.ext else None,
            "batch_queue_file_size": self.batch_file_size,
            "index_shape": self.index_shape or IndexShape(),
            "delay_levels_ms": self.delay_levels_ms,
        }
        return StoreConfig(**(values | changes))  # type: ignore[arg-type]

    def relative(self, path: Path) -> str:
        """Return the path as findings name it: relative to the root, if it is below it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def log_path(self, offset: int) -> tuple[str, int]:
        """Return the file of the log, and the byte in it, of an offset."""
        start = offset - offset % self.log_file_size
        name = file_name(start)
        known = next(
            (extent.path for extent in self.log_files if extent.start == start),
            self.log_folders[0].path / name,
        )
        return self.relative(known), offset - start

    def other_files(self) -> Iterator[Path]:
        """Iterate over what is in the root and belongs to no store."""
        for name in self.layer.list(self.root):
            if (
                name not in KNOWN
                and not name.startswith(BACKUP_PREFIX)
                and self.root / name not in [f.path for f in self.log_folders]
            ):
                yield self.root / name

    def release(self) -> str:
        """Return which RocketMQ release wrote the store, as far as its files show."""
        marks = [name for name in _NAMES_OF_5 if (self.root / name).exists()]
        if self.checkpoint is not None and self.checkpoint.queues_offset:
            marks.append("a queue offset in the checkpoint")
        if marks:
            return f"5.x ({', '.join(marks)})"
        return (
            "4.x, or a 5.x that left no mark"
            if self.log_files
            else "unknown: there are no log files"
        )

    def sizes_on_disk(self) -> dict[str, tuple[int, int, int]]:
        """Return for each part of the store: files, bytes by length, bytes on disk."""
        found = {}
        for name in self.layer.list(self.root):
            path = self.root / name
            files = (
                [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            )
            found[name] = _measured(files)
        for folder in self.log_folders:
            if not folder.path.is_relative_to(self.root):
                found[str(folder.path)] = _measured([extent.path for extent in folder.files])
        return found

    def _folder(self, folder: Path) -> Folder:
        files, foreign = [], []
        for name in self.layer.list(folder):
            path = folder / name
            if (
                len(name) == len(file_name(0))
                and name.isascii()
                and name.isdigit()
                and path.is_file()
            ):
                files.append(Extent(int(name), self.layer.size(path), path))
            else:
                foreign.append(path)
        return Folder(folder, tuple(files), tuple(foreign))

    def _queues(self, name: str) -> dict[QueueKey, Folder]:
        found = {}
        for topic in self.layer.list(self.root / name):
            folder = self.root / name / topic
            ids = (
                [path for path in self.layer.list(folder) if path.isascii() and path.isdigit()]
                if folder.is_dir()
                else []
            )
            for queue_id in sorted(ids, key=int):
                found[QueueKey(topic, int(queue_id))] = self._folder(folder / queue_id)
        return found

    def _checkpoint(self) -> CheckpointNumbers | None:
        """Return the numbers; None if there is no file, or they are invalid."""
        path = self.root / "checkpoint"
        if not path.is_file():
            return None
        content = path.read_bytes()
        if len(content) != CHECKPOINT_SIZE:
            return None
        numbers = CheckpointNumbers._make(_CHECKPOINT.unpack_from(content))
        return numbers if min(numbers) >= 0 else None


def _measured(files: Sequence[Path]) -> tuple[int, int, int]:
    stats = [path.stat() for path in files]
    return (
        len(stats),
        sum(stat.st_size for stat in stats),
        sum(512 * stat.st_blocks for stat in stats),
    )
