"""Batches: items in a body, items as records, a batch as one record."""

from __future__ import annotations

import struct

import pytest

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import batch, hosts, properties
from orbitmq.message.batch import BatchItem
from orbitmq.message.compression import deflate
from orbitmq.message.flags import INNER_BATCH, NEED_UNWRAP, CompressionType, with_compression
from orbitmq.message.record import decode
from orbitmq.message.record_write import MessageRecord, encode, record_size

HOST = hosts.pack("192.0.2.1", 1234)
ITEMS = [
    BatchItem(1, b"first", b"TAGS\x01A\x02"),
    BatchItem(-1, b"", b""),
    BatchItem(3, b"third", b"KEYS\x01k\x02UNIQ_KEY\x01U\x02"),
]


def batch_message(
    body: bytes, raw_properties: bytes = b"UNIQ_KEY\x01B\x02", sys_flag: int = 0
) -> MessageRecord:
    return MessageRecord(
        b"T",
        body,
        born_host=HOST,
        born_time_ms=5,
        queue_id=2,
        sys_flag=sys_flag,
        reconsume_times=1,
        properties=raw_properties,
    )


def test_items_come_back() -> None:
    body = batch.encode(ITEMS)
    assert body.startswith(struct.pack(">iiiii", 22 + 5 + 7, 0, 0, 1, 5) + b"first\x00\x07TAGS")
    assert batch.decode(body) == ITEMS
    assert batch.decode(b"") == []


def test_each_item_becomes_a_message_of_the_batch() -> None:
    messages = batch.split(batch_message(batch.encode(ITEMS), sys_flag=2))
    assert [(each.flag, each.body, each.properties) for each in messages] == ITEMS
    assert {
        (
            each.topic,
            each.queue_id,
            each.born_host,
            each.born_time_ms,
            each.sys_flag,
            each.reconsume_times,
        )
        for each in messages
    } == {(b"T", 2, HOST, 5, 2, 1)}


def test_a_batch_cut_anywhere_but_between_items_is_refused() -> None:
    body = batch.encode(ITEMS)
    ends = [0, 34, 34 + 22, len(body)]
    for cut in range(len(body) + 1):
        if cut in ends:
            assert len(batch.decode(body[:cut])) == ends.index(cut)
        else:
            with pytest.raises(InvalidMessageError, match="batch"):
                batch.decode(body[:cut])


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (0, struct.pack(">i", 33)),
        (0, struct.pack(">i", 35)),
        (0, struct.pack(">i", 0)),
        (16, struct.pack(">i", -1)),
        (16, b"\x7f\xff\xff\xff"),
        (25, b"\xff\xff"),
    ],
)
def test_lengths_that_do_not_fit_together_are_refused(at: int, content: bytes) -> None:
    body = bytearray(batch.encode(ITEMS))
    body[at : at + len(content)] = content
    with pytest.raises(InvalidMessageError, match="item 0 of a batch"):
        batch.decode(bytes(body))


def test_properties_that_do_not_fit_an_item_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="32768 bytes: at most 32767"):
        batch.encode([BatchItem(0, b"", b"p" * 32768)])


@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_a_batch_stored_as_one_record_comes_apart_in_its_reader(
    kind: CompressionType | None,
) -> None:
    message = batch_message(batch.encode(ITEMS))
    assert batch.make_inner(message) == 3
    batch.set_inner_base(message, 40)
    batch.set_inner_base(message, 41)
    assert properties.parse(message.properties) == {
        "UNIQ_KEY": "B",
        "INNER_NUM": "3",
        "INNER_BASE": "41",
    }
    assert message.properties.count(b"INNER_BASE") == 1
    if kind is not None:
        message.body = deflate(bytes(message.body), kind)
        message.sys_flag = with_compression(message.sys_flag, kind)
    raw = bytearray(record_size(message, HOST))
    encode(message, raw, 0, 41, 4096, 6, HOST)
    stored = decode(raw).inflated(10_000)
    assert stored.is_inner_batch
    inner = stored.inner_messages()
    assert [(each.flag, each.body, each.raw_properties) for each in inner] == ITEMS
    assert [each.queue_offset for each in inner] == [41, 42, 43]
    assert {
        (
            each.topic,
            each.log_offset,
            each.size,
            each.msg_id,
            each.reconsume_times,
            each.store_time_ms,
        )
        for each in inner
    } == {("T", 4096, 0, stored.msg_id, 0, 6)}


def test_an_ordinary_record_comes_apart_into_itself() -> None:
    message = batch_message(b"plain", sys_flag=INNER_BATCH)
    raw = bytearray(record_size(message, HOST))
    encode(message, raw, 0, 0, 0, 0, HOST)
    stored = decode(raw)
    assert stored.inner_messages() == [stored]
    assert stored.inflated(0) is stored


def test_an_inner_batch_belongs_in_a_queue_of_batches_and_its_count_on_an_inner_batch() -> None:
    inner = batch_message(b"", sys_flag=INNER_BATCH | NEED_UNWRAP)
    batch.check_inner(inner, queue_holds_batches=True)
    batch.check_inner(batch_message(b""), queue_holds_batches=False)
    with pytest.raises(InvalidMessageError, match=r"topic T .*queue\.type=BatchCQ"):
        batch.check_inner(inner, queue_holds_batches=False)
    with pytest.raises(InvalidMessageError, match="INNER_NUM"):
        batch.check_inner(batch_message(b"", b"INNER_NUM\x013\x02"), queue_holds_batches=True)


def test_a_batch_of_too_many_messages_is_refused_by_their_sizes() -> None:
    item = batch.encode([batch.BatchItem(0, b"", b"")])
    batch.check_count(item * batch.ITEMS_MAX)
    with pytest.raises(InvalidMessageError, match=f"at most {batch.ITEMS_MAX}"):
        batch.check_count(item * (batch.ITEMS_MAX + 1))
    batch.check_count(b"\0" * 1_000_000)  # no items: whoever reads them says so
    assert len(batch.decode(item * (batch.ITEMS_MAX + 1))) == batch.ITEMS_MAX + 1, "stored ones"
