"""The ext file of a queue: message data that does not fit into the 8 bytes of a tags code, above
all the filters' bits.

Unit: `2 size | 8 tags code | 8 store time | 2 size of bits | bits`, 20 to 32767 bytes. Units do not
cross files: where the next would come closer than 4 bytes to the end of its file, a size of -1 is
written, and the unit goes to the next file. The address of a unit is its position minus 2^63, so it
is below every tags code; a queue's entry holds it instead of the tags code.

Crash rule: the end is after the unit of the queue's last entry; units after it are wiped. Bytes
that are not a complete unit are ignored.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from orbitmq.common.errors import WriteFailedError
from orbitmq.store.queue_files import QueueFiles

ADDRESS_BASE = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1  # tags codes are 32-bit numbers
UNIT_SIZE_MAX = 0x7FFF
_HEAD = Struct(">hqqh")
_FILE_END = b"\xff\xff"
_FILE_END_ROOM = 4


class ExtUnit(NamedTuple):
    """The ext data of one message; `bits` is empty if no filter was evaluated."""

    tags_code: int
    store_time_ms: int
    bits: bytes

    @property
    def size(self) -> int:
        return _HEAD.size + len(self.bits)


def is_ext_address(tags_code: int) -> bool:
    """Whether the tags code of an entry is the address of a unit."""
    return tags_code <= ADDRESS_MAX


class ConsumeQueueExt:
    """The units of one queue."""

    __slots__ = ("_pending", "files")

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self._pending = bytearray()

    def put(self, unit: ExtUnit) -> int:
        """Add a unit, written by the next `commit`; return its address."""
        size, file_size = unit.size, self.files.file_size
        if size > min(UNIT_SIZE_MAX, file_size - _FILE_END_ROOM):
            unit = unit._replace(bits=b"")  # readers evaluate the filter again
            size = unit.size
        position = self.files.end + len(self._pending)
        left = file_size - position % file_size
        if size > left - _FILE_END_ROOM:
            self._pending += _FILE_END + bytes(left - len(_FILE_END))
            position += left
        self._pending += (
            _HEAD.pack(size, unit.tags_code, unit.store_time_ms, len(unit.bits)) + unit.bits
        )
        return position + ADDRESS_BASE

    def commit(self) -> None:
        """Write the put units; WriteFailedError keeps them for the next attempt."""
        if self._pending:
            try:
                self.files.append(self._pending, self.files.end)
            except OSError as error:
                raise WriteFailedError(
                    f"ext file {self.files.folder}: {len(self._pending)} bytes could not be"
                    f" written: {error}; they are kept, and the next attempt writes them"
                ) from error
            self._pending = bytearray()

    def get(self, address: int) -> ExtUnit | None:
        """Return the unit at that address; None if there is none, or no complete one."""
        return self._unit(address - ADDRESS_BASE) if is_ext_address(address) else None

    def end_after(self, address: int) -> None:
        """Drop all units after that one; drop all if it is not complete, for the others cannot be
        located then.
        """
        position = address - ADDRESS_BASE
        unit = self._unit(position)
        self.files.cut(0 if unit is None else position + unit.size)

    def forget_pending(self) -> None:
        """Drop the units that are not written."""
        self._pending.clear()

    def end_where_units_end(self) -> None:
        """Truncate after the last complete unit of the last file, if no entry points to the end."""
        position = self.files.starts[-1] if self.files.starts else 0
        while (unit := self._unit(position)) is not None:
            position += unit.size
        self.files.cut(position)

    def delete_before(self, address: int) -> None:
        """Remove files, never the last, that end before that unit."""
        position = address - ADDRESS_BASE
        while (
            self.files.end - self.files.first > self.files.file_size
            and self.files.first + self.files.file_size < position
        ):
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
