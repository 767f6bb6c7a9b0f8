"""Executor side of a read: reads queue ranges from their brokers and returns the rows as Arrow
batches.

Batches are large, because each costs as much as hundreds of rows, but bounded, because bodies may
be large. The ranges of a partition share batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from orbitmq.spark.cluster import cluster_client
from orbitmq.spark.kernels.rows import RowBuilder
from orbitmq.spark.offsets import QueueRange
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.source.piece_decoder import PieceDecoder
from orbitmq.spark.source.queue_range_reader import QueueRangeReader

ROWS_MAX: Final = 10_000
_BYTES_MAX: Final = 8 << 20


def record_batches(
    options: SourceOptions, columns: Sequence[str], wanted: Sequence[QueueRange]
) -> Iterator[pa.RecordBatch]:
    """Return the messages of the ranges in order, with the given columns."""
    cluster = cluster_client(options)
    finisher = _BatchFinisher(options, columns)
    builder = RowBuilder(finisher.read_columns, check_body="body" in columns)
    rows = PieceDecoder(builder, options, cluster.has_holes)
    size = 0
    for each in wanted:
        for piece in QueueRangeReader(options, each, cluster.address, cluster.has_holes).pieces():
            rows.add(each.queue, piece)
            size += len(piece.body)
            if builder.size >= ROWS_MAX or size >= _BYTES_MAX:
                yield from finisher(builder)
                size = 0
    yield from finisher(builder)


class _BatchFinisher:
    """Post-processes a batch: filters tags exactly, since brokers filter by hash codes that may
    collide, and strips the namespace from topics.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._names = options.client.names
        self._tags = pa.array(options.tags, pa.string()) if options.tags else None
        is_added = self._tags is not None and "tags" not in columns
        self.read_columns = [*columns, "tags"] if is_added else self._columns

    def __call__(self, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        """Return the finished batch unless it is empty."""
        if not builder.size:
            return
        batch = builder.take()
        if self._tags is not None:
            # Imported only if needed: it dominates the start-up time of a worker.
            import pyarrow.compute as pc

            batch = batch.filter(pc.is_in(batch["tags"], value_set=self._tags)).select(
                self._columns
            )
        if self._names.name and "topic" in self._columns:
            topics = batch["topic"].dictionary_encode()
            own = pa.array(map(self._names.own, topics.dictionary.to_pylist()), pa.string())
            batch = batch.set_column(
                self._columns.index("topic"), "topic", own.take(topics.indices)
            )
        if batch.num_rows:
            yield batch
