"""Decodes a piece of a queue into rows and reports what it lacks: unreadable records and messages
that the broker left out.

A record is unreadable if its body cannot be decompressed or fails its checksum; it is reported with
its offset and skipped if the user allows that. A broker skips records it cannot read in its own
store without saying so, so the messages of each reply are counted.

Without a filter every offset has a message. Only compacted topics have legitimate holes; whether a
topic is compacted is looked up when a message is missing. A reply without records is handled by
`queue_range_reader`, which has the broker's status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from orbitmq.spark.kernels.rows import RowBuilder, UnreadableRecordError
from orbitmq.spark.offsets import DataLoss, QueueName, skipped_by_broker
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.source.pull_prefetcher import Piece
from orbitmq.spark.source.queue_range_reader import HasHoles, report_loss


class PieceDecoder:
    """Adds pieces to a row builder; raises DataLossError, or warns, for each missing message."""

    def __init__(self, builder: RowBuilder, options: SourceOptions, has_holes: HasHoles) -> None:
        self._builder = builder
        self._options = options
        self._has_holes = has_holes

    def add(self, queue: QueueName, piece: Piece) -> None:
        """Add the rows of a piece of a queue."""
        body, begin, end = piece
        before = self._builder.size
        unread = _add(self._builder, queue, piece)
        for each in unread:
            if each.offset is None:
                report_loss(
                    DataLoss(queue, begin, end, f"the broker's reply cannot be read: {each}"),
                    self._options,
                )
            elif begin <= each.offset < end:
                report_loss(
                    DataLoss(queue, each.offset, each.offset + 1, f"it cannot be read: {each}"),
                    self._options,
                )
        count = self._builder.size - before + len(unread)
        if (
            body
            and count < end - begin
            and self._options.expression is None
            and not self._has_holes(queue)
        ):
            for low, high in _gaps(_offsets(queue, piece), begin, end):
                report_loss(skipped_by_broker(queue, low, high), self._options)


def _offsets(queue: QueueName, piece: Piece) -> Collection[int]:
    """Return the offsets of the messages in a piece."""
    builder = RowBuilder(("queueOffset",), check_body=False)
    unread = _add(builder, queue, piece)
    return frozenset(builder.take()["queueOffset"].to_pylist()).union(
        each.offset for each in unread if each.offset is not None
    )


def _add(builder: RowBuilder, queue: QueueName, piece: Piece) -> list[UnreadableRecordError]:
    """Add the readable records of a piece; return the unreadable ones."""
    body, begin, end = piece
    at, unread = 0, []
    while at < len(body):
        try:
            builder.add(body, at, len(body), queue.broker, begin, end)
            break
        except UnreadableRecordError as problem:
            unread.append(problem)
            at = problem.end
    return unread


def _gaps(present: Collection[int], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of [begin, end) that are missing from `present`."""
    low = begin
    for offset in (*sorted(present), end):
        if low < offset:
            yield low, offset
        low = offset + 1
