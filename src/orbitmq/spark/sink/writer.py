"""Batch write: each task sends its rows and ends when they are acknowledged.

At least once: rows that a failing task has sent stay, and are sent again when Spark retries the
task. Exactly once, if configured: tasks stage their rows, and all are delivered when the last task
has ended. A writer is made by the driver and sent to executors: it holds only picklable values.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.failures import hide_traceback
from orbitmq.spark.sink.columns import check_schema
from orbitmq.spark.sink.commit_coordinator import CommitCoordinator
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.sender import SendStats
from orbitmq.spark.sink.staging import batch_name
from orbitmq.spark.sink.task_sender import send_rows
from orbitmq.spark.sink.transaction_log import TransactionLog

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class BatchId(NamedTuple):
    """Identifies a batch by its query and number."""

    query: str
    number: int


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task reports to the driver."""

    sent: SendStats
    batch: BatchId | None = None
    staged: bytes | None = None


def write_rows(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], batch: BatchId | None = None
) -> TaskCommit:
    """Send the rows of a task, or stage them if they belong to a batch. Shared by both writers."""
    context = TaskContext.get()
    name = None if batch is None else batch_name(_transaction_log(options, batch), batch.number)
    rows = send_rows(
        options, batches, f"of partition {context.partitionId() if context else 0}", name
    )
    return TaskCommit(rows.sent, batch, rows.staged)


def _transaction_log(options: SinkOptions, batch: BatchId) -> TransactionLog:
    assert options.exactly_once is not None, "only exactly-once writes have batches"
    return TransactionLog(options.exactly_once.log, batch.query)


def commit_batch(
    options: SinkOptions, batch: BatchId | None, messages: Sequence[WriterCommitMessage | None]
) -> str:
    """Commit the staged messages of all tasks. Returns what was done, for the log."""
    return _coordinator(options, batch).commit(_staged(messages)) if batch else "sent"


def abort_batch(
    options: SinkOptions, batch: BatchId | None, messages: Sequence[WriterCommitMessage | None]
) -> str:
    """Roll back the staged messages of all tasks. Returns what was done, for the log."""
    return (
        _coordinator(options, batch).abort(_staged(messages))
        if batch
        else "messages already sent stay"
    )


def _coordinator(options: SinkOptions, batch: BatchId) -> CommitCoordinator:
    return CommitCoordinator(options, _transaction_log(options, batch), batch.number)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[bytes]:
    return [end.staged for end in task_commits(messages) if end.staged is not None]


def task_commits(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    """Return the reports of the tasks that ended."""
    return [message for message in messages if isinstance(message, TaskCommit)]


def format_totals(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return what all ended tasks have sent, for the log."""
    ended = [end.sent for end in task_commits(messages)]
    return f"tasks={len(messages)} ended={len(ended)} {SendStats.of_all(ended)}"


class BatchWriter(DataSourceArrowWriter):
    """The batch sink: writes rows on executors and commits them on the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        asked = options.exactly_once
        self._batch = (
            None if asked is None else BatchId(asked.query or str(uuid.uuid4()), asked.batch or 0)
        )

    @hide_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator, self._batch)

    @hide_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info(
            "rows_sent %s what='%s'",
            format_totals(messages),
            commit_batch(self._options, self._batch, messages),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning(
            "write_failed %s what='%s'",
            format_totals(messages),
            abort_batch(self._options, self._batch, messages),
        )


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer for a DataFrame of that schema."""
    if overwrite:
        raise ConfigurationError(
            "mode overwrite: messages of a topic cannot be replaced; use mode append"
        )
    parsed = SinkOptions.of(options)
    check_schema(schema, has_topic=parsed.topic is not None)
    return BatchWriter(parsed)
