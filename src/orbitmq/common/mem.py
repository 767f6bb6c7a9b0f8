"""Byte access for interpreted kernels; `mem.pxd` holds the same functions in C for compiled ones.

A "pointer" here is any indexable buffer, and offsets are always explicit, so one kernel source
works in both modes.
"""

import os
from mmap import mmap
from typing import Any

Buffer = bytes | bytearray | memoryview | mmap


def address(buffer: Any) -> Any:
    """Return a pointer to the first byte of `buffer`, which must stay alive and keep its size while
    the pointer is in use.
    """
    return buffer


def text(pointer: Buffer, at: int, length: int) -> str:
    """Return the UTF-8 text at pointer[at:at+length]."""
    return str(pointer[at : at + length], "utf-8")


def utf8(value: str) -> bytes:
    """Return the UTF-8 bytes of `value`; raise UnicodeEncodeError for a lone surrogate."""
    return value.encode()


def utf8_size(value: str) -> int:
    """Return the number of bytes of `utf8(value)`."""
    return len(value.encode())


def text_bytes(pointer: Buffer, at: int, length: int) -> bytes:
    """Return a copy of pointer[at:at+length]."""
    return bytes(pointer[at : at + length])


def copy(target: bytearray, target_at: int, source: Buffer, source_at: int, length: int) -> None:
    """Copy source[source_at:source_at+length] to target[target_at:]."""
    target[target_at : target_at + length] = source[source_at : source_at + length]


def get32(pointer: Buffer, at: int) -> int:
    """Return the unsigned big-endian number at pointer[at:at+4]."""
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
    """Return the signed big-endian number at pointer[at:at+2]."""
    return int.from_bytes(pointer[at : at + 2], "big", signed=True)


def signed32(pointer: Buffer, at: int) -> int:
    """Return the signed big-endian number at pointer[at:at+4]."""
    return int.from_bytes(pointer[at : at + 4], "big", signed=True)


def signed64(pointer: Buffer, at: int) -> int:
    """Return the signed big-endian number at pointer[at:at+8]."""
    return int.from_bytes(pointer[at : at + 8], "big", signed=True)


def view(pointer: Buffer, at: int, length: int) -> memoryview:
    """Return pointer[at:at+length] without a copy, as a function argument; the callee must not keep
    it.
    """
    return memoryview(pointer)[at : at + length]


def same(pointer: Buffer, at: int, literal: bytes, length: int) -> bool:
    """Return whether pointer[at:at+length] equals the first `length` bytes of `literal`."""
    return pointer[at : at + length] == literal[:length]


def find(pointer: Buffer, at: int, end: int, byte: int) -> int:
    """Return the first offset in [at, end) that holds `byte`, or `end`."""
    found = bytes(pointer[at:end]).find(byte)
    return end if found < 0 else at + found


def is_ascii(pointer: Buffer, at: int, end: int) -> bool:
    """Return whether no byte of pointer[at:end] has its high bit set."""
    return bytes(pointer[at:end]).isascii()


def socket_receive(descriptor: int, pointer: bytearray, at: int, length: int) -> int:
    """Receive into pointer[at:at+length]. Returns the number of bytes, 0 at end of stream, -1 if it
    would block, -2 on error.
    """
    try:
        return os.readv(descriptor, [memoryview(pointer)[at : at + length]])
    except BlockingIOError:
        return -1
    except OSError:
        return -2


def socket_send(descriptor: int, pointer: Buffer, at: int, length: int) -> int:
    """Send pointer[at:at+length]. Returns the number of bytes sent, -1 if it would block, -2 on
    error.
    """
    try:
        return os.write(descriptor, memoryview(pointer)[at : at + length])
    except BlockingIOError:
        return -1
    except OSError:
        return -2
