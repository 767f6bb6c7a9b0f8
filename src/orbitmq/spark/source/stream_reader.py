"""Streaming read: the messages that arrived since the last batch, within the configured limits.

Spark's checkpoint is the truth about the progress of a query. With a `consumerGroup` the offsets
are also committed to the brokers, so that the lag is visible everywhere. Spark does not persist the
start offset before the first batch is done. So a query that starts at the latest offsets commits
them to the group, and on a restart the group's offsets count as the latest. Queues unknown to such
a group were added since and start at their first message.

A new queue enters the offsets in one batch and is read in the next, so that a repeated batch reads
the same messages. A queue whose broker is unreachable, or that is no longer subscribed, keeps its
offset.

Runs in a Python worker that lives as long as the query; `read` runs on executors. The constructor
never raises: Spark would report a misleading error. Options are checked on first use.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from orbitmq.spark.cluster import ClusterClient, Topology, cluster_client
from orbitmq.spark.failures import hide_traceback, tracebacks_hidden
from orbitmq.spark.offsets import (
    JsonOffsets,
    Offsets,
    QueueName,
    advance,
    backlog,
    from_json,
    is_batch_due,
    losses,
    ranges,
    to_json,
    truncated,
)
from orbitmq.spark.options import EdgePosition, SourceOptions
from orbitmq.spark.schema import projection
from orbitmq.spark.source.batch_reader import QueueRanges, partitions
from orbitmq.spark.source.positions import clamp, latest_queues, resolve
from orbitmq.spark.source.queue_range_reader import report_loss
from orbitmq.spark.source.record_batches import record_batches

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TOPOLOGY_AGE_S_MAX: Final = 5.0  # Spark requests offsets many times a second
_GONE_S: Final = 2 * _TOPOLOGY_AGE_S_MAX
log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming source: plans micro-batches on the driver and reads them on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._topology: Topology | None = None
        self._topology_s = 0.0
        self._missing_since: dict[QueueName, float] = {}
        self._target: dict[QueueName, int] | None = None  # where an availableNow query ends
        self._latest: dict[QueueName, int] = {}
        self._unsubscribed: dict[QueueName, int] = {}  # in the checkpoint, no longer selected
        self._batch_s = time.monotonic()  # start of the last batch
        self._reported: dict[QueueName, int] = {}  # offsets committed to the group

    # -- offsets

    @hide_traceback
    def initialOffset(self) -> JsonOffsets:
        options, cluster = self._validated()
        position = options.start or EdgePosition.LATEST
        self._topology = topology = cluster.topology(options.selection)
        topology.check_complete()
        bounds = cluster.bounds(topology.queues)
        start = resolve(position, bounds, cluster, otherwise=EdgePosition.EARLIEST)
        late = latest_queues(position, bounds)
        pinned = {
            queue: offset for queue, offset in cluster.committed(late).items() if offset is not None
        }
        if pinned:  # the query has run before: unknown queues are new
            start |= {queue: bounds[queue].first for queue in late}
        start |= pinned
        for loss in losses(start, bounds):
            report_loss(loss, options)
        start = clamp(start, bounds)
        if late:
            cluster.join()
            cluster.commit({queue: start[queue] for queue in late if queue not in pinned})
        return to_json(start)

    @hide_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> JsonOffsets:
        options, cluster = self._validated()
        begin = self._without_unsubscribed(from_json(start))
        topology = self._current_topology(cluster)
        self._commit_to_group(cluster, begin)
        known = self._without_gone(begin, topology)
        new = self._new_queues(cluster, known, topology)
        self._latest = (
            cluster.latest_of_reachable(topology.queues) if self._target is None else self._target
        )
        known = self._truncated(cluster, known)
        pending = backlog(known, self._latest)
        waited_ms = round((time.monotonic() - self._batch_s) * 1000)
        count_min = None if self._target is not None else options.count_min
        if not is_batch_due(pending, count_min, waited_ms, options.wait_ms_max):
            return to_json({**self._unsubscribed, **known, **new})
        self._batch_s = time.monotonic()
        count_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json({**self._unsubscribed, **advance(known, self._latest, count_max), **new})

    def getDefaultReadLimit(self) -> ReadLimit:
        return (
            ReadAllAvailable() if self._options.limit is None else ReadMaxRows(self._options.limit)
        )

    def reportLatestOffset(self) -> JsonOffsets | None:
        return to_json(self._latest) if self._latest else None

    @hide_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        _, cluster = self._validated()
        self._target = {
            queue: bounds.end
            for queue, bounds in cluster.bounds(self._current_topology(cluster).queues).items()
        }

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_to_group(cluster_client(self._options), from_json(end))

    def stop(self) -> None: ...

    # -- a batch

    @hide_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, cluster = self._validated()
        wanted = ranges(from_json(start), from_json(end))
        bounds = cluster.bounds(each.queue for each in wanted)
        for loss in losses({each.queue: each.begin for each in wanted}, bounds):
            report_loss(loss, options)
        return partitions(options, wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges)
        with tracebacks_hidden():
            yield from record_batches(self._options, projection(self._schema), partition.wanted)

    # -- changes while the query runs

    def _validated(self) -> tuple[SourceOptions, ClusterClient]:
        self._options.check_stream()
        projection(self._schema)
        return self._options, cluster_client(self._options)

    def _current_topology(self, cluster: ClusterClient) -> Topology:
        """Return the existing queues, at most a few seconds old."""
        if self._topology is None or time.monotonic() - self._topology_s >= _TOPOLOGY_AGE_S_MAX:
            self._topology = cluster.topology(self._options.selection, must_exist=False)
            self._topology_s = time.monotonic()
            if self._options.group is not None:
                cluster.join()
        return self._topology

    def _without_unsubscribed(self, begin: Offsets) -> dict[QueueName, int]:
        """Return offsets without queues that are no longer subscribed; their offsets are kept in
        case they are subscribed again.
        """
        selection = self._options.selection
        unsubscribed = {queue: offset for queue, offset in begin.items() if queue not in selection}
        for queue in sorted(unsubscribed.keys() - self._unsubscribed.keys()):
            log.warning(
                "queue_set_aside queue=%s offset=%d why='it is no longer subscribed'",
                queue,
                unsubscribed[queue],
            )
        self._unsubscribed = unsubscribed
        return {queue: offset for queue, offset in begin.items() if queue not in unsubscribed}

    def _without_gone(self, begin: Offsets, topology: Topology) -> dict[QueueName, int]:
        """Return offsets without queues that have been missing for a while although their broker is
        registered. The grace period covers brokers that restart.
        """
        now = time.monotonic()
        missing = (
            queue
            for queue in begin
            if queue not in topology.queues and queue.broker in topology.brokers
        )
        self._missing_since = {queue: self._missing_since.get(queue, now) for queue in missing}
        grace_s = _GONE_S if self._target is None else 0.0
        gone = {queue for queue, since in self._missing_since.items() if now - since >= grace_s}
        for loss in losses(begin, {}, gone):
            report_loss(loss, self._options)
        return {queue: offset for queue, offset in begin.items() if queue not in gone}

    def _new_queues(
        self, cluster: ClusterClient, known: Offsets, topology: Topology
    ) -> dict[QueueName, int]:
        """Return the first offsets of queues that the query does not know yet."""
        queues = [
            queue
            for queue in topology.queues
            if queue not in known and (self._target is None or queue in self._target)
        ]
        return (
            {queue: bounds.first for queue, bounds in cluster.bounds(queues).items()}
            if queues
            else {}
        )

    def _truncated(self, cluster: ClusterClient, known: Offsets) -> dict[QueueName, int]:
        """Return offsets with those behind the end of a truncated queue moved to its end.

        A replica that lags behind its master does not count, nor does a deleted topic, whose queues
        end at 0 for some time.
        """
        short = {
            queue
            for queue, offset in known.items()
            if self._latest.get(queue, offset) < offset and cluster.has_master(queue)
        }
        if not short:
            return dict(known)
        self._topology = None
        short &= self._current_topology(cluster).queues
        for queue in sorted(short):
            report_loss(truncated(queue, self._latest[queue], known[queue]), self._options)
        return {
            queue: self._latest[queue] if queue in short else offset
            for queue, offset in known.items()
        }

    def _commit_to_group(self, cluster: ClusterClient, offsets: Offsets) -> None:
        """Commit the query's offsets to the group: everything before them is processed."""
        if self._options.group is None:
            return
        changed = {
            queue: offset
            for queue, offset in offsets.items()
            if self._reported.get(queue) != offset
        }
        self._reported.update(changed)
        if changed:
            cluster.commit_soon(changed)
