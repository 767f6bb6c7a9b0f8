"""A read of everything at once: what is between two places of each queue when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.failures import plainly, told_plainly
from orbitmq.spark.offsets import QueueRange, bundle, losses, ranges, shortened, split
from orbitmq.spark.options import Edge, SourceOptions
from orbitmq.spark.places import inside, resolve
from orbitmq.spark.queue_reading import tell
from orbitmq.spark.record_batches import record_batches

BUNDLE_MAX: Final = 10_000  # messages of small ranges that one task reads


class QueueRanges(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: tuple[QueueRange, ...]) -> None:
        super().__init__(None)
        self.wanted = wanted

    def __repr__(self) -> str:
        return f"QueueRanges({', '.join(f'{each.queue} {each.begin}-{each.end}' for each in self.wanted)})"


def partitions(options: SourceOptions, wanted: Sequence[QueueRange]) -> list[InputPartition]:
    """Ranges in parts for tasks."""
    parts = split(wanted, options.parts_min, options.part_size_max)
    size_max = min(BUNDLE_MAX, options.part_size_max or BUNDLE_MAX)
    return [QueueRanges(each) for each in bundle(parts, options.parts_min, size_max)]


class BatchReader(DataSourceReader):
    """Made and asked for partitions by the driver, then sent to executors: it holds values only."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        options.check_batch()
        self._options = options
        self._columns = tuple(columns)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        options, cluster = self._options, cluster_of(self._options)
        topology = cluster.topology(options.choice)
        topology.check_whole()
        ends = cluster.ends(topology.queues)
        start = resolve(options.start or Edge.EARLIEST, ends, cluster, otherwise=Edge.EARLIEST)
        end = resolve(options.end or Edge.LATEST, ends, cluster, otherwise=Edge.LATEST)
        for loss in losses(start, ends):
            tell(loss, options)
        for queue, offset in sorted(end.items()):
            if offset > ends[queue].end:
                tell(shortened(queue, ends[queue].end, offset), options)
        found = partitions(options, ranges(inside(start, ends), inside(end, ends)))
        return found or [QueueRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges)
        with told_plainly():
            yield from record_batches(self._options, self._columns, partition.wanted)
