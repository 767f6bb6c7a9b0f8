"""Tests the row kernels: rows equal what consumers see, and arbitrary bytes become rows or are
refused.
"""

from __future__ import annotations

import mmap
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError, OrbitError
from orbitmq.message import batch, compression, hosts, properties
from orbitmq.message.batch import BatchItem
from orbitmq.message.flags import CompressionType, with_compression
from orbitmq.message.record import decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.spark import schema
from orbitmq.spark.kernels.rows import RowBuilder
from support.common.golden_data import RECORDS_IN_LOG
from support.spark.rows import BROKER, rows_in, rows_of
from support.store.logs import golden_logs

ALL = tuple(schema.COLUMNS)
EVERY = (-(1 << 62), 1 << 62)  # queue offset
HOST = hosts.pack("192.0.2.1", 10911)

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
QUEUE_OFFSETS = st.integers(-(1 << 60), 1 << 60)
HOSTS = (
    st.binary(min_size=8, max_size=8)
    | st.binary(min_size=20, max_size=20)
    | st.sampled_from([HOST, bytes(20)])
)
NAMES = st.sampled_from(
    [
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "a",
        "aa",
        "ä",
        "世界",
        "\U0001f600",
        "WAIT",
        "TRACE_ON",
        "UNIQ_KEX",
        "tags",
    ]
)
PAIRS = st.lists(st.tuples(NAMES | st.text(max_size=4), st.text(max_size=12)), max_size=9)
SEPARATED = st.lists(
    st.sampled_from(
        [b"\1", b"\2", b"a", b"KEYS", b"TAGS", b"UNIQ_KEY", b"\xe4", b"\xff", b"\xed\xa0\x80"]
    ),
    max_size=14,
)
PROPERTIES = (
    PAIRS.map(
        lambda pairs: b"".join(
            f"{name}\1{value}\2".encode("utf-8", "replace") for name, value in pairs
        )
    )
    | SEPARATED.map(b"".join)
    | st.binary(max_size=40)
    | st.integers(0, 200).map(
        lambda count: b"".join(b"p%d\1v\2" % (number % 150) for number in range(count))
    )
)
TOPICS = st.binary(max_size=140) | st.sampled_from([b"Orders", "Bücher".encode(), b"%RETRY%g"])
PLAIN_FLAGS = st.sampled_from([0, 0x4, 0x8, 0xC, 0x40, 0x80, 0x700])
MESSAGES = st.builds(
    MessageRecord,
    TOPICS,
    st.binary(max_size=300),
    born_host=HOSTS,
    born_time_ms=LONGS,
    queue_id=INTS,
    flag=INTS,
    sys_flag=PLAIN_FLAGS,
    reconsume_times=INTS,
    prepared_offset=LONGS,
    properties=PROPERTIES,
)


def compressed(body: bytes, kind: CompressionType, cut: int) -> MessageRecord:
    """Return a message with a compressed body that lacks its last `cut` bytes."""
    packed = compression.deflate(body, kind)
    return MessageRecord(
        b"Packed",
        packed[: len(packed) - cut],
        born_host=HOST,
        born_time_ms=1,
        sys_flag=with_compression(0, kind),
    )


def batched(bodies: list[bytes], raw_properties: bytes) -> MessageRecord:
    """Return a message that contains several."""
    items = [BatchItem(number, body, raw_properties) for number, body in enumerate(bodies)]
    message = MessageRecord(b"Batch", batch.encode(items), born_host=HOST, born_time_ms=2)
    batch.make_inner(message)
    return message


RARE = st.builds(
    compressed,
    st.binary(max_size=500),
    st.sampled_from(CompressionType),
    st.sampled_from([0, 0, 0, 3]),
) | st.builds(batched, st.lists(st.binary(max_size=50), max_size=4), PROPERTIES)


def record(
    message: MessageRecord,
    store_host: bytes = HOST,
    queue_offset: int = 7,
    log_offset: int = 0,
    store_time_ms: int = 0,
) -> bytes:
    target = bytearray(record_size(message, store_host))
    encode(message, target, 0, queue_offset, log_offset, store_time_ms, store_host)
    return bytes(target)


RECORDS = st.lists(
    st.builds(record, MESSAGES | RARE, HOSTS, QUEUE_OFFSETS, LONGS, LONGS), max_size=5
).map(b"".join)


def built(
    raw: Any, columns: tuple[str, ...] = ALL, offsets: tuple[int, int] = EVERY
) -> list[dict[str, Any]]:
    rows = RowBuilder(columns)
    count = rows.add(raw, 0, len(raw), BROKER, *offsets)
    assert rows.size == count
    taken = rows.take()
    assert (rows.size, taken.num_rows) == (0, count)
    return rows_in(taken)


@settings(max_examples=200)
@given(RECORDS)
@example(record(MessageRecord(b"T", b"", born_host=HOST, born_time_ms=1 << 61)))
def test_rows_are_what_consumers_see_of_the_same_records(raw: bytes) -> None:
    try:
        expected = rows_of(decode_all(raw))
    except (CorruptRecordError, InvalidMessageError) as refusal:
        with pytest.raises(type(refusal)):
            built(raw)
        return
    assert built(raw) == expected


@given(RECORDS, st.permutations(ALL), st.integers(1, len(ALL)), st.booleans())
def test_any_choice_of_columns_has_the_same_values(
    raw: bytes, order: list[str], count: int, in_one_batch: bool
) -> None:
    try:
        expected = rows_of(decode_all(raw))
    except OrbitError:
        reject()
    columns = tuple(order[:count])
    rows = RowBuilder(columns)
    found = []
    cursor, at = RecordCursor(), 0
    while at < len(raw):
        size = cursor.read(raw, at, len(raw))
        rows.add(raw, at, at + size, BROKER, *EVERY)
        at += size
        if not in_one_batch:
            found += rows_in(rows.take())
    found += rows_in(rows.take())
    assert found == [{name: row[name] for name in columns} for row in expected]


