"""Byte access for kernels that run interpreted; `mem.pxd` holds the same functions in C for compiled ones.

A "pointer" here is any indexable buffer, and offsets are always explicit, so that one kernel source is right in both modes.
"""

import os
from mmap import mmap
from typing import Any

Buffer = bytes | bytearray | memoryview | mmap


def address(buffer: Any) -> Any:
    """Where the bytes of `buffer` begin; they must stay alive, and unresized, while this is in use."""
    return buffer


def text(pointer: Buffer, at: int, length: int) -> str:
    """The UTF-8 text at pointer[at:at+length]."""
    return str(pointer[at : at + length], "utf-8")


def utf8(value: str) -> bytes:
    """The UTF-8 bytes of `value`; UnicodeEncodeError for a lone surrogate."""
    return value.encode()


def utf8_size(value: str) -> int:
    """How many bytes `utf8(value)` has."""
    return len(value.encode())


def text_bytes(pointer: Buffer, at: int, length: int) -> bytes:
    """A copy of pointer[at:at+length]."""
    return bytes(pointer[at : at + length])


def copy(target: bytearray, target_at: int, source: Buffer, source_at: int, length: int) -> None:
    """Copy source[source_at:source_at+length] to target[target_at:]."""
    target[target_at : target_at + length] = source[source_at : source_at + length]


def get32(pointer: Buffer, at: int) -> int:
    """The unsigned big-endian number at pointer[at:at+4]."""
    return int.from_bytes(pointer[at : at + 4], "big")


def put32(pointer: bytearray, at: int, value: int) -> None:
    """Write the low 32 bits of `value`, big-endian, to pointer[at:at+4]."""
    pointer[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


def put16(pointer: bytearray, at: int, value: int) -> None:
    """Write the low 16 bits of `value`, big-endian, to pointer[at:at+2]."""
    pointer[at : at + 2] = (value & 0xFFFF).to_bytes(2, "big")


def put64(pointer: bytearray, at: int, value: int) -> None:
    """Write the low 64 bits of `value`, big-endian, to pointer[at:at+8]."""
    pointer[at : at + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def signed16(pointer: Buffer, at: int) -> int:
    """The signed big-endian number at pointer[at:at+2]."""
    return int.from_bytes(pointer[at : at + 2], "big", signed=True)


def signed32(pointer: Buffer, at: int) -> int:
    """The signed big-endian number at pointer[at:at+4]."""
    return int.from_bytes(pointer[at : at + 4], "big", signed=True)


def signed64(pointer: Buffer, at: int) -> int:
    """The signed big-endian number at pointer[at:at+8]."""
    return int.from_bytes(pointer[at : at + 8], "big", signed=True)


def view(pointer: Buffer, at: int, length: int) -> memoryview:
    """pointer[at:at+length] without a copy, to hand to a function; nobody may keep it."""
    return memoryview(pointer)[at : at + length]


def same(pointer: Buffer, at: int, literal: bytes, length: int) -> bool:
    """Whether pointer[at:at+length] equals the first `length` bytes of `literal`."""
    return pointer[at : at + length] == literal[:length]


def find(pointer: Buffer, at: int, end: int, byte: int) -> int:
    """The first offset in [at, end) that holds `byte`, or `end`."""
    found = bytes(pointer[at:end]).find(byte)
    return end if found < 0 else at + found


def socket_receive(descriptor: int, pointer: bytearray, at: int, length: int) -> int:
    """Receive into pointer[at:at+length]: how many bytes, 0 at the end of the stream, -1 would block, -2 broken."""
    try:
        return os.readv(descriptor, [memoryview(pointer)[at : at + length]])
    except BlockingIOError:
        return -1
    except OSError:
        return -2


def socket_send(descriptor: int, pointer: Buffer, at: int, length: int) -> int:
    """Send pointer[at:at+length]: how many bytes were taken, -1 would block, -2 broken."""
    try:
        return os.write(descriptor, memoryview(pointer)[at : at + length])
    except BlockingIOError:
        return -1
    except OSError:
        return -2
