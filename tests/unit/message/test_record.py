"""The stored record: its bytes, its limits, and the errors for invalid bytes."""

from __future__ import annotations

import mmap
import struct
from zlib import crc32

import pytest

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.common.mem import Buffer
from orbitmq.message import hosts
from orbitmq.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.message.layout import (
    CRC_PROPERTY_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_SIZE_MAX,
    SIZE_MIN,
    Flaw,
)
from orbitmq.message.record import RecordLimits, decode, decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, encode_blank, record_size

V4 = hosts.pack("192.0.2.1", 10911)
V6 = hosts.pack("2001:db8::1", 10911)
BODY = b"a body"
PROPERTIES = b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02"


def message(
    topic: bytes = b"Topic",
    body: Buffer = BODY,
    born_host: bytes = V4,
    properties: bytes = PROPERTIES,
    sys_flag: int = 0,
) -> MessageRecord:
    return MessageRecord(
        topic,
        body,
        born_host=born_host,
        born_time_ms=1_700_000_000_123,
        queue_id=3,
        sys_flag=sys_flag,
        properties=properties,
    )


def record(content: MessageRecord, store_host: bytes = V4, *, with_crc: bool = False) -> bytearray:
    target = bytearray(record_size(content, store_host, with_crc))
    assert encode(content, target, 0, 7, 4096, 1_700_000_000_456, store_host, with_crc) == len(
        target
    )
    return target


def flaw(raw: Buffer, **checks: bool) -> tuple[int, int]:
    """Return the result of `read` and the size it reports."""
    cursor = RecordCursor()
    return cursor.read(raw, 0, len(raw), **checks), cursor.size


def test_a_record_has_its_fields_where_the_format_puts_them() -> None:
    content = MessageRecord(
        b"Topic",
        BODY,
        born_host=V4,
        born_time_ms=1_700_000_000_123,
        queue_id=-3,
        flag=-5,
        sys_flag=8,
        reconsume_times=2,
        prepared_offset=99,
        properties=PROPERTIES,
    )
    fixed = struct.pack(
        ">iIiiiqqiq",
        91 + 6 + 5 + 21,
        MAGIC_V1,
        crc32(BODY) & 0x7FFFFFFF,
        -3,
        -5,
        7,
        4096,
        8,
        1_700_000_000_123,
    )
    rest = (
        V4
        + struct.pack(">q", 1_700_000_000_456)
        + V4
        + struct.pack(">iqi", 2, 99, 6)
        + BODY
        + b"\x05Topic\x00\x15"
        + PROPERTIES
    )
    assert record(content) == fixed + rest


def test_a_topic_of_more_than_127_bytes_makes_a_record_of_version_2() -> None:
    short, long = record(message(b"t" * 127)), record(message(b"t" * 128))
    assert short[4:8] == MAGIC_V1.to_bytes(4, "big")
    assert long[4:8] == MAGIC_V2.to_bytes(4, "big")
    assert len(long) == len(short) + 2
    assert decode(long).topic == "t" * 128


def test_a_short_topic_in_a_record_of_version_2_is_read() -> None:
    raw = record(message(body=b"", properties=b""))
    raw[88:89] = b"\x00\x05"
    raw[0:8] = struct.pack(">iI", len(raw), MAGIC_V2)
    assert decode(raw).topic == "Topic"


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("sys_flag", [0, BORN_HOST_V6 | STORE_HOST_V6])
def test_the_system_flag_tells_the_sizes_of_the_hosts_whatever_it_said_before(
    born_host: bytes, store_host: bytes, sys_flag: int
) -> None:
    stored = decode(record(message(born_host=born_host, sys_flag=sys_flag), store_host))
    assert (stored.born_host, stored.store_host) == (born_host, store_host)
    assert stored.sys_flag == (BORN_HOST_V6 if born_host == V6 else 0) | (
        STORE_HOST_V6 if store_host == V6 else 0
    )
    assert len(stored.msg_id) == (56 if store_host == V6 else 32)


@pytest.mark.parametrize(
    ("before", "stored"),
    [
        (b"", b""),
        (b"a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b", b"a\x01b\x02"),
        (b"__CRC32#\x01123\x02a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b\x02__CRC32#\x01123", b"a\x01b\x02"),
        (b"__CRC32#\x01123", b""),
    ],
)
def test_the_checksum_of_a_record_is_its_last_property_and_the_only_one_of_its_name(
    before: bytes, stored: bytes
) -> None:
    raw = record(message(properties=before), with_crc=True)
    checksum = crc32(raw[:-CRC_PROPERTY_SIZE]) & 0x7FFFFFFF
    assert (
        decode(raw).raw_properties
        == stored
        + f"__CRC32#\x01{checksum:010d}"[:9].encode()
        + f"{checksum:010d}"[::-1].encode()
        + b"\x02"
    )
    assert flaw(raw, check_record=True) == (len(raw), len(raw))