@given(RECORDS, QUEUE_OFFSETS, QUEUE_OFFSETS)
def test_only_messages_of_the_wanted_offsets_become_rows(raw: bytes, first: int, end: int) -> None:
    try:
        expected = rows_of(decode_all(raw))
    except OrbitError:
        reject()
    assert built(raw, ("queueOffset",), (first, end)) == [
        {"queueOffset": row["queueOffset"]} for row in expected if first <= row["queueOffset"] < end
    ]


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_a_damaged_record_is_refused_and_the_rows_before_it_are_kept(
    messages: list[MessageRecord], data: st.DataObject
) -> None:
    good = b"".join(record(message) for message in messages[:-1])
    last = bytearray(record(messages[-1]))
    at = data.draw(
        st.sampled_from([0, 4, 5, 6, *range(88, min(len(last), 88 + len(messages[-1].body)))])
    )
    last[at] ^= data.draw(st.integers(1, 255))
    rows = RowBuilder(ALL)
    assume(len(messages[-1].born_host) != 20)  # otherwise the body has another position
    assume(at < 88 + len(messages[-1].body))
    with pytest.raises(CorruptRecordError):
        rows.add(good + last, 0, len(good) + len(last), BROKER, *EVERY)
    assert rows_in(rows.take()) == rows_of(decode_all(good))


@given(st.binary(max_size=400))
def test_any_bytes_become_rows_or_are_refused(raw: bytes) -> None:
    rows = RowBuilder(ALL)
    with suppress(CorruptRecordError):
        rows.add(raw, 0, len(raw), BROKER, *EVERY)
    rows_in(rows.take())


def test_a_body_with_another_checksum_passes_only_when_that_is_not_checked() -> None:
    raw = bytearray(record(MessageRecord(b"Topic", b"hello", born_host=HOST, born_time_ms=1)))
    raw[90] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        RowBuilder(("body",)).add(raw, 0, len(raw), BROKER, *EVERY)
    unchecked = RowBuilder(("body",), False)
    assert unchecked.add(raw, 0, len(raw), BROKER, *EVERY) == 1
    assert rows_in(unchecked.take()) == [{"body": b"hemlo"}]


@pytest.mark.parametrize("folder", RECORDS_IN_LOG)
def test_rows_of_golden_logs_are_what_decoding_gives(folder: str) -> None:
    for content in golden_logs()[folder].values():
        cursor, end = RecordCursor(), 0
        while (size := cursor.read(content, end, len(content))) > 0:
            end += size
        assert built(content[:end]) == rows_of(decode_all(content[:end]))


def test_batches_grow_to_thousands_of_rows_and_begin_anew() -> None:
    chance = random.Random(5)
    names = ["KEYS", "TAGS", "UNIQ_KEY", "colour"]
    messages = [
        MessageRecord(
            b"T%d" % (number % 7),
            chance.randbytes(chance.randrange(900)),
            born_host=hosts.pack("192.0.2.9" if number % 3 else "2001:db8::7", number),
            born_time_ms=number,
            properties=properties.encode(
                {name: f"{name} {number}" for name in names[: number % 5]}
            ),
        )
        for number in range(3000)
    ]
    raw = b"".join(record(message, queue_offset=number) for number, message in enumerate(messages))
    rows = RowBuilder(ALL)
    for _ in range(3):
        assert rows.add(raw, 0, len(raw), BROKER, *EVERY) == len(messages)
        taken = rows.take()
        assert taken.schema == schema.arrow_schema(ALL)
        assert rows_in(taken) == rows_of(decode_all(raw))
    assert rows.take().num_rows == 0


def test_a_batch_outlives_the_buffer_and_the_builder() -> None:
    raw = bytearray(record(MessageRecord(b"Topic", b"hello", born_host=HOST, born_time_ms=1)))
    rows = RowBuilder(("topic", "body"))
    rows.add(raw, 0, len(raw), BROKER, *EVERY)
    taken = rows.take()
    raw[:] = bytes(len(raw))
    rows.add(
        record(MessageRecord(b"Other", b"other", born_host=HOST, born_time_ms=1)),
        0,
        101,
        BROKER,
        *EVERY,
    )
    del rows
    assert taken.to_pylist() == [{"topic": "Topic", "body": b"hello"}]


def test_any_kind_of_buffer_is_read(tmp_path: Path) -> None:
    raw = record(MessageRecord(b"Topic", b"hello", born_host=HOST, born_time_ms=1))
    (tmp_path / "log").write_bytes(raw)
    with (
        (tmp_path / "log").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert [built(each, ("body",)) for each in (bytearray(raw), memoryview(raw), mapped)] == [
            [{"body": b"hello"}]
        ] * 3
    assert built(b"") == []
    with pytest.raises(ValueError, match="exceeds"):
        RowBuilder(ALL).add(raw, 0, len(raw) + 1, BROKER, *EVERY)


def test_a_compressed_body_is_not_inflated_when_nobody_wants_it() -> None:
    raw = record(compressed(b"x" * 1000, CompressionType.ZLIB, cut=5))
    assert built(raw, ("topic", "sysFlag")) == [{"topic": "Packed", "sysFlag": 0x300}]
    with pytest.raises(CorruptRecordError, match="ends before its end"):
        built(raw)


def test_a_batch_of_no_rows_has_the_schema_too() -> None:
    assert RowBuilder(ALL).take().schema == schema.arrow_schema(ALL)
    assert pa.Table.from_batches([RowBuilder(("properties",)).take()]).num_rows == 0
