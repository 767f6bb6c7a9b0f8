"""Compares the units of an ext file with the entries that hold their addresses; `consume_queue_ext`
documents the bytes of a unit.
"""

from __future__ import annotations

from struct import Struct

from orbitmq.store.consume_queue_ext import ADDRESS_BASE
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.tools.directory import Folder
from orbitmq.store.tools.queue_entries import QueueEntries
from orbitmq.store.tools.read_only import ReadOnlyLayer

_HEAD = Struct(">hqqh")
_FILE_END = -1


class ExtCheck:
    """The units of one queue, checked in the order of its entries."""

    __slots__ = ("_file_size", "_next", "_units")

    def __init__(
        self, layer: ReadOnlyLayer, files: OpenFiles, folder: Folder | None, file_size: int
    ) -> None:
        self._file_size = file_size
        self._next = -1  # expected position of the next entry's unit
        whole = folder is not None and folder.files and folder.is_whole(file_size)
        self._units = (
            QueueEntries(layer, files, folder, file_size, 1)
            if folder is not None and whole
            else None
        )

    def problem(self, address: int, tags_code: int, store_time_ms: int) -> str | None:
        """Return what is wrong with the unit at an address, None if it matches a record with those
        values.
        """
        position = address - ADDRESS_BASE
        if self._units is None:
            return "its ext files are missing, or have other lengths than they should"
        head = self._units.raw(position, _HEAD.size)
        if len(head) < _HEAD.size:
            return f"its address in the ext files is {position}, but they end at {self._units.end}"
        expected, self._next = self._next, -1
        size, code, time_ms, bits_size = _HEAD.unpack(head)
        if (
            bits_size < 0
            or size != _HEAD.size + bits_size
            or position % self._file_size + size > self._file_size
        ):
            return f"its ext unit at {position} has a size of {size} and {bits_size} bytes of bits"
        if expected >= 0 and position != expected and not self._is_rolled(expected, position):
            return f"its ext unit is at {position}, the one before ends at {expected}"
        self._next = position + size
        if code != tags_code:
            return (
                f"its ext unit at {position} has the tags code {code}, its record has {tags_code}"
            )
        if time_ms != store_time_ms:
            return (
                f"its ext unit at {position} has the store time {time_ms}, its record has"
                f" {store_time_ms}"
            )
        return None

    def _is_rolled(self, expected: int, position: int) -> bool:
        """Whether the unit went to the next file because it did not fit."""
        assert self._units is not None
        mark = int.from_bytes(self._units.raw(expected, 2), "big", signed=True)
        return (
            mark == _FILE_END
            and position == expected - expected % self._file_size + self._file_size
        )
