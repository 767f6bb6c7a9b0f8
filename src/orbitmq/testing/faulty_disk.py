"""A disk with injected faults, stalls and power cuts: a `FileLayer` around the real one.

Two images of everything below `root` exist: the volatile one, which is the real directory, and the
durable one in memory, with what was synced (content and length by `fdatasync`, names by `sync_dir`;
`make_folder` is durable when it returns). `power_cut` writes the directory as it might be after a
power loss: each unsynced write is complete, lost, or torn at 512-byte sectors, and each change of a
length or a name is applied or lost; a seeded random generator decides.

A failed `fdatasync` behaves as on Linux: the generator decides at once which writes reached the
disk, the others are forgotten, and a later `fdatasync` succeeds without them. Files are held in
memory, so use small ones.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from orbitmq.common.mem import Buffer
from orbitmq.store.file_layer import FileLayer

SECTOR = 512


class _Write(NamedTuple):
    """A write that is not synced yet."""

    offset: int
    data: bytes


class _Resize(NamedTuple):
    """A change of length that is not synced yet."""

    length: int


class _NameChange(NamedTuple):
    """A created (only `new`), removed (only `old`) or renamed (both) file."""

    old: Path | None
    new: Path | None
    file: _TrackedFile


@dataclass(slots=True, eq=False)
class _TrackedFile:
    """One file under any name: its durable content and the changes since."""

    durable: bytearray
    pending: list[_Write | _Resize] = field(default_factory=list)


@dataclass(slots=True)
class _Fault:
    """An injected error: after how many calls, how often, and what was written before it."""

    after: int
    times: int
    error: int
    partial_bytes: int


class FaultyDisk:
    """A `FileLayer` with injected faults. `calls` counts calls by method name."""

    def __init__(self, layer: FileLayer, root: Path, *, seed: int = 0) -> None:
        self.calls: Counter[str] = Counter()
        self.ratios: dict[Path, float] = {}  # overrides `disk_ratio` of a folder
        self._layer = layer
        self._root = root
        self._random = Random(seed)
        self._faults: dict[str, list[_Fault]] = {}
        self._stalls: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._descriptors: dict[int, _TrackedFile] = {}
        self._names: dict[Path, _TrackedFile] = {}  # present names
        self._durable_names: dict[Path, _TrackedFile] = {}
        self._name_changes: dict[Path, list[_NameChange]] = {}  # by folder, since its last sync
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self._names[path] = self._durable_names[path] = _TrackedFile(
                    bytearray(path.read_bytes())
                )

    def fail(
        self, kind: str, error: int, *, after: int = 0, times: int = 1, partial_bytes: int = 0
    ) -> None:
        """Make the next `times` calls of `kind` fail, after `after` successful ones; a failing
        write may persist its first bytes.
        """
        assert hasattr(self, kind), kind
        self._faults.setdefault(kind, []).append(_Fault(after, times, error, partial_bytes))

    def heal(self) -> None:
        """Remove all faults and stalls."""
        self._faults.clear()
        self._stalls.clear()

    def stall(self, kind: str, until: Callable[[], object]) -> None:
        """Make every call of `kind` wait for `until` to return, until `heal`."""
        self._stalls[kind] = until

    def power_cut(self, target: Path, random: Random | None = None) -> None:
        """Write to `target` the files as they might be after a power loss; this disk goes on."""
        random = random or self._random
        with self._lock:
            names = dict(self._durable_names)
            for folder in sorted(self._name_changes):
                for change in self._name_changes[folder]:
                    if random.random() < 0.5:
                        _rename(names, change)
            for folder in [
                self._root,
                *(path for path in sorted(self._root.rglob("*")) if path.is_dir()),
            ]:
                (target / folder.relative_to(self._root)).mkdir(parents=True, exist_ok=True)
            for path, file in sorted(names.items()):
                (target / path.relative_to(self._root)).write_bytes(_survivor(file, random))

    # The file layer.

    def open(self, path: Path, *, create: bool = False) -> int:
        self._call("open")
        descriptor = self._layer.open(path, create=create)
        with self._lock:
            if path not in self._names:
                self._names[path] = file = _TrackedFile(bytearray())
                self._name_changes.setdefault(path.parent, []).append(_NameChange(None, path, file))
            self._descriptors[descriptor] = self._names[path]
        return descriptor

    def close(self, descriptor: int) -> None:
        self._call("close")
        with self._lock:
            del self._descriptors[descriptor]
        self._layer.close(descriptor)

    def size(self, path: Path) -> int:
        self._call("size")
        return self._layer.size(path)

    def modified_ms(self, path: Path) -> int:
        self._call("modified_ms")
        return self._layer.modified_ms(path)

    def list(self, folder: Path) -> list[str]:
        self._call("list")
        return self._layer.list(folder)

    def make_folder(self, folder: Path) -> None:
        self._call("make_folder")
        self._layer.make_folder(folder)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        try:
            self._call("pwrite")
        except _Partly as failure:
            self._write(descriptor, bytes(data[: failure.written]), offset)
            raise
        self._write(descriptor, bytes(data), offset)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        self._call("pread")
        return self._layer.pread(descriptor, length, offset)

    def checksum(self, path: str, size: int, length: int) -> int | None:
        self._call("pread")
        return self._layer.checksum(path, size, length)

    def map(self, descriptor: int, length: int) -> mmap.mmap:
        self._call("map")
        return self._layer.map(descriptor, length)

    def truncate(self, descriptor: int, length: int) -> None:
        self._call("truncate")
        with self._lock:
            self._layer.truncate(descriptor, length)
            self._descriptors[descriptor].pending.append(_Resize(length))

    def clear(self, descriptor: int, offset: int, length: int) -> None:
        self._call("clear")
        with self._lock:
            self._layer.clear(descriptor, offset, length)
            self._descriptors[descriptor].pending.append(_Write(offset, bytes(length)))

    def next_data(self, descriptor: int, offset: int, end: int) -> int:
        self._call("next_data")
        return self._layer.next_data(descriptor, offset, end)

    def next_hole(self, descriptor: int, offset: int, end: int) -> int:
        self._call("next_hole")
        return self._layer.next_hole(descriptor, offset, end)

    def fdatasync(self, descriptor: int) -> None:
        with self._lock:
            file = self._descriptors[descriptor]
            covered = len(file.pending)
        try:
            self._call("fdatasync")
            self._layer.fdatasync(descriptor)
        except OSError:
            with self._lock:
                file.durable = bytearray(
                    _survivor(_TrackedFile(file.durable, file.pending[:covered]), self._random)
                )
                del file.pending[:covered]
            raise
        with self._lock:
            for change in file.pending[:covered]:
                _apply(file.durable, change)
            del file.pending[:covered]

    def rename(self, old: Path, new: Path) -> None:
        self._call("rename")
        with self._lock:
            self._layer.rename(old, new)
            change = _NameChange(old, new, self._names[old])
            _rename(self._names, change)
            self._name_changes.setdefault(new.parent, []).append(change)

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        with self._lock:
            self._layer.unlink(path)
            change = _NameChange(path, None, self._names[path])
            _rename(self._names, change)
            self._name_changes.setdefault(path.parent, []).append(change)

    def remove_folder(self, folder: Path) -> None:
        self._call("remove_folder")
        self._layer.remove_folder(folder)

    def sync_dir(self, folder: Path) -> None:
        self._call("sync_dir")
        with self._lock:
            self._layer.sync_dir(folder)
            for change in self._name_changes.pop(folder, ()):
                _rename(self._durable_names, change)

    def disk_ratio(self, folder: Path) -> float:
        self._call("disk_ratio")
        return self.ratios.get(folder) or self._layer.disk_ratio(folder)

    def _write(self, descriptor: int, data: bytes, offset: int) -> None:
        with self._lock:
            self._layer.pwrite(descriptor, data, offset)
            self._descriptors[descriptor].pending.append(_Write(offset, data))

    def _call(self, kind: str) -> None:
        """Count the call, then stall or fail it as configured."""
        self.calls[kind] += 1
        if kind in self._stalls:
            self._stalls[kind]()
        for fault in self._faults.get(kind, ()):
            if fault.after > 0:
                fault.after -= 1
            elif fault.times > 0:
                fault.times -= 1
                raise _Partly(fault.error, os.strerror(fault.error), fault.partial_bytes)


class _Partly(OSError):
    """The error of a fault, and the number of bytes written before it."""

    def __init__(self, number: int, text: str, written: int) -> None:
        super().__init__(number, text)
        self.written = written


def _rename(names: dict[Path, _TrackedFile], change: _NameChange) -> None:
    if change.old is not None and names.get(change.old) is change.file:
        del names[change.old]
    if change.new is not None:
        names[change.new] = change.file


def _apply(content: bytearray, change: _Write | _Resize) -> None:
    if isinstance(change, _Resize):
        del content[change.length :]
        content += bytes(change.length - len(content))
    else:
        content += bytes(max(change.offset + len(change.data) - len(content), 0))
        content[change.offset : change.offset + len(change.data)] = change.data


def _survivor(file: _TrackedFile, random: Random) -> bytes:
    """Return the content that may survive: each change is complete, torn or lost."""
    content = bytearray(file.durable)
    for change in file.pending:
        fate = random.choice(("whole", "lost", "torn"))
        if fate == "whole" or (fate == "torn" and isinstance(change, _Resize)):
            _apply(content, change)
        elif fate == "torn" and isinstance(change, _Write):
            at, end = change.offset, change.offset + len(change.data)
            while at < end:
                stop = min(at - at % SECTOR + SECTOR, end)
                if random.random() < 0.5:
                    _apply(
                        content, _Write(at, change.data[at - change.offset : stop - change.offset])
                    )
                at = stop
    return bytes(content)
