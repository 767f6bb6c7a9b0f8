"""The numbers of the stored record that its writer, its reader and their callers share; docs/format/record.md has the whole table."""

from __future__ import annotations

from enum import IntEnum

MAGIC_V1 = 0xDAA320A7  # the length of the topic has one byte
MAGIC_V2 = 0xDAA320AB  # … two
MAGIC_BLANK = 0xCBD43194  # nothing more in this file
BLANK_SIZE = 8
SIZE_MIN = 91  # of a record: no body, no topic, no properties, both hosts IPv4
TOPIC_SIZE_V1_MAX = 127
PROPERTIES_SIZE_MAX = 32767
CRC_PROPERTY_SIZE = 20


class Flaw(IntEnum):
    """Why bytes are not a record. The size of a flawed record is known only where its frame was right: LENGTHS."""

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
