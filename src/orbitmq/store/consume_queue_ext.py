"""The ext file of a queue: what the 8 bytes of a tags code cannot hold of a message, above all the bits of the filters that it passed.

Unit: `2 size | 8 tags code | 8 store time | 2 size of bits | bits`, 20 to 32767 bytes. Units do not cross files: where the next would
come closer than 4 bytes to the end of its file, a size of -1 stands instead, and it goes to the next file. The address of a unit is its
position minus 2^63, so it is below every tags code; a queue's entry has it where else the tags code is.

Crash rule: the end is behind the unit that the last entry of the queue has; units behind it are wiped. Bytes that are no whole unit read
as no unit.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from orbitmq.common.errors import WriteFailed
from orbitmq.store.queue_files import QueueFiles

ADDRESS_BASE = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1  # tags codes are 32-bit numbers
UNIT_SIZE_MAX = 0x7FFF
_HEAD = Struct(">hqqh")
_FILE_END = b"\xff\xff"
_FILE_END_ROOM = 4


class ExtUnit(NamedTuple):
    """What the ext file says of one message; `bits` is empty when no filter was asked."""

    tags_code: int
    store_time_ms: int
    bits: bytes

    @property
    def size(self) -> int:
        return _HEAD.size + len(self.bits)


def is_ext_address(tags_code: int) -> bool:
    """Whether the tags code of an entry is the address of a unit instead."""
    return tags_code <= ADDRESS_MAX


class ConsumeQueueExt:
    """The units of one queue."""

    __slots__ = ("_pending", "files")

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self._pending = bytearray()

    def put(self, unit: ExtUnit) -> int:
        """Add a unit, written by the next `commit`; its address."""
        size, file_size = unit.size, self.files.file_size
        if size > min(UNIT_SIZE_MAX, file_size - _FILE_END_ROOM):
            unit = unit._replace(bits=b"")  # the filter is asked again by whoever reads the message
            size = unit.size
        position = self.files.end + len(self._pending)
        left = file_size - position % file_size
        if size > left - _FILE_END_ROOM:
            self._pending += _FILE_END + bytes(left - len(_FILE_END))
            position += left
        self._pending += _HEAD.pack(size, unit.tags_code, unit.store_time_ms, len(unit.bits)) + unit.bits
        return position + ADDRESS_BASE

    def commit(self) -> None:
        """Write what was put; WriteFailed keeps it, to be tried again."""
        if self._pending:
            try:
                self.files.append(self._pending, self.files.end)
            except OSError as error:
                raise WriteFailed(
                    f"ext file {self.files.folder}: {len(self._pending)} bytes could not be written: {error}; "
                    "they are kept and written with the next try"
                ) from error
            self._pending = bytearray()

    def get(self, address: int) -> ExtUnit | None:
        """The unit at that address; None when there is none, or no whole one."""
        return self._unit(address - ADDRESS_BASE) if is_ext_address(address) else None

    def end_behind(self, address: int) -> None:
        """Forget all units behind that one, which is an entry's; all of them when it is not whole, for others cannot be told then."""
        position = address - ADDRESS_BASE
        unit = self._unit(position)
        self.files.cut(0 if unit is None else position + unit.size)

    def forget_pending(self) -> None:
        """Forget the units that are not written."""
        self._pending.clear()

    def end_where_units_end(self) -> None:
        """Find the end when no entry tells it: behind the last whole unit of the last file."""
        position = self.files.starts[-1] if self.files.starts else 0
        while (unit := self._unit(position)) is not None:
            position += unit.size
        self.files.cut(position)

    def delete_before(self, address: int) -> None:
        """Remove files, never the last, that end before that unit."""
        position = address - ADDRESS_BASE
        while self.files.end - self.files.first > self.files.file_size and self.files.first + self.files.file_size < position:
            self.files.drop_first()

    def destroy(self) -> None:
        """Remove all units."""
        self.forget_pending()
        self.files.destroy()

    def _unit(self, position: int) -> ExtUnit | None:
        head = self.files.read(position, _HEAD.size)
        if len(head) < _HEAD.size:
            return None
        size, tags_code, store_time_ms, bits_size = _HEAD.unpack(head)
        at = position % self.files.file_size
        if bits_size < 0 or size != _HEAD.size + bits_size or at + size > self.files.file_size:
            return None
        bits = self.files.read(position + _HEAD.size, bits_size)
        return ExtUnit(tags_code, store_time_ms, bits) if len(bits) == bits_size else None
