"""A write of a stream to topics: each task of a micro-batch sends its rows, and they are there when it ends.

At least once: a micro-batch that Spark repeats, after a failure or a restart, is sent again as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from orbitmq.spark.failures import plainly
from orbitmq.spark.sink_columns import check_schema
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.writer import total, write_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class StreamWriter(DataSourceStreamArrowWriter):
    """See above."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.info("micro_batch_sent batch=%d %s", batchId, total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("micro_batch_failed batch=%d %s what_was_sent='stays'", batchId, total(messages))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer for a stream of that schema; `overwrite` is the output mode complete, in which every row is sent again."""
    parsed = SinkOptions.of(options)
    check_schema(schema, has_topic=parsed.topic is not None)
    return StreamWriter(parsed)
