"""A write of a stream to topics: each task of a micro-batch sends its rows, and they are there when it ends.

At least once: a micro-batch that Spark repeats, after a failure or a restart, is sent again as a whole. Exactly once, where that is asked
for: tasks stage their rows, and they are delivered when the batch is committed, once, however often it is run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.failures import plainly
from orbitmq.spark.sink_columns import check_schema
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.transaction_log import check_place
from orbitmq.spark.writer import Batch, abort, commit, task_ends, total, write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_QUERY: Final = "sql.streaming.queryId"  # Spark's names of what a task may know
_BATCH: Final = "streaming.sql.batchId"
log = logging.getLogger(__name__)


class StreamWriter(DataSourceStreamArrowWriter):
    """See above."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator, _batch_of_task() if self._options.exactly_once else None)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        done = commit(self._options, _batch_of(messages), messages)
        log.info("micro_batch_sent batch=%d %s what='%s'", batchId, total(messages), done)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        done = abort(self._options, _batch_of(messages), messages)
        log.warning("micro_batch_failed batch=%d %s what='%s'", batchId, total(messages), done)


def _batch_of_task() -> Batch:
    """Which batch this task is of, as Spark tells its tasks."""
    context = TaskContext.get()
    assert context is not None, "this is a task"
    query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    assert query is not None, "every task of a micro-batch knows its query"
    assert number is not None, "and its batch"
    return Batch(query, int(number))


def _batch_of(messages: Sequence[WriterCommitMessage | None]) -> Batch | None:
    """The same for the driver, by what its tasks say; None when none of them has staged anything."""
    return next((end.batch for end in task_ends(messages)), None)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer for a stream of that schema; `overwrite` is the output mode complete, in which every row is sent again."""
    parsed = SinkOptions.of(options)
    check_schema(schema, has_topic=parsed.topic is not None)
    once = parsed.exactly_once
    if once and once.query:
        raise ConfigurationError("option transactionId is for batch writes: a stream has an id of its own, and numbers its batches")
    if once and once.checkpoint:
        check_place(once.log, once.checkpoint)
    return StreamWriter(parsed)
