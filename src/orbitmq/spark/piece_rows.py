"""Rows of a piece of a queue, counted: a broker passes over what it cannot read in its own store, and nobody would miss it.

Where all messages are wanted every offset has one. Only topics that brokers compact have holes by right; which ones these are is asked when
a message is missing. An answer without any record is no matter of this module: `queue_reading` knows what the broker said of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from orbitmq.spark.ask_ahead import Piece
from orbitmq.spark.offsets import QueueKey, not_given
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.queue_reading import HasHoles, tell
from orbitmq.spark.rows import RowBuilder


class PieceRows:
    """Adds pieces to the rows of a builder; DataLost, or a warning, for each message that should be there."""

    def __init__(self, builder: RowBuilder, options: SourceOptions, has_holes: HasHoles) -> None:
        self._builder = builder
        self._options = options
        self._has_holes = has_holes

    def add(self, queue: QueueKey, piece: Piece) -> None:
        """Add the rows of a piece of a queue."""
        body, begin, end = piece
        count = self._builder.add(body, 0, len(body), queue.broker, begin, end)
        if body and count < end - begin and self._options.expression is None and not self._has_holes(queue):
            for low, high in _gaps(_offsets(queue, piece), begin, end):
                tell(not_given(queue, low, high), self._options)


def _offsets(queue: QueueKey, piece: Piece) -> Collection[int]:
    """Which messages a piece has."""
    builder = RowBuilder(("queueOffset",), check_body=False)
    builder.add(piece.body, 0, len(piece.body), queue.broker, piece.begin, piece.end)
    return frozenset(builder.take()["queueOffset"].to_pylist())


def _gaps(present: Collection[int], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of [begin, end) that are not there."""
    low = begin
    for offset in (*sorted(present), end):
        if low < offset:
            yield low, offset
        low = offset + 1
