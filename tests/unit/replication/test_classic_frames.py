"""The frames between master and slave: what real brokers sent, cut at every byte, and bytes that no
broker sends.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.replication.classic_frames import (
    BODY_SIZE_MAX,
    FrameReader,
    ReportReader,
    encode_header,
    encode_report,
)
from orbitmq.replication.sender import LogBounds, LogSender, SenderLimits, Slice
from orbitmq.store.types import LogOffset
from support.common.golden_data import files

FILE_SIZE = 65536
STREAMS = [
    ("ha-4.9.8", "ha-4.9.8/conn-1"),
    ("ha-4.9.8", "ha-4.9.8/conn-2"),
    ("ha-4.9.8", "ha-4.9.8/conn-3"),
    ("ha-5.5.0", "ha-5.5.0/conn-1"),
    ("ha-5.5.0", "ha-5.5.0/ahead/classic-1"),
]


def frames_of(stream: bytes) -> list[tuple[int, bytes]]:
    """Return offset and body of each frame, by the format's table and nothing else."""
    found, at = [], 0
    while at < len(stream):
        offset = int.from_bytes(stream[at : at + 8], "big")
        size = int.from_bytes(stream[at + 8 : at + 12], "big")
        found.append((offset, stream[at + 12 : at + 12 + size]))
        at += 12 + size
    assert at == len(stream)
    return found


def joined(pieces: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Join pieces that continue each other."""
    found: list[tuple[int, bytes]] = []
    for offset, data in pieces:
        if data and found and found[-1][1] and found[-1][0] + len(found[-1][1]) == offset:
            found[-1] = (found[-1][0], found[-1][1] + data)
        else:
            found.append((offset, data))
    return found


@pytest.mark.parametrize(("archive", "name"), STREAMS)
def test_what_masters_sent_is_read_whatever_it_is_cut_into(archive: str, name: str) -> None:
    stream = files(archive)[f"{name}.m2s.bin"]
    expected = frames_of(stream)
    assert expected
    whole = [(offset, bytes(data)) for offset, data in FrameReader().feed(stream)]
    assert whole == expected
    assert stream == b"".join(encode_header(LogOffset(at), len(body)) + body for at, body in whole)
    reader, byte_by_byte = FrameReader(), []
    for at in range(len(stream)):
        byte_by_byte += [(offset, bytes(data)) for offset, data in reader.feed(stream[at : at + 1])]
    assert joined(byte_by_byte) == joined(expected)


@pytest.mark.parametrize(("archive", "name"), STREAMS)
def test_of_what_slaves_reported_the_newest_counts(archive: str, name: str) -> None:
    stream = files(archive)[f"{name}.s2m.bin"]
    reports = [int.from_bytes(stream[at : at + 8], "big") for at in range(0, len(stream), 8)]
    assert ReportReader().feed(stream) == reports[-1]
    reader = ReportReader()
    found = [reader.feed(stream[at : at + 1]) for at in range(len(stream))]
    assert [each for each in found if each is not None] == reports
    assert stream == b"".join(encode_report(LogOffset(each)) for each in reports)


@pytest.mark.parametrize(("archive", "name"), [each for each in STREAMS if "ahead" not in each[1]])
def test_our_master_sends_what_theirs_sent(archive: str, name: str) -> None:
    """Fed with the log and the first report of a golden connection."""
    content = files(archive)
    log = {
        int(path.rpartition("/")[2]): data
        for path, data in content.items()
        if path.startswith(f"{archive}/master-commitlog/")
    }
    first = int.from_bytes(content[f"{name}.s2m.bin"][:8], "big")
    frames = frames_of(content[f"{name}.m2s.bin"])
    limits = SenderLimits(from_last_file=True, body_size_max=32768)
    sender = LogSender(limits, 0)
    sender.reported(
        LogOffset(first), LogBounds(LogOffset(0), LogOffset(frames[0][0]), FILE_SIZE), 0
    )
    sent = 0
    for offset, body in frames:
        bounds = LogBounds(LogOffset(0), LogOffset(offset + len(body)), FILE_SIZE)
        if body:
            assert sender.next_slice(bounds, 0) == Slice(LogOffset(offset), len(body))
            start = offset - offset % FILE_SIZE
            assert log[start][offset - start : offset - start + len(body)] == body
            sent += 1
        assert sender.next_slice(bounds, 0) is None
    assert sent or name == "ha-4.9.8/conn-2", "the connection has bodies"


@given(
    st.lists(st.tuples(st.integers(0, 1 << 62), st.binary(max_size=40)), min_size=1, max_size=8),
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
)
def test_frames_are_read_as_they_were_written(
    frames: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    stream = b"".join(encode_header(LogOffset(at), len(body)) + body for at, body in frames)
    reader, found, at = FrameReader(), [], 0
    for size in [*sizes, len(stream)]:
        found += [(offset, bytes(data)) for offset, data in reader.feed(stream[at : at + size])]
        at += size
    assert b"".join(data for _, data in found) == b"".join(body for _, body in frames)
    assert joined(found) == joined(frames)


@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 0), (0, -1), (0, BODY_SIZE_MAX + 1), (-(1 << 63), 5)]
)
def test_an_impossible_header_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ProtocolError, match=f"announced {size} bytes of its log from {offset} on"):
        list(FrameReader().feed(encode_header(LogOffset(offset), size)))


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(ProtocolError, match="reported -1"):
        ReportReader().feed(encode_report(LogOffset(-1)))
