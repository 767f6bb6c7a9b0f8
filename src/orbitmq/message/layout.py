"""Constants of the stored record shared by its writer, its reader and their callers;
docs/format/record.md has the whole table.
"""

from __future__ import annotations

from enum import IntEnum

MAGIC_V1 = 0xDAA320A7  # one-byte topic length
MAGIC_V2 = 0xDAA320AB  # two-byte topic length
MAGIC_BLANK = 0xCBD43194  # the rest of the file is blank
BLANK_SIZE = 8
SIZE_MIN = 91  # a record without body, topic and properties, both hosts IPv4
TOPIC_SIZE_V1_MAX = 127
PROPERTIES_SIZE_MAX = 32767
CRC_PROPERTY_SIZE = 20


class Flaw(IntEnum):
    """Why bytes are not a valid record. A flawed record's size is known only if its framing was
    valid: LENGTHS.
    """

    CUT = -1
    MAGIC = -2
    BODY = -3
    BODY_CRC = -4
    LENGTHS = -5
    RECORD_CRC = -6

    @property
    def reason(self) -> str:
        return _REASONS[self]


_REASONS = {
    Flaw.CUT: "fewer bytes are there than its size says",
    Flaw.MAGIC: "it does not begin as a record does",
    Flaw.BODY: "its body is longer than the record",
    Flaw.BODY_CRC: "its body does not have the checksum that was stored",
    Flaw.LENGTHS: "its parts do not add up to its size",
    Flaw.RECORD_CRC: "it has no checksum of the whole record, or another one",
}
