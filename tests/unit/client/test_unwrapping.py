"""The messages of a reply: what cannot be decoded, and how the rest is handled."""

from __future__ import annotations

import asyncio
import logging
import zlib

import pytest

from orbitmq.client import unwrapping
from orbitmq.client.consumer import pulling
from orbitmq.client.consumer.pulling import PullStatus, RawPull, pull, subscription
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.unwrapping import unwrap_one, unwrap_reply
from orbitmq.common.errors import CorruptRecordError
from orbitmq.message import batch
from orbitmq.message.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.protocol.bodies.clients import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def record(offset: int, body: bytes = b"body", sys_flag: int = 0, properties: bytes = b"") -> bytes:
    message, host = (
        MessageRecord(
            b"T", body, born_host=bytes(8), born_time_ms=0, sys_flag=sys_flag, properties=properties
        ),
        bytes(8),
    )
    made = bytearray(record_size(message, host))
    encode(message, made, 0, offset, 1_000 * offset, 0, host)
    return bytes(made)


def offsets(messages: list[ReceivedMessage]) -> list[tuple[int, bool]]:
    """Return the offsets of messages, and whether they can be decoded."""
    return [(message.queue_offset, message.problem is None) for message in messages]


def wrong_body(made: bytes) -> bytes:
    return made.replace(b"body", b"BODY")


def test_a_body_that_is_not_the_one_that_was_stored_is_one_message_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read = unwrap_reply(record(5) + wrong_body(record(6)) + record(7), QUEUE, 5)
    assert (offsets(read.messages), read.resume_offset) == (
        [(5, True), (6, False), (7, True)],
        None,
    )
    assert read.messages[1].stored.body == b"BODY"
    (line,) = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
    assert line.startswith("message_unreadable topic=T broker=broker-a queue=0 offset=6 msg_id=")


@pytest.mark.parametrize(
    "sys_flag", [NEED_UNWRAP | INNER_BATCH, NEED_UNWRAP | INNER_BATCH | COMPRESSED]
)
def test_a_batch_that_is_none_is_one_message(sys_flag: int) -> None:
    inside = batch.encode([batch.BatchItem(0, b"a", b""), batch.BatchItem(0, b"b", b"")])
    good, bad = (
        (zlib.compress(body) if sys_flag & COMPRESSED else body) for body in (inside, inside[:-3])
    )
    count = b"INNER_NUM\x012\x02"
    read = unwrap_reply(
        record(1, good, sys_flag, count) + record(3, bad, sys_flag, count) + record(5), QUEUE, 1
    )
    assert offsets(read.messages) == [(1, True), (2, True), (3, False), (5, True)]


@pytest.mark.parametrize("kept", [1, 4, 8, 40, 90])
def test_of_a_reply_that_is_cut_the_messages_before_are_read_and_the_rest_is_known(
    kept: int,
) -> None:
    whole = record(5) + record(6)
    read = unwrap_reply(whole + record(7)[:kept], QUEUE, 5)
    assert (offsets(read.messages), read.resume_offset) == ([(5, True), (6, True)], 7)
    assert unwrap_reply(record(7)[:kept], QUEUE, 7) == (
        [],
        7,
        unwrap_reply(record(7)[:kept], QUEUE, 7).why,
    )
    inner = record(
        7,
        batch.encode([batch.BatchItem(0, b"a", b"")] * 3),
        NEED_UNWRAP | INNER_BATCH,
        b"INNER_NUM\x013\x02",
    )
    assert unwrap_reply(inner + record(10)[:kept], QUEUE, 8).resume_offset == 10


def test_bodies_inflate_to_so_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwrapping, "REPLY_SIZE_MAX", 250)
    body = zlib.compress(bytes(100))
    read = unwrap_reply(b"".join(record(offset, body, COMPRESSED) for offset in range(5)), QUEUE, 0)
    assert (offsets(read.messages), read.resume_offset) == ([(0, True), (1, True)], 2)
    large = unwrap_reply(record(0, zlib.compress(bytes(1_000)), COMPRESSED) + record(1), QUEUE, 0)
    assert offsets(large.messages)[0] == (0, True), "the first comes, whatever its size"


def test_one_record_is_read_or_told() -> None:
    assert unwrap_one(record(3), "b").body == b"body"
    assert unwrap_one(wrong_body(record(3)), "b").problem is not None
    for nothing in (b"", record(3)[:20]):
        with pytest.raises(CorruptRecordError):
            unwrap_one(nothing, "b")


class _Replies:
    """Returns replies to pulls of one queue, and records the requests."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = list(bodies)
        self.asked: list[tuple[int, int]] = []

    async def pull_raw(
        self,
        _session: object,
        _group: str,
        _queue: object,
        offset: int,
        *_: object,
        count_max: int,
        **__: object,
    ) -> RawPull:
        self.asked.append((offset, count_max))
        return RawPull(PullStatus.FOUND, self.bodies.pop(0), offset + 3, 0, 100, 0)


class _Session:
    class names:
        name = ""


@pytest.mark.parametrize(
    ("bodies", "found", "next_offset", "asked"),
    [
        ([record(5) + record(6) + record(7)], [(5, True), (6, True), (7, True)], 8, [(5, 32)]),
        ([record(5) + record(6)[:50]], [(5, True)], 6, [(5, 32)]),
        ([record(5)[:50], record(5)], [(5, True)], 8, [(5, 32), (5, 1)]),
        ([record(5)[:50], record(5)[:50]], [], 6, [(5, 32), (5, 1)]),
    ],
)
def test_a_pull_asks_again_for_what_came_damaged_and_passes_over_it_when_it_comes_so_again(
    bodies: list[bytes],
    found: list[tuple[int, bool]],
    next_offset: int,
    asked: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = _Replies(*bodies)
    monkeypatch.setattr(pulling, "pull_raw", replies.pull_raw)
    result = asyncio.run(pull(_Session(), "g", QUEUE, 5, subscription("T", "*")))  # type: ignore[arg-type]
    assert (offsets(result.messages), result.next_offset, replies.asked) == (
        found,
        next_offset,
        asked,
    )
    lost = [
        entry.getMessage()
        for entry in caplog.records
        if entry.getMessage().startswith("message_lost")
    ]
    assert len(lost) == (not found)
