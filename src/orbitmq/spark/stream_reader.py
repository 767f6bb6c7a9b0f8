"""A read that goes on: what has come since the last batch, as far as the limits let it.

Spark's checkpoint is the truth of how far the query is. With a `consumerGroup` brokers are told of it, so that lag shows everywhere. Spark
does not keep where a query begins before its first batch is done: a beginning at the end of queues is kept in the group, and the group's
offsets, where it has some, count as the end. Queues that such a group does not know were added since, and begin at their first message.

A queue that is new is entered with its first offset by one batch and read by the next, so that a batch that is repeated reads the same. One
whose broker is away, or that is not subscribed any more, waits where it is. Runs in a Python worker that lives as long as the query; `read`
runs in executors. Nothing is raised where it is made: Spark would tell of something else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from orbitmq.spark.batch_reader import QueueRanges, partitions
from orbitmq.spark.cluster import Cluster, Topology, cluster_of
from orbitmq.spark.failures import plainly, told_plainly
from orbitmq.spark.offsets import (
    JsonOffsets,
    Offsets,
    QueueKey,
    advance,
    backlog,
    from_json,
    is_enough,
    losses,
    ranges,
    shortened,
    to_json,
)
from orbitmq.spark.options import Edge, SourceOptions
from orbitmq.spark.places import inside, latest_queues, resolve
from orbitmq.spark.queue_reading import tell
from orbitmq.spark.record_batches import record_batches
from orbitmq.spark.schema import projection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOOK_S: Final = 5.0  # how often name servers are asked for queues; Spark asks for offsets many times a second
_GONE_S: Final = 2 * _LOOK_S
log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See above."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._topology: Topology | None = None
        self._looked_s = 0.0
        self._missing_since: dict[QueueKey, float] = {}
        self._target: dict[QueueKey, int] | None = None  # of a query that ends when it has read what was there at its start
        self._latest: dict[QueueKey, int] = {}
        self._aside: dict[QueueKey, int] = {}  # of queues that the checkpoint knows and the options do not mean any more
        self._batch_s = time.monotonic()  # when the last batch began
        self._told: dict[QueueKey, int] = {}  # how far the group is, as brokers know it

    # -- where the query is

    @plainly
    def initialOffset(self) -> JsonOffsets:
        options, cluster = self._checked()
        place = options.start or Edge.LATEST
        self._topology = topology = cluster.topology(options.choice)
        topology.check_whole()
        ends = cluster.ends(topology.queues)
        start = resolve(place, ends, cluster, otherwise=Edge.EARLIEST)
        late = latest_queues(place, ends)
        pinned = {queue: offset for queue, offset in cluster.committed(late).items() if offset is not None}
        if pinned:  # the query has begun before, and what it does not know came later
            start |= {queue: ends[queue].first for queue in late}
        start |= pinned
        for loss in losses(start, ends):
            tell(loss, options)
        start = inside(start, ends)
        if late:
            cluster.join()
            cluster.commit({queue: start[queue] for queue in late if queue not in pinned})
        return to_json(start)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> JsonOffsets:
        options, cluster = self._checked()
        begin = self._chosen(from_json(start))
        topology = self._look(cluster)
        self._tell_group(cluster, begin)
        known = self._without_gone(begin, topology)
        new = self._new(cluster, known, topology)
        self._latest = cluster.latest_of_reachable(topology.queues) if self._target is None else self._target
        known = self._shortened(cluster, known)
        waiting = backlog(known, self._latest)
        waited_ms = round((time.monotonic() - self._batch_s) * 1000)
        count_min = None if self._target is not None else options.count_min
        if not is_enough(waiting, count_min, waited_ms, options.wait_ms_max):
            return to_json({**self._aside, **known, **new})
        self._batch_s = time.monotonic()
        count_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json({**self._aside, **advance(known, self._latest, count_max), **new})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._options.limit is None else ReadMaxRows(self._options.limit)

    def reportLatestOffset(self) -> JsonOffsets | None:
        return to_json(self._latest) if self._latest else None

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        _, cluster = self._checked()
        self._target = {queue: ends.end for queue, ends in cluster.ends(self._look(cluster).queues).items()}

    def commit(self, end: dict[str, Any]) -> None:
        self._tell_group(cluster_of(self._options), from_json(end))

    def stop(self) -> None: ...

    # -- a batch

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, cluster = self._checked()
        wanted = ranges(from_json(start), from_json(end))
        ends = cluster.ends(each.queue for each in wanted)
        for loss in losses({each.queue: each.begin for each in wanted}, ends):
            tell(loss, options)
        return partitions(options, wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges)
        with told_plainly():
            yield from record_batches(self._options, projection(self._schema), partition.wanted)

    # -- what changes while the query runs

    def _checked(self) -> tuple[SourceOptions, Cluster]:
        self._options.check_stream()
        projection(self._schema)
        return self._options, cluster_of(self._options)

    def _look(self, cluster: Cluster) -> Topology:
        """Which queues there are, not longer than some seconds ago."""
        if self._topology is None or time.monotonic() - self._looked_s >= _LOOK_S:
            self._topology = cluster.topology(self._options.choice, is_sure=False)
            self._looked_s = time.monotonic()
            if self._options.group is not None:
                cluster.join()
        return self._topology

    def _chosen(self, begin: Offsets) -> dict[QueueKey, int]:
        """Without the queues that are not subscribed any more: where they are is kept, for the day that they are again."""
        choice = self._options.choice
        aside = {queue: offset for queue, offset in begin.items() if queue not in choice}
        for queue in sorted(aside.keys() - self._aside.keys()):
            log.warning("queue_set_aside queue=%s offset=%d why='it is not subscribed any more'", queue, aside[queue])
        self._aside = aside
        return {queue: offset for queue, offset in begin.items() if queue not in aside}

    def _without_gone(self, begin: Offsets, topology: Topology) -> dict[QueueKey, int]:
        """Without the queues that exist no longer, though their broker is there: for some time, since brokers come and go."""
        now = time.monotonic()
        missing = (queue for queue in begin if queue not in topology.queues and queue.broker in topology.brokers)
        self._missing_since = {queue: self._missing_since.get(queue, now) for queue in missing}
        patience_s = _GONE_S if self._target is None else 0.0
        gone = {queue for queue, since in self._missing_since.items() if now - since >= patience_s}
        for loss in losses(begin, {}, gone):
            tell(loss, self._options)
        return {queue: offset for queue, offset in begin.items() if queue not in gone}

    def _new(self, cluster: Cluster, known: Offsets, topology: Topology) -> dict[QueueKey, int]:
        """Where queues begin that the query does not know yet."""
        queues = [queue for queue in topology.queues if queue not in known and (self._target is None or queue in self._target)]
        return {queue: ends.first for queue, ends in cluster.ends(queues).items()} if queues else {}

    def _shortened(self, cluster: Cluster, known: Offsets) -> dict[QueueKey, int]:
        """With queues that end before they were read to at their end.

        A replica, which follows its master, does not count; neither does a topic that was deleted, whose queues end at 0 for some time.
        """
        short = {queue for queue, offset in known.items() if self._latest.get(queue, offset) < offset and cluster.has_master(queue)}
        if not short:
            return dict(known)
        self._topology = None
        short &= self._look(cluster).queues
        for queue in sorted(short):
            tell(shortened(queue, self._latest[queue], known[queue]), self._options)
        return {queue: self._latest[queue] if queue in short else offset for queue, offset in known.items()}

    def _tell_group(self, cluster: Cluster, offsets: Offsets) -> None:
        """Let brokers know how far the query is: everything before these offsets is done."""
        if self._options.group is None:
            return
        changed = {queue: offset for queue, offset in offsets.items() if self._told.get(queue) != offset}
        self._told.update(changed)
        if changed:
            cluster.commit_soon(changed)
