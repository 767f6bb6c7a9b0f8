"""What an executor does: reads ranges of queues from their brokers, and hands Spark the rows as Arrow batches.

Batches are large, because each costs as much as hundreds of rows, and bounded, because bodies may be. Ranges of one partition share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.offsets import QueueRange
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.piece_rows import PieceRows
from orbitmq.spark.queue_reading import QueueReading
from orbitmq.spark.rows import RowBuilder

ROWS_MAX: Final = 10_000
_BYTES_MAX: Final = 8 << 20


def record_batches(options: SourceOptions, columns: Sequence[str], wanted: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
    """The messages of ranges, in order, with `columns`."""
    cluster = cluster_of(options)
    finish = _Finish(options, columns)
    builder = RowBuilder(finish.read_columns, check_body="body" in columns)
    rows = PieceRows(builder, options, cluster.has_holes)
    size = 0
    for each in wanted:
        for piece in QueueReading(options, each, cluster.address, cluster.has_holes).pieces():
            rows.add(each.queue, piece)
            size += len(piece.body)
            if builder.size >= ROWS_MAX or size >= _BYTES_MAX:
                yield from finish(builder)
                size = 0
    yield from finish(builder)


class _Finish:
    """What is left to do with a batch: brokers choose tags by their codes, which two may share, and know topics by other names."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._names = options.client.names
        self._tags = pa.array(options.tags, pa.string()) if options.tags else None
        is_added = self._tags is not None and "tags" not in columns
        self.read_columns = [*columns, "tags"] if is_added else self._columns

    def __call__(self, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        """The batch that is built, unless it is empty."""
        if not builder.size:
            return
        batch = builder.take()
        if self._tags is not None:
            import pyarrow.compute as pc  # which takes longer than all else here, at the start of every worker

            batch = batch.filter(pc.is_in(batch["tags"], value_set=self._tags)).select(self._columns)
        if self._names.name and "topic" in self._columns:
            topics = batch["topic"].dictionary_encode()
            own = pa.array(map(self._names.own, topics.dictionary.to_pylist()), pa.string())
            batch = batch.set_column(self._columns.index("topic"), "topic", own.take(topics.indices))
        if batch.num_rows:
            yield batch
