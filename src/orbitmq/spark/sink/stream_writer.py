"""Streaming write: each task of a micro-batch sends its rows and ends when they are acknowledged.

At least once: a micro-batch that Spark repeats after a failure or restart is sent again as a whole.
Exactly once, if configured: tasks stage their rows, and the commit of the batch delivers them once,
however often the batch runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.failures import hide_traceback
from orbitmq.spark.sink.columns import check_schema
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.transaction_log import check_log_location
from orbitmq.spark.sink.writer import (
    BatchId,
    abort_batch,
    commit_batch,
    format_totals,
    task_commits,
    write_rows,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_QUERY: Final = "sql.streaming.queryId"  # local properties that Spark sets for tasks
_BATCH: Final = "streaming.sql.batchId"
log = logging.getLogger(__name__)


class StreamWriter(DataSourceStreamArrowWriter):
    """The streaming sink: writes rows on executors and commits micro-batches on the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @hide_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(
            self._options, iterator, _batch_of_task() if self._options.exactly_once else None
        )

    @hide_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        done = commit_batch(self._options, _batch_of(messages), messages)
        log.info("micro_batch_sent batch=%d %s what='%s'", batchId, format_totals(messages), done)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        done = abort_batch(self._options, _batch_of(messages), messages)
        log.warning(
            "micro_batch_failed batch=%d %s what='%s'", batchId, format_totals(messages), done
        )


def _batch_of_task() -> BatchId:
    """Return the batch of this task, from Spark's task properties."""
    context = TaskContext.get()
    assert context is not None, "this is a task"
    query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    assert query is not None, "every task of a micro-batch knows its query"
    assert number is not None, "and its batch"
    return BatchId(query, int(number))


def _batch_of(messages: Sequence[WriterCommitMessage | None]) -> BatchId | None:
    """Return the batch that the tasks report; None if none of them staged anything."""
    return next((end.batch for end in task_commits(messages)), None)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer for a stream of that schema; `overwrite` is the output mode complete, in
    which every row is sent again.
    """
    parsed = SinkOptions.of(options)
    check_schema(schema, has_topic=parsed.topic is not None)
    once = parsed.exactly_once
    if once and once.query:
        raise ConfigurationError(
            "option transactionId applies to batch writes only: Spark identifies a stream and"
            " numbers its batches; leave it out"
        )
    if once and once.checkpoint:
        check_log_location(once.log, once.checkpoint)
    return StreamWriter(parsed)
