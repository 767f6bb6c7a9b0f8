"""Tests ranges that a broker returns only in part: gaps are reported and the rest is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from orbitmq.client.consumer.pulling import PullStatus
from orbitmq.message import flags
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.spark.failures import DataLossError
from orbitmq.spark.kernels.rows import RowBuilder
from orbitmq.spark.offsets import QueueName, QueueRange
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.source import queue_range_reader
from orbitmq.spark.source.piece_decoder import PieceDecoder
from orbitmq.spark.source.pull_link import LinkReply
from orbitmq.spark.source.pull_prefetcher import Piece
from orbitmq.spark.source.queue_range_reader import QueueRangeReader

QUEUE = QueueName("T", "broker-a", 0)
HOST = bytes(8)
Broker = Callable[
    [int, int], tuple[PullStatus, bytes, int, int]
]  # (offset, count) -> (status, records, next offset, first offset)


def options(**more: str) -> SourceOptions:
    return SourceOptions.of({"nameServer": "127.0.0.1:1", "subscribe": "T", **more})


def record(offset: int, message: MessageRecord | None = None) -> bytes:
    message = message or MessageRecord(
        b"T", f"body {offset}".encode(), born_host=HOST, born_time_ms=1
    )
    target = bytearray(record_size(message, HOST))
    encode(message, target, 0, offset, 0, 1, HOST)
    return bytes(target)


def records(offsets: list[int]) -> bytes:
    return b"".join(map(record, offsets))


class Link:
    """A fake connection to a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asked: list[tuple[int, int]] = []
        self._answered = 0

    def select_queue(self, *_: object) -> None: ...

    def queue_pull(self, offset: int, count: int) -> int:
        self._asked.append((offset, count))
        return self._answered + len(self._asked) - 1

    def receive(self) -> list[LinkReply]:
        found = [
            LinkReply(self._answered + at, *self._broker(*asked), 100)
            for at, asked in enumerate(self._asked)
        ]
        self._answered += len(found)
        self._asked.clear()
        return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return the offsets read from a broker."""

    def work(broker: Broker, end: int, *, has_holes: bool = False, **more: str) -> list[int]:
        @contextmanager
        def borrow_link(*_: object) -> Iterator[Link]:
            yield Link(broker)

        monkeypatch.setattr(queue_range_reader, "borrow_link", borrow_link)
        wanted, builder = options(**more), RowBuilder(("queueOffset", "body"))
        rows = PieceDecoder(builder, wanted, lambda _: has_holes)
        for piece in QueueRangeReader(
            wanted, QueueRange(QUEUE, 0, end), lambda *_: "somewhere", lambda _: has_holes
        ).pieces():
            rows.add(QUEUE, piece)
        found: list[int] = builder.take()["queueOffset"].to_pylist()
        return found

    return work


def with_gaps(missing: set[int], at_once: int = 4) -> Broker:
    """Return a broker that skips some messages, as with a corrupt store."""

    def answer(offset: int, count: int) -> tuple[PullStatus, bytes, int, int]:
        end = offset + min(count, at_once)
        found = [each for each in range(offset, end) if each not in missing]
        return (
            (PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE),
            records(found),
            end,
            0,
        )

    return answer


def test_a_message_that_the_broker_passes_over_fails_the_read(
    read: Callable[..., list[int]],
) -> None:
    with pytest.raises(DataLossError) as lost:
        read(with_gaps({2}), 10)
    assert (
        str(lost.value)
        == "message 2 of queue T/broker-a/0 is lost: the broker skips records it cannot read; run"
        " orbitmq store check; set failOnDataLoss=false to continue without them"
    )


def test_a_read_goes_on_behind_what_is_missing_when_the_user_does_not_mind(
    read: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(with_gaps({0, 2, 3, 9}), 10, failOnDataLoss="false") == [1, 4, 5, 6, 7, 8]
    assert [text.split(" why=")[0] for text in caplog.messages] == [
        f"data_lost queue={QUEUE} begin={begin} end={end}"
        for begin, end in ((0, 1), (2, 4), (9, 10))
    ]


def test_an_answer_that_leads_past_messages_without_any_fails_the_read(
    read: Callable[..., list[int]],
) -> None:
    with pytest.raises(
        DataLossError,
        match="messages 4 to 7 of queue T/broker-a/0 are lost: the broker skips",
    ):
        read(with_gaps({4, 5, 6, 7}), 10)


def test_topics_that_are_compacted_and_messages_that_are_chosen_may_have_gaps(
    read: Callable[..., list[int]],
) -> None:
    broker = with_gaps({2, 4, 5, 6, 7})
    assert read(broker, 10, has_holes=True) == [0, 1, 3, 8, 9]
    assert read(broker, 10, sql92="a > 1") == [0, 1, 3, 8, 9]


def test_a_group_that_was_reset_skips_nothing(
    read: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_range_reader, "_PAUSE_S", 0.0)
    told: list[int] = []

    def answer(offset: int, count: int) -> tuple[PullStatus, bytes, int, int]:
        if not told:
            told.append(offset)
            return PullStatus.OFFSET_ILLEGAL, b"", 7, 0
        return with_gaps(set())(offset, count)

    assert read(answer, 10, consumerGroup="g") == list(range(10))


def test_a_message_that_cannot_be_inflated_fails_the_read_by_its_name_or_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poison = MessageRecord(
        b"T", b"this is not zlib", sys_flag=flags.COMPRESSED, born_host=HOST, born_time_ms=1
    )
    piece = Piece(record(4) + record(5, poison) + record(6), 4, 7)
    builder = RowBuilder(("queueOffset", "body"))
    with pytest.raises(
        DataLossError,
        match=(
            r"^message 5 of queue T/broker-a/0 is lost: it cannot be read: .* is not ZLIB data.*;"
            r" set failOnDataLoss=false"
        ),
    ):
        PieceDecoder(builder, options(), lambda _: False).add(QUEUE, piece)
    builder.take()
    PieceDecoder(builder, options(failOnDataLoss="false"), lambda _: False).add(QUEUE, piece)
    assert builder.take()["body"].to_pylist() == [b"body 4", b"body 6"]
    assert [text.split(" why=")[0] for text in caplog.messages] == [
        f"data_lost queue={QUEUE} begin=5 end=6"
    ]
    without_body = RowBuilder(("queueOffset",))
    PieceDecoder(without_body, options(), lambda _: False).add(QUEUE, piece)
    assert without_body.take()["queueOffset"].to_pylist() == [4, 5, 6]


def test_a_body_that_is_not_what_it_was_is_told_by_its_place_too() -> None:
    damaged = bytearray(record(5))
    damaged[90] ^= 1
    builder = RowBuilder(("body",))
    with pytest.raises(
        DataLossError,
        match=r"message 5 of queue T/broker-a/0 is lost: it cannot be read: .*checksum",
    ):
        PieceDecoder(builder, options(), lambda _: False).add(
            QUEUE, Piece(record(4) + damaged, 4, 6)
        )


def test_an_answer_that_is_cut_is_told_with_what_it_was_asked_for() -> None:
    builder = RowBuilder(("body",))
    with pytest.raises(
        DataLossError,
        match="messages 4 to 5 of queue T/broker-a/0 are lost: the broker's reply cannot be read",
    ):
        PieceDecoder(builder, options(), lambda _: False).add(
            QUEUE, Piece(record(4) + record(5)[:-3], 4, 6)
        )


def test_a_piece_that_is_cut_has_what_is_within_it() -> None:
    builder = RowBuilder(("queueOffset",))
    PieceDecoder(builder, options(), lambda _: False).add(QUEUE, Piece(records([3, 4, 5, 6]), 4, 6))
    assert builder.take()["queueOffset"].to_pylist() == [4, 5]
