"""The data source `rocketmq-commitlog`: the messages of stores, read from their files with no broker running.

The stores are those of OrbitMQ and of Apache RocketMQ. Spark makes the source and plans a read in a Python worker of the driver, which
looks at the stores; pieces of logs go to executors, which must see the files under the same paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from orbitmq.common.errors import ConfigurationError, CorruptRecord
from orbitmq.spark.commitlog_options import CommitLogOptions
from orbitmq.spark.commitlog_stores import find_stores
from orbitmq.spark.failures import plainly, told_plainly
from orbitmq.spark.log_damage import clear_report, report
from orbitmq.spark.log_pieces import LogPiece, plan, readable
from orbitmq.spark.log_reading import REMEDY, LogReading
from orbitmq.spark.schema import DDL, projection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_IS_NO_STREAM: Final = "rocketmq-commitlog has no streams: use spark.read, or read topics from their broker as a stream of format rocketmq"
_IS_READ_ONLY: Final = "rocketmq-commitlog only reads: a store is its broker's; send messages to a topic by format rocketmq"


class CommitLogSource(DataSource):
    """`spark.read.format("rocketmq-commitlog").load("/data/store")`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    @plainly
    def schema(self) -> str:
        with readable():
            find_stores(CommitLogOptions.of(self.options))  # so that a wrong path is told at load()
        return DDL

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return CommitLogReader(CommitLogOptions.of(self.options), projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NoStream()

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise ConfigurationError(_IS_READ_ONLY)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise ConfigurationError(_IS_READ_ONLY)


class NoStream(DataSourceStreamReader):
    """Says that there is none when it is asked where to begin: Spark tells of something else when a reader cannot be made."""

    @plainly
    def initialOffset(self) -> dict[str, int]:
        raise ConfigurationError(_IS_NO_STREAM)

    @plainly
    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        raise ConfigurationError(_IS_NO_STREAM)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("nothing begins, so nothing is read")


class LogPartition(InputPartition):
    """The piece of a log that one task reads."""

    def __init__(self, piece: LogPiece) -> None:
        super().__init__(None)
        self.piece = piece

    def __repr__(self) -> str:
        return f"LogPartition({self.piece.broker_name} {self.piece.begin}-{self.piece.end})"


class CommitLogReader(DataSourceReader):
    """Made and asked for partitions by the driver, then sent to executors: it holds values only."""

    def __init__(self, options: CommitLogOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with readable():
            plans = {store.broker_name: plan(store.broker_name, store.directory, options.part_size_max) for store in find_stores(options)}
        damage = [region for found in plans.values() for region in found.damage]
        if damage and not options.skips_damage:
            raise CorruptRecord(f"{damage[0]}; {REMEDY}")
        folder = None if options.damage_report is None else Path(options.damage_report)
        if folder is not None:
            clear_report(folder)
        report(damage, folder, "files")
        pieces = [piece for found in plans.values() for piece in found.pieces if piece.may_hold(options.begin_ms, options.end_ms)]
        return [LogPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogPartition):  # Spark asks for something even if there is nothing
            with told_plainly():
                yield from LogReading(partition.piece, self._options, self._columns).batches()
