"""The master's side of a connection: where it begins, what it sends, whom it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.replication.sender import LogBounds, LogSender, Rate, SenderLimits, Slice
from orbitmq.store.types import LogOffset

FILE_SIZE = 1000


def log(end: int, begin: int = 0) -> LogBounds:
    return LogBounds(LogOffset(begin), LogOffset(end), FILE_SIZE)


def joined_at(offset: int, bounds: LogBounds, **limits: object) -> LogSender:
    sender = LogSender(SenderLimits(**limits), 0)  # type: ignore[arg-type]
    sender.reported(LogOffset(offset), bounds, 0)
    return sender


def test_nothing_is_sent_before_the_first_report() -> None:
    sender = LogSender(SenderLimits(), 0)
    assert sender.next_slice(log(500), 60_000) is None
    assert sender.acknowledged is None


@pytest.mark.parametrize(
    ("report", "begin", "from_last_file", "expected"),
    [
        (0, 0, False, 0),
        (0, 1000, False, 1000),
        (0, 0, True, 2000),
        (0, 2000, True, 2000),
        (1234, 1000, False, 1234),
        (2500, 0, False, 2500),
    ],
)
def test_a_slave_continues_where_its_log_ends_and_an_empty_one_gets_all(
    report: int, begin: int, from_last_file: bool, expected: int
) -> None:
    sender = joined_at(report, log(2500, begin), from_last_file=from_last_file)
    assert (sender.first_offset, sender.next_offset) == (expected, expected)
    assert sender.acknowledged == report


@pytest.mark.parametrize("is_first", [True, False])
def test_a_slave_that_is_ahead_is_refused_and_never_counted(is_first: bool) -> None:
    """The original counts its report for messages that it never got."""
    sender = LogSender(SenderLimits(), 0)
    if not is_first:
        sender.reported(LogOffset(100), log(100), 0)
    with pytest.raises(ProtocolError, match="ends at 101, beyond this log's end 100"):
        sender.reported(LogOffset(101), log(100), 0)
    assert sender.acknowledged == (None if is_first else 100)


def test_a_report_beyond_what_was_sent_is_refused() -> None:
    sender = joined_at(100, log(100))
    with pytest.raises(ProtocolError, match="reported 150, but was sent the log up to 100 only"):
        sender.reported(LogOffset(150), log(200), 0)
    assert sender.acknowledged == 100


def test_a_slave_whose_next_byte_was_deleted_is_refused_with_the_remedy() -> None:
    sender = LogSender(SenderLimits(), 0)
    with pytest.raises(ProtocolError, match=r"before this log's first byte 1000.*replica reset"):
        sender.reported(LogOffset(999), log(2500, 1000), 0)
    behind = joined_at(0, log(2500))
    with pytest.raises(ProtocolError, match="were deleted"):
        behind.next_slice(log(2500, 1000), 0)


def test_a_slice_ends_with_the_file_and_has_a_largest_size() -> None:
    sender, bounds = joined_at(800, log(2100), body_size_max=600), log(2100)
    found = []
    while (piece := sender.next_slice(bounds, 0)) is not None:
        found.append(tuple(piece))
    assert found == [(800, 200), (1000, 600), (1600, 400), (2000, 100)]


def test_a_heartbeat_is_sent_when_nothing_else_was_for_an_interval() -> None:
    sender = joined_at(0, log(100), heartbeat_interval_ms=5000)
    assert sender.next_slice(log(100), 4999) == Slice(LogOffset(0), 100)
    assert sender.next_slice(log(100), 9998) is None
    assert sender.next_slice(log(100), 9999) == Slice(LogOffset(100), 0)
    assert sender.next_slice(log(100), 14_998) is None


def test_a_slave_is_silent_when_it_sent_nothing_for_too_long() -> None:
    sender = joined_at(0, log(0), silence_ms_max=20_000)
    assert not sender.is_silent(20_000)
    assert sender.is_silent(20_001)
    sender.reported(LogOffset(0), log(0), 20_001)
    assert not sender.is_silent(40_001)


def test_the_rate_limit_counts_the_bytes_of_the_log() -> None:
    """The original counts headers only, so that its limit is never reached."""
    sender, bounds = joined_at(0, log(900), bytes_per_second_max=300), log(900)
    sizes = []
    for now_ms in (0, 10, 999, 1000, 1001, 2500):
        while (piece := sender.next_slice(bounds, now_ms)) is not None:
            sizes.append((now_ms, piece.size))
    assert sizes == [(0, 300), (1000, 300), (2500, 300)]
    assert sender.sent.per_second(3000) == 300


def test_a_rate_is_that_of_the_last_complete_second() -> None:
    rate = Rate(500)
    rate.add(10, 600)
    rate.add(5, 999)
    assert rate.per_second(999) == 0
    assert rate.per_second(1000) == 15
    assert rate.per_second(2000) == 0


@given(
    st.integers(0, 2500),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 400)), max_size=30),
)
def test_slices_are_the_log_from_the_first_report_on_without_gap_or_overlap(
    report: int, grows: list[tuple[int, int]]
) -> None:
    end = 2500
    sender, at = joined_at(report, log(end)), report
    for growth, size_max in grows:
        end += growth
        sender.limits = SenderLimits(body_size_max=size_max)
        piece = sender.next_slice(log(end), 0)
        assert (piece is None) == (at == end)
        if piece is not None:
            assert piece.offset == at
            assert 0 < piece.size <= size_max
            assert piece.offset // FILE_SIZE == (piece.offset + piece.size - 1) // FILE_SIZE
            at += piece.size
            assert at <= end
