"""A range that a broker does not give as a whole: what is missing is told, and what is there is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from orbitmq.client.pulling import PullStatus
from orbitmq.message import flags
from orbitmq.message.record_write import Message, encode, record_size
from orbitmq.spark import queue_reading
from orbitmq.spark.ask_ahead import Piece
from orbitmq.spark.failures import DataLost
from orbitmq.spark.offsets import QueueKey, QueueRange
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.piece_rows import PieceRows
from orbitmq.spark.pull_link import Answer
from orbitmq.spark.queue_reading import QueueReading
from orbitmq.spark.rows import RowBuilder

QUEUE = QueueKey("T", "broker-a", 0)
HOST = bytes(8)
Broker = Callable[[int, int], tuple[PullStatus, bytes, int, int]]  # offset, count: status, records, where to go on, where the queue begins


def options(**more: str) -> SourceOptions:
    return SourceOptions.of({"nameServer": "127.0.0.1:1", "subscribe": "T", **more})


def record(offset: int, message: Message | None = None) -> bytes:
    message = message or Message(b"T", f"body {offset}".encode(), born_host=HOST, born_time_ms=1)
    target = bytearray(record_size(message, HOST))
    encode(message, target, 0, offset, 0, 1, HOST)
    return bytes(target)


def records(offsets: list[int]) -> bytes:
    return b"".join(map(record, offsets))


class Link:
    """A connection to a broker of a test."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asked: list[tuple[int, int]] = []
        self._answered = 0

    def aim(self, *_: object) -> None: ...

    def ask(self, offset: int, count: int) -> int:
        self._asked.append((offset, count))
        return self._answered + len(self._asked) - 1

    def answers(self) -> list[Answer]:
        found = [Answer(self._answered + at, *self._broker(*asked), 100) for at, asked in enumerate(self._asked)]
        self._answered += len(found)
        self._asked.clear()
        return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """The offsets that are read of a broker."""

    def work(broker: Broker, end: int, *, has_holes: bool = False, **more: str) -> list[int]:
        @contextmanager
        def link_to(*_: object) -> Iterator[Link]:
            yield Link(broker)

        monkeypatch.setattr(queue_reading, "link_to", link_to)
        wanted, builder = options(**more), RowBuilder(("queueOffset", "body"))
        rows = PieceRows(builder, wanted, lambda _: has_holes)
        for piece in QueueReading(wanted, QueueRange(QUEUE, 0, end), lambda *_: "somewhere", lambda _: has_holes).pieces():
            rows.add(QUEUE, piece)
        found: list[int] = builder.take()["queueOffset"].to_pylist()
        return found

    return work


def with_gaps(missing: set[int], at_once: int = 4) -> Broker:
    """Passes over some messages, as brokers do whose store is damaged."""

    def answer(offset: int, count: int) -> tuple[PullStatus, bytes, int, int]:
        end = offset + min(count, at_once)
        found = [each for each in range(offset, end) if each not in missing]
        return (PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE), records(found), end, 0

    return answer


def test_a_message_that_the_broker_passes_over_fails_the_read(read: Callable[..., list[int]]) -> None:
    with pytest.raises(DataLost) as lost:
        read(with_gaps({2}), 10)
    assert str(lost.value) == (
        "message 2 of queue T/broker-a/0 is lost: the broker passes over what it cannot read in its store; look at that with "
        "orbitmq store check; set failOnDataLoss=false to go on with what is there"
    )


def test_a_read_goes_on_behind_what_is_missing_when_the_user_does_not_mind(
    read: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(with_gaps({0, 2, 3, 9}), 10, failOnDataLoss="false") == [1, 4, 5, 6, 7, 8]
    assert [text.split(" why=")[0] for text in caplog.messages] == [
        f"data_lost queue={QUEUE} begin={begin} end={end}" for begin, end in ((0, 1), (2, 4), (9, 10))
    ]


def test_an_answer_that_leads_past_messages_without_any_fails_the_read(read: Callable[..., list[int]]) -> None:
    with pytest.raises(DataLost, match="messages 4 to 7 of queue T/broker-a/0 are lost: the broker passes over"):
        read(with_gaps({4, 5, 6, 7}), 10)


def test_topics_that_are_compacted_and_messages_that_are_chosen_may_have_gaps(read: Callable[..., list[int]]) -> None:
    broker = with_gaps({2, 4, 5, 6, 7})
    assert read(broker, 10, has_holes=True) == [0, 1, 3, 8, 9]
    assert read(broker, 10, sql92="a > 1") == [0, 1, 3, 8, 9]


def test_a_group_that_was_reset_skips_nothing(read: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reading, "_PAUSE_S", 0.0)
    told: list[int] = []

    def answer(offset: int, count: int) -> tuple[PullStatus, bytes, int, int]:
        if not told:
            told.append(offset)
            return PullStatus.OFFSET_ILLEGAL, b"", 7, 0
        return with_gaps(set())(offset, count)

    assert read(answer, 10, consumerGroup="g") == list(range(10))


def test_a_message_that_cannot_be_inflated_fails_the_read_by_its_name_or_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    poison = Message(b"T", b"this is not zlib", sys_flag=flags.COMPRESSED, born_host=HOST, born_time_ms=1)
    piece = Piece(record(4) + record(5, poison) + record(6), 4, 7)
    builder = RowBuilder(("queueOffset", "body"))
    with pytest.raises(
        DataLost, match=r"^message 5 of queue T/broker-a/0 is lost: it cannot be read: .* is no ZLIB data.*; set failOnDataLoss=false"
    ):
        PieceRows(builder, options(), lambda _: False).add(QUEUE, piece)
    builder.take()
    PieceRows(builder, options(failOnDataLoss="false"), lambda _: False).add(QUEUE, piece)
    assert builder.take()["body"].to_pylist() == [b"body 4", b"body 6"]
    assert [text.split(" why=")[0] for text in caplog.messages] == [f"data_lost queue={QUEUE} begin=5 end=6"]
    without_body = RowBuilder(("queueOffset",))
    PieceRows(without_body, options(), lambda _: False).add(QUEUE, piece)
    assert without_body.take()["queueOffset"].to_pylist() == [4, 5, 6]


def test_a_body_that_is_not_what_it_was_is_told_by_its_place_too() -> None:
    damaged = bytearray(record(5))
    damaged[90] ^= 1
    builder = RowBuilder(("body",))
    with pytest.raises(DataLost, match=r"message 5 of queue T/broker-a/0 is lost: it cannot be read: .*checksum"):
        PieceRows(builder, options(), lambda _: False).add(QUEUE, Piece(record(4) + damaged, 4, 6))


def test_an_answer_that_is_cut_is_told_with_what_it_was_asked_for() -> None:
    builder = RowBuilder(("body",))
    with pytest.raises(DataLost, match="messages 4 to 5 of queue T/broker-a/0 are lost: the broker's answer cannot be read"):
        PieceRows(builder, options(), lambda _: False).add(QUEUE, Piece(record(4) + record(5)[:-3], 4, 6))


def test_a_piece_that_is_cut_has_what_is_within_it() -> None:
    builder = RowBuilder(("queueOffset",))
    PieceRows(builder, options(), lambda _: False).add(QUEUE, Piece(records([3, 4, 5, 6]), 4, 6))
    assert builder.take()["queueOffset"].to_pylist() == [4, 5]
