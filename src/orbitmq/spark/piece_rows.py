"""Rows of a piece of a queue, and what of it makes none: records that cannot be read, and messages that the broker has left out.

A record that nobody can read, because its body cannot be inflated or is not what it was, is passed over where the user wants that, and told
by its place. A broker passes over what it cannot read in its own store, and nobody would miss it: so messages are counted.

Where all messages are wanted every offset has one. Only topics that brokers compact have holes by right; which ones these are is asked when
a message is missing. An answer without any record is no matter of this module: `queue_reading` knows what the broker said of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from orbitmq.spark.ask_ahead import Piece
from orbitmq.spark.offsets import Loss, QueueKey, not_given
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.queue_reading import HasHoles, tell
from orbitmq.spark.rows import RowBuilder, UnreadableRecord


class PieceRows:
    """Adds pieces to the rows of a builder; DataLost, or a warning, for each message that should be there."""

    def __init__(self, builder: RowBuilder, options: SourceOptions, has_holes: HasHoles) -> None:
        self._builder = builder
        self._options = options
        self._has_holes = has_holes

    def add(self, queue: QueueKey, piece: Piece) -> None:
        """Add the rows of a piece of a queue."""
        body, begin, end = piece
        before = self._builder.size
        unread = _add(self._builder, queue, piece)
        for each in unread:
            if each.offset is None:
                tell(Loss(queue, begin, end, f"the broker's answer cannot be read: {each}"), self._options)
            elif begin <= each.offset < end:
                tell(Loss(queue, each.offset, each.offset + 1, f"it cannot be read: {each}"), self._options)
        count = self._builder.size - before + len(unread)
        if body and count < end - begin and self._options.expression is None and not self._has_holes(queue):
            for low, high in _gaps(_offsets(queue, piece), begin, end):
                tell(not_given(queue, low, high), self._options)


def _offsets(queue: QueueKey, piece: Piece) -> Collection[int]:
    """Which messages a piece has."""
    builder = RowBuilder(("queueOffset",), check_body=False)
    unread = _add(builder, queue, piece)
    return frozenset(builder.take()["queueOffset"].to_pylist()).union(each.offset for each in unread if each.offset is not None)


def _add(builder: RowBuilder, queue: QueueKey, piece: Piece) -> list[UnreadableRecord]:
    """Add what can be read of a piece; what cannot."""
    body, begin, end = piece
    at, unread = 0, []
    while at < len(body):
        try:
            builder.add(body, at, len(body), queue.broker, begin, end)
            break
        except UnreadableRecord as problem:
            unread.append(problem)
            at = problem.end
    return unread


def _gaps(present: Collection[int], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of [begin, end) that are not there."""
    low = begin
    for offset in (*sorted(present), end):
        if low < offset:
            yield low, offset
        low = offset + 1
