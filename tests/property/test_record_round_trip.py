"""Whatever a message holds, its record gives it back; whatever bytes are, reading them ends and
tells.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.message import batch, properties
from orbitmq.message.batch import BatchItem
from orbitmq.message.layout import CRC_PROPERTY_SIZE, Flaw
from orbitmq.message.record import decode, decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, encode_blank, record_size
from orbitmq.message.tags import java_hash

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
TEXTS = st.text(max_size=20)
TOPICS = TEXTS | st.text(st.characters(codec="ascii"), min_size=125, max_size=300)
SEPARATED = st.lists(
    st.sampled_from(["\1", "\2", "a", "TAGS", "KEYS", "ä", "\U0001f600", ""]), max_size=12
).map("".join)
PROPERTY_BYTES = (
    SEPARATED.map(str.encode)
    | st.binary(max_size=40)
    | st.integers(32_700, 32_746).map(lambda size: b"p" * size)
)  # a separator and the checksum still fit
BODIES = st.binary(max_size=300)
MESSAGES = st.builds(
    MessageRecord,
    TOPICS.map(str.encode),
    BODIES | BODIES.map(bytearray) | BODIES.map(lambda body: memoryview(body)),
    born_host=HOSTS,
    born_time_ms=LONGS,
    queue_id=INTS,
    flag=INTS,
    sys_flag=INTS,
    reconsume_times=INTS,
    prepared_offset=LONGS,
    properties=PROPERTY_BYTES,
)


def record(message: MessageRecord, store_host: bytes, with_crc: bool = False) -> bytes:
    target = bytearray(record_size(message, store_host, with_crc))
    encode(message, target, 0, 1, 2, 3, store_host, with_crc)
    return bytes(target)


@given(MESSAGES, HOSTS, LONGS, LONGS, LONGS, st.integers(0, 20), st.booleans())
def test_a_record_gives_back_its_message(
    message: MessageRecord,
    store_host: bytes,
    queue_offset: int,
    log_offset: int,
    store_time_ms: int,
    at: int,
    with_crc: bool,
) -> None:
    size = record_size(message, store_host, with_crc)
    target = bytearray(b"\xee" * (at + size + 20))
    assert (
        encode(message, target, at, queue_offset, log_offset, store_time_ms, store_host, with_crc)
        == size
    )
    assert target[:at] == b"\xee" * at
    assert target[at + size :] == b"\xee" * 20
    stored = decode(target, at)
    assert (stored.queue_offset, stored.log_offset, stored.store_time_ms, stored.size) == (
        queue_offset,
        log_offset,
        store_time_ms,
        size,
    )
    assert stored.store_host == store_host
    again = stored.to_message()
    host_bits = (0x10 if len(message.born_host) == 20 else 0) | (
        0x20 if len(store_host) == 20 else 0
    )
    message.sys_flag = message.sys_flag & ~0x30 | host_bits
    if with_crc:
        assert RecordCursor().read(target, at, len(target), check_record=True) == size
        message.properties = properties.closed(
            properties.without(message.properties, properties.CRC32)
        )
        again.properties = again.properties[:-CRC_PROPERTY_SIZE]
    assert again == message


@given(MESSAGES, HOSTS, st.data())
def test_a_damaged_record_never_harms_its_reader_and_a_damaged_body_is_found(
    message: MessageRecord, store_host: bytes, data: st.DataObject
) -> None:
    raw = bytearray(record(message, store_host))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    cursor = RecordCursor()
    result = cursor.read(raw, 0, cut)
    body_at = 88 + len(message.born_host) - 8 + len(store_host) - 8
    if body_at <= at < body_at + len(message.body):
        assert result == (Flaw.BODY_CRC if cut == len(raw) else Flaw.CUT)
    if cut < len(raw) and at >= 4:
        assert result == Flaw.CUT
    if result > 0:
        assert result == cursor.size <= cut
        assert cursor.message().size == result
        assert isinstance(cursor.tags_code(), int)
    else:
        assert result == 0 or Flaw(result).reason
        assert cursor.size >= 0


@given(
    st.binary(max_size=400)
    | st.lists(MESSAGES, max_size=3).map(
        lambda all_: b"".join(record(each, bytes(8)) for each in all_)
    )
)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        messages = list(decode_all(raw))
    except CorruptRecordError:
        return
    assert sum(message.size for message in messages) == len(raw)


@settings(max_examples=30)
@given(MESSAGES)
def test_a_record_with_a_checksum_tells_of_any_damage(message: MessageRecord) -> None:
    raw = bytearray(record(message, bytes(8), with_crc=True))
    step = max(1, len(raw) // 50)
    for at in range(0, len(raw) - 1, step):
        raw[at] ^= 0x11
        assert RecordCursor().read(raw, 0, len(raw), check_record=True) <= 0
        raw[at] ^= 0x11


@given(st.integers(8, 1 << 30), st.integers(0, 10))
def test_a_blank_reads_as_one_when_the_file_is_that_long(size: int, at: int) -> None:
    target = bytearray(30)
    encode_blank(target, at, size)
    assert RecordCursor().read(target, at, 30) == (0 if size <= 30 - at else Flaw.CUT)


def model(text: str) -> dict[str, str]:
    """The parser of the original, step by step."""
    found, index = {}, 0
    while index < len(text):
        end = text.find("\2", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            middle = text.find("\1", index)
            if index < middle < end - 1:
                found[text[index:middle]] = text[middle + 1 : end]
        index = end + 1
    return found


@given(SEPARATED | st.text())
def test_properties_are_read_as_the_original_reads_them(text: str) -> None:
    assert properties.parse(text) == model(text)
    if text.isascii():
        assert properties.parse(text.encode()) == model(text)


@given(SEPARATED, st.sampled_from(["TAGS", "KEYS", "a", "ä", "aa", ""]))
def test_one_property_of_a_record_is_what_reading_all_finds(text: str, name: str) -> None:
    raw = record(
        MessageRecord(b"T", b"", born_host=bytes(8), born_time_ms=0, properties=text.encode()),
        bytes(8),
    )
    cursor = RecordCursor()
    assert cursor.read(raw, 0, len(raw)) == len(raw)
    found = model(text)
    assert cursor.property(name) == found.get(name)
    assert cursor.tags_code() == java_hash(found.get("TAGS", ""))


@given(
    SEPARATED,
    st.sampled_from(["TAGS", "KEYS", "a"]),
    st.text(st.characters(exclude_characters="\2"), min_size=1),
)
def test_properties_are_taken_out_and_added(text: str, name: str, value: str) -> None:
    raw = text.encode()
    left = {each: content for each, content in model(text).items() if each != name}
    assert properties.parse(properties.without(raw, name)) == left
    value = value.encode("utf-8", "replace").decode()
    assert properties.parse(
        properties.extended(properties.without(raw, name), {name: value})
    ) == left | {name: value}


NAMES = st.text(st.characters(exclude_characters="\1\2", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\2", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, VALUES))
def test_properties_are_read_back_as_they_were_written(written: dict[str, str]) -> None:
    assert properties.parse(properties.write(written)) == written
    assert properties.parse(properties.encode(written)) == written


@given(st.text())
def test_the_hash_of_a_text_is_that_of_its_utf_16(text: str) -> None:
    expected = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        expected = (31 * expected + unit) % (1 << 32)
    assert java_hash(text) % (1 << 32) == expected
    assert -(1 << 31) <= java_hash(text) < 1 << 31


ITEMS = st.lists(st.builds(BatchItem, INTS, BODIES, PROPERTY_BYTES), max_size=5)


@given(ITEMS)
def test_the_items_of_a_batch_are_read_back_as_they_were_written(items: list[BatchItem]) -> None:
    assert batch.decode(batch.encode(items)) == items


@given(st.binary(max_size=200) | ITEMS.map(batch.encode), st.data())
def test_any_body_is_a_batch_or_is_refused(body: bytes, data: st.DataObject) -> None:
    damaged = bytearray(body)
    if damaged:
        damaged[data.draw(st.integers(0, min(len(damaged) - 1, 60)))] ^= data.draw(
            st.integers(0, 255)
        )
    try:
        items = batch.decode(bytes(damaged))
    except InvalidMessageError:
        return
    assert sum(22 + len(item.body) + len(item.properties) for item in items) == len(body)
