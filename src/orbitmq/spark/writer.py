"""A write of rows to topics, at once: each task sends its rows, and they are there when it ends.

At least once: what a failing task has sent stays, and is sent again when Spark tries the task again. A writer is made by the driver and
goes to executors: it holds values only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.failures import plainly
from orbitmq.spark.row_sending import send_rows
from orbitmq.spark.sender import Sent
from orbitmq.spark.sink_columns import check_schema
from orbitmq.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskEnd(WriterCommitMessage):
    """What a task tells the driver."""

    sent: Sent


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> TaskEnd:
    """What `write` of both writers does."""
    context = TaskContext.get()
    return TaskEnd(send_rows(options, batches, f"of partition {context.partitionId() if context else 0}"))


def total(messages: Sequence[WriterCommitMessage | None]) -> str:
    """What all tasks have sent that came to their end, for the log."""
    ended = [message.sent for message in messages if isinstance(message, TaskEnd)]
    return f"tasks={len(messages)} ended={len(ended)} {Sent.of_all(ended)}"


class BatchWriter(DataSourceArrowWriter):
    """See above."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("rows_sent %s", total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("write_failed %s what_was_sent='stays'", total(messages))


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer for a DataFrame of that schema."""
    if overwrite:
        raise ConfigurationError("mode overwrite: messages of a topic cannot be replaced; use mode append")
    parsed = SinkOptions.of(options)
    check_schema(schema, has_topic=parsed.topic is not None)
    return BatchWriter(parsed)