def test_any_changed_bit_of_a_record_with_a_checksum_is_found() -> None:
    raw = record(message(), with_crc=True)
    for bit in range(8 * (len(raw) - 1)):  # the last byte only terminates the property
        raw[bit // 8] ^= 1 << bit % 8
        assert flaw(raw, check_record=True)[0] <= 0, bit
        raw[bit // 8] ^= 1 << bit % 8


def test_a_record_without_checksum_fails_where_one_is_required() -> None:
    assert flaw(record(message()), check_record=True) == (Flaw.RECORD_CRC, 0)
    assert flaw(record(message(properties=b"")), check_record=True) == (Flaw.RECORD_CRC, 0)


def test_a_changed_body_is_found_only_if_checked() -> None:
    raw = record(message())
    raw[88] ^= 1
    assert flaw(raw) == (Flaw.BODY_CRC, 0)
    assert flaw(raw, check_body=False) == (len(raw), len(raw))
    with pytest.raises(CorruptRecordError, match="at 0: its body does not have the checksum"):
        decode(raw)


@pytest.mark.parametrize(
    ("at", "content", "expected"),
    [
        (0, struct.pack(">i", 1000), (Flaw.CUT, 0)),
        (0, struct.pack(">i", 87), (Flaw.BODY, 0)),
        (0, struct.pack(">i", -1), (Flaw.BODY, 0)),
        (4, bytes(4), (Flaw.MAGIC, 0)),
        (36, struct.pack(">i", 0x30), (Flaw.BODY, 0)),
        (84, struct.pack(">i", -1), (Flaw.BODY, 0)),
        (84, struct.pack(">i", 0x7FFFFFFF), (Flaw.BODY, 0)),
        (94, b"\x06", (Flaw.LENGTHS, 123)),
        (94, b"\x7f", (Flaw.LENGTHS, 123)),
        (94, b"\x80", (Flaw.LENGTHS, 123)),
        (100, b"\x00\x14", (Flaw.LENGTHS, 123)),
        (100, b"\x00\x16", (Flaw.LENGTHS, 123)),
        (100, b"\xff\xff", (Flaw.LENGTHS, 123)),
    ],
)
def test_a_flaw_is_told_with_the_size_where_that_can_be_believed(
    at: int, content: bytes, expected: tuple[int, int]
) -> None:
    raw = record(message())
    raw[at : at + len(content)] = content
    assert flaw(raw) == expected


def test_a_blank_ends_a_file() -> None:
    target = bytearray(100)
    assert encode_blank(target, 10, 90) == 8
    assert target == bytes(10) + struct.pack(">iI", 90, MAGIC_BLANK) + bytes(82)
    assert RecordCursor().read(target, 10, 100) == 0
    assert RecordCursor().read(target, 10, 99) == Flaw.CUT
    with pytest.raises(CorruptRecordError, match="blank"):
        decode(target, 10)


def test_zeros_and_less_than_a_record_are_told_apart() -> None:
    assert flaw(bytes(100)) == (Flaw.MAGIC, 0)
    assert flaw(bytes(7)) == (Flaw.CUT, 0)
    assert flaw(b"") == (Flaw.CUT, 0)


def test_the_fields_of_a_record_are_read_one_by_one() -> None:
    raw = record(message(born_host=V6))
    cursor = RecordCursor()
    assert cursor.read(raw, 0, len(raw)) == len(raw)
    assert (cursor.topic(), cursor.body(), cursor.properties()) == (b"Topic", BODY, PROPERTIES)
    assert (cursor.queue_id, cursor.queue_offset, cursor.log_offset, cursor.sys_flag) == (
        3,
        7,
        4096,
        BORN_HOST_V6,
    )
    assert (cursor.born_time_ms, cursor.store_time_ms) == (1_700_000_000_123, 1_700_000_000_456)
    assert (cursor.born_host(), cursor.store_host()) == (V6, V4)
    assert (
        cursor.property("TAGS"),
        cursor.property("KEYS"),
        cursor.property("TAG"),
        cursor.property(""),
    ) == ("TagA", "k1 k2", None, None)
    assert cursor.tags_code() == 2598919


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_record_is_read_from_any_buffer(
    kind: type[bytes] | type[bytearray] | type[memoryview],
) -> None:
    raw = record(message())
    buffer = kind(b"xxx" + raw + b"yyy")
    assert decode(buffer, 3, 3 + len(raw)) == decode(raw)
    assert decode(buffer, 3) == decode(raw)


def test_a_record_is_read_from_a_mapping_that_may_be_closed_then() -> None:
    raw = record(message())
    mapping = mmap.mmap(-1, 4096)
    mapping[50 : 50 + len(raw)] = bytes(raw)
    cursor = RecordCursor()
    assert cursor.read(mapping, 50, 4096) == len(raw)
    assert cursor.message() == decode(raw)
    mapping.close()
    with pytest.raises(ValueError, match="closed"):
        cursor.topic()


def test_a_cursor_that_is_on_no_record_says_so() -> None:
    cursor, raw = RecordCursor(), record(message())
    for _ in range(2):
        with pytest.raises(ValueError, match="no whole record"):
            cursor.body()
        assert cursor.read(raw, 0, len(raw)) == len(raw)
        assert cursor.body() == BODY
        raw[100] ^= 1
        assert cursor.read(raw, 0, len(raw)) == Flaw.LENGTHS
        raw[100] ^= 1
    cursor.read(raw, 0, len(raw))
    del raw[50:]
    with pytest.raises(ValueError, match="no whole record"):
        cursor.body()


@pytest.mark.parametrize(("at", "end"), [(-1, 10), (0, 11), (11, 10), (6, 5)])
def test_a_cursor_stays_inside_its_buffer(at: int, end: int) -> None:
    with pytest.raises(ValueError, match="not within a buffer of 10 bytes"):
        RecordCursor().read(bytes(10), at, end)


def test_an_answer_is_read_record_by_record_up_to_what_is_none() -> None:
    first, second = record(message()), record(message(b"Other", b""))
    assert [each.topic for each in decode_all(first + second)] == ["Topic", "Other"]
    assert list(decode_all(b"")) == []
    reading = decode_all(first + second[:-1])
    assert next(reading).body == BODY
    with pytest.raises(
        CorruptRecordError,
        match=f"at {len(first)} of {len(first) + len(second) - 1} bytes: fewer bytes",
    ):
        next(reading)


def test_a_message_can_be_stored_once_more() -> None:
    content = message(body=memoryview(b"a view"), born_host=V6, sys_flag=BORN_HOST_V6)
    again = decode(record(content)).to_message()
    assert again == content
    assert again != message()
    assert repr(again).startswith("MessageRecord(topic=b'Topic' queue_id=3")


def test_a_record_is_not_written_beyond_the_buffer() -> None:
    content = message()
    size = record_size(content, V4)
    for target, at in (
        (bytearray(size - 1), 0),
        (bytearray(size), 1),
        (bytearray(size), -1),
        (bytearray(0), 0),
    ):
        before = bytes(target)
        with pytest.raises(ValueError, match=f"{size} bytes do not fit at {at}"):
            encode(content, target, at, 0, 0, 0, V4)
        assert target == before
    with pytest.raises(ValueError, match="8 bytes do not fit"):
        encode_blank(bytearray(10), 3, 100)
    with pytest.raises(ValueError, match="a blank of 7 bytes"):
        encode_blank(bytearray(10), 0, 7)


def test_what_the_format_cannot_hold_is_refused() -> None:
    assert (
        record_size(message(properties=b"p" * PROPERTIES_SIZE_MAX), V4)
        == SIZE_MIN + 5 + 6 + PROPERTIES_SIZE_MAX
    )
    with pytest.raises(
        InvalidMessageError, match="properties of 32768 bytes: a record holds at most 32767"
    ):
        record_size(message(properties=b"p" * 32768), V4)
    with pytest.raises(InvalidMessageError, match="properties of 32768 bytes"):
        record_size(message(properties=b"p" * 32747), V4, True)
    with pytest.raises(InvalidMessageError, match="a topic of 32768 bytes"):
        record_size(message(topic=b"t" * 32768), V4)
    with pytest.raises(ValueError, match="hosts of 8 and 4 bytes"):
        record_size(message(), b"1234")


def test_what_a_broker_does_not_take_is_refused_with_size_and_limit() -> None:
    limits = RecordLimits(body_size_max=1000)
    assert limits.check(message(body=bytes(1000)), V4) == record_size(message(body=bytes(1000)), V4)
    assert limits.check(message(topic=b"%RETRY%" + b"t" * 248), V4) > 0
    for content, text in (
        (message(body=bytes(1001)), "a body of 1001 bytes: at most 1000"),
        (message(topic=b"t" * 128), "a topic of 128 bytes: between 1 and 127"),
        (message(topic=b"%RETRY%" + b"t" * 249), "a topic of 256 bytes: between 1 and 255"),
        (message(topic=b""), "a topic of 0 bytes"),
        (message(properties=b"p" * 32768), "properties of 32768 bytes: at most 32767"),
    ):
        with pytest.raises(InvalidMessageError, match=text):
            limits.check(content, V4)
    tight = RecordLimits(body_size_max=1000, around_body_size_max=90)
    with pytest.raises(InvalidMessageError, match="a record of 1116 bytes: at most 1090"):
        tight.check(message(body=bytes(1000), properties=b"a\x01b\x02" * 5), V4)
