"""A write of rows to topics, at once: each task sends its rows, and they are there when it ends.

At least once: what a failing task has sent stays, and is sent again when Spark tries the task again. Exactly once, where that is asked for:
tasks stage their rows, and all of them are delivered when the last task has ended. A writer is made by the driver and goes to executors: it
holds values only.
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
from orbitmq.spark.deciding import BatchDecision
from orbitmq.spark.failures import plainly
from orbitmq.spark.row_sending import send_rows
from orbitmq.spark.sender import Sent
from orbitmq.spark.sink_columns import check_schema
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.staging import batch_name
from orbitmq.spark.transaction_log import TransactionLog

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class Batch(NamedTuple):
    """Which batch of which query rows belong to."""

    query: str
    number: int


@dataclass(frozen=True)
class TaskEnd(WriterCommitMessage):
    """What a task tells the driver."""

    sent: Sent
    batch: Batch | None = None
    staged: bytes | None = None


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch], batch: Batch | None = None) -> TaskEnd:
    """What `write` of both writers does; rows of a batch are staged."""
    context = TaskContext.get()
    name = None if batch is None else batch_name(_transaction_log(options, batch), batch.number)
    rows = send_rows(options, batches, f"of partition {context.partitionId() if context else 0}", name)
    return TaskEnd(rows.sent, batch, rows.staged)


def _transaction_log(options: SinkOptions, batch: Batch) -> TransactionLog:
    assert options.exactly_once is not None, "only then there are batches"
    return TransactionLog(options.exactly_once.log, batch.query)


def commit(options: SinkOptions, batch: Batch | None, messages: Sequence[WriterCommitMessage | None]) -> str:
    """What `commit` of both writers does with what is staged; what that was, for the log."""
    return _decision(options, batch).commit(_staged(messages)) if batch else "sent"


def abort(options: SinkOptions, batch: Batch | None, messages: Sequence[WriterCommitMessage | None]) -> str:
    """The same for `abort`."""
    return _decision(options, batch).abort(_staged(messages)) if batch else "what was sent stays"


def _decision(options: SinkOptions, batch: Batch) -> BatchDecision:
    return BatchDecision(options, _transaction_log(options, batch), batch.number)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[bytes]:
    return [end.staged for end in task_ends(messages) if end.staged is not None]


def task_ends(messages: Sequence[WriterCommitMessage | None]) -> list[TaskEnd]:
    return [message for message in messages if isinstance(message, TaskEnd)]


def total(messages: Sequence[WriterCommitMessage | None]) -> str:
    """What all tasks have sent that came to their end, for the log."""
    ended = [end.sent for end in task_ends(messages)]
    return f"tasks={len(messages)} ended={len(ended)} {Sent.of_all(ended)}"


class BatchWriter(DataSourceArrowWriter):
    """See above."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        asked = options.exactly_once
        self._batch = None if asked is None else Batch(asked.query or str(uuid.uuid4()), asked.batch or 0)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator, self._batch)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("rows_sent %s what='%s'", total(messages), commit(self._options, self._batch, messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("write_failed %s what='%s'", total(messages), abort(self._options, self._batch, messages))


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer for a DataFrame of that schema."""
    if overwrite:
        raise ConfigurationError("mode overwrite: messages of a topic cannot be replaced; use mode append")
    parsed = SinkOptions.of(options)
    check_schema(schema, has_topic=parsed.topic is not None)
    return BatchWriter(parsed)
