"""Body checksums equal zlib's for any length and alignment: the compiled kernels have their own
implementation.
"""

from __future__ import annotations

import random
import zlib

import pytest

from orbitmq.message import hosts
from orbitmq.message.layout import Flaw
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, record_size

_HOST = hosts.pack("192.0.2.1", 10911)


@pytest.mark.parametrize("at", [0, 1, 15])
def test_a_body_of_any_length_has_the_checksum_of_zlib(at: int) -> None:
    """Lengths up to where each loop of the kernel ran several times."""
    buffer, cursor = bytearray(1000), RecordCursor()
    for size in range(600):
        body = random.Random(size).randbytes(size)
        length = encode(
            MessageRecord(b"T", body, born_host=_HOST, born_time_ms=1), buffer, at, 0, 0, 0, _HOST
        )
        stored = int.from_bytes(buffer[at + 8 : at + 12], "big")
        assert stored == zlib.crc32(body) & 0x7FFFFFFF, f"{size} bytes"
        assert cursor.read(buffer, at, at + length) == length


def test_one_wrong_bit_anywhere_in_a_body_is_seen() -> None:
    message = MessageRecord(b"T", random.Random(1).randbytes(333), born_host=_HOST, born_time_ms=1)
    buffer, cursor = bytearray(record_size(message, _HOST)), RecordCursor()
    encode(message, buffer, 0, 0, 0, 0, _HOST)
    assert cursor.read(buffer, 0, len(buffer)) == len(buffer)
    for at in range(cursor.body_at, cursor.body_at + cursor.body_size):
        buffer[at] ^= 1 << at % 8
        assert cursor.read(buffer, 0, len(buffer)) == Flaw.BODY_CRC
        buffer[at] ^= 1 << at % 8
