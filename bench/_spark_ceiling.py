"""A Spark source and sink in Python that do no work of their own: the upper limit for any of them.

Also imported by Spark's workers. The source yields one batch repeatedly, from a file that the
driver wrote before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from orbitmq.spark.schema import DDL, arrow_schema, projection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PARTITIONS: Final = 8
SOURCE_FORMAT, SINK_FORMAT = "bench-prebuilt", "bench-counting"


def keep(sample: pa.Table, path: Path) -> None:
    """Write the rows to a file, as one batch."""
    batch = sample.combine_chunks().to_batches()[0]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


@cache
def _batch(path: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    with pa.OSFile(path, "rb") as file:
        batch = pa.ipc.open_file(file).get_batch(0)
    return batch.select(list(columns)).cast(arrow_schema(columns))


class PrebuiltSource(DataSource):
    """Yields as many rows as the option `rows` says, from the batch in the file `path`."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_FORMAT

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltReader(self.options["path"], int(self.options["rows"]), projection(schema))


class PrebuiltReader(DataSourceReader):
    def __init__(self, path: str, rows: int, columns: Sequence[str]) -> None:
        self._path = path
        self._rows = rows
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        share, rest = divmod(self._rows, PARTITIONS)
        return [InputPartition(share + (number < rest)) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch, left = _batch(self._path, self._columns), partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


class CountingSink(DataSource):
    """Counts rows and discards them."""

    @classmethod
    def name(cls) -> str:
        return SINK_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return CountingWriter()


class CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        count = sum(batch.num_rows for batch in iterator)
        assert count >= 0
        return WriterCommitMessage()
