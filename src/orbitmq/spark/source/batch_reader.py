"""Batch read: the messages between two positions of each queue, fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from orbitmq.spark.cluster import cluster_client
from orbitmq.spark.failures import hide_traceback, tracebacks_hidden
from orbitmq.spark.offsets import QueueRange, bundle, losses, ranges, split, truncated
from orbitmq.spark.options import EdgePosition, SourceOptions
from orbitmq.spark.source.positions import clamp, resolve
from orbitmq.spark.source.queue_range_reader import report_loss
from orbitmq.spark.source.record_batches import record_batches

BUNDLE_MAX: Final = 10_000  # messages of small ranges that one task reads


class QueueRanges(InputPartition):
    """The queue ranges that one task reads."""

    def __init__(self, wanted: tuple[QueueRange, ...]) -> None:
        super().__init__(None)
        self.wanted = wanted

    def __repr__(self) -> str:
        ranges = ", ".join(f"{each.queue} {each.begin}-{each.end}" for each in self.wanted)
        return f"QueueRanges({ranges})"


def partitions(options: SourceOptions, wanted: Sequence[QueueRange]) -> list[InputPartition]:
    """Split ranges into partitions, one per task."""
    parts = split(wanted, options.parts_min, options.part_size_max)
    size_max = min(BUNDLE_MAX, options.part_size_max or BUNDLE_MAX)
    return [QueueRanges(each) for each in bundle(parts, options.parts_min, size_max)]


class BatchReader(DataSourceReader):
    """Plans a batch read on the driver and reads it on executors; holds only picklable values."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        options.check_batch()
        self._options = options
        self._columns = tuple(columns)

    @hide_traceback
    def partitions(self) -> Sequence[InputPartition]:
        options, cluster = self._options, cluster_client(self._options)
        topology = cluster.topology(options.selection)
        topology.check_complete()
        bounds = cluster.bounds(topology.queues)
        start = resolve(
            options.start or EdgePosition.EARLIEST, bounds, cluster, otherwise=EdgePosition.EARLIEST
        )
        end = resolve(
            options.end or EdgePosition.LATEST, bounds, cluster, otherwise=EdgePosition.LATEST
        )
        for loss in losses(start, bounds):
            report_loss(loss, options)
        for queue, offset in sorted(end.items()):
            if offset > bounds[queue].end:
                report_loss(truncated(queue, bounds[queue].end, offset), options)
        found = partitions(options, ranges(clamp(start, bounds), clamp(end, bounds)))
        return found or [QueueRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges)
        with tracebacks_hidden():
            yield from record_batches(self._options, self._columns, partition.wanted)
