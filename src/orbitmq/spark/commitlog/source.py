"""The data source `rocketmq-commitlog`: reads messages from the files of a store, without a broker.

Reads stores of OrbitMQ and of Apache RocketMQ. Spark constructs the source and plans a read in a
Python worker of the driver, which inspects the stores; pieces of the logs go to executors, which
must see the files under the same paths.
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

from orbitmq.common.errors import ConfigurationError, CorruptRecordError
from orbitmq.spark.commitlog.damage import clear_report, report_damage
from orbitmq.spark.commitlog.options import CommitLogOptions
from orbitmq.spark.commitlog.piece_reader import REMEDY, LogPieceReader
from orbitmq.spark.commitlog.pieces import LogPiece, explain_file_errors, plan_pieces
from orbitmq.spark.commitlog.stores import find_stores
from orbitmq.spark.failures import hide_traceback, tracebacks_hidden
from orbitmq.spark.schema import DDL, projection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_NO_STREAMS: Final = (
    "rocketmq-commitlog does not support streams: use spark.read, or stream topics from their"
    " broker with format rocketmq"
)
_READ_ONLY: Final = (
    "rocketmq-commitlog is read-only: only the broker writes to its store; send messages to a"
    " topic with format rocketmq"
)


class CommitLogSource(DataSource):
    """The format `rocketmq-commitlog`: `spark.read.format(...).load("/data/store")`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    @hide_traceback
    def schema(self) -> str:
        with explain_file_errors():
            find_stores(CommitLogOptions.of(self.options))  # reports a wrong path at load()
        return DDL

    @hide_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        return CommitLogReader(CommitLogOptions.of(self.options), projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return UnsupportedStreamReader()

    @hide_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise ConfigurationError(_READ_ONLY)

    @hide_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise ConfigurationError(_READ_ONLY)


class UnsupportedStreamReader(DataSourceStreamReader):
    """Rejects a stream when it is asked for its first offset: if its constructor raised, Spark
    would report a misleading error.
    """

    @hide_traceback
    def initialOffset(self) -> dict[str, int]:
        raise ConfigurationError(_NO_STREAMS)

    @hide_traceback
    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        raise ConfigurationError(_NO_STREAMS)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a stream without a first offset is never read")


class LogPartition(InputPartition):
    """The piece of a commit log that one task reads."""

    def __init__(self, piece: LogPiece) -> None:
        super().__init__(None)
        self.piece = piece

    def __repr__(self) -> str:
        return f"LogPartition({self.piece.broker_name} {self.piece.begin}-{self.piece.end})"


class CommitLogReader(DataSourceReader):
    """Plans a read on the driver and reads it on executors; holds only picklable values."""

    def __init__(self, options: CommitLogOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    @hide_traceback
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with explain_file_errors():
            plans = {
                store.broker_name: plan_pieces(
                    store.broker_name, store.directory, options.part_size_max
                )
                for store in find_stores(options)
            }
        damage = [region for found in plans.values() for region in found.damage]
        if damage and not options.skips_damage:
            raise CorruptRecordError(f"{damage[0]}; {REMEDY}")
        folder = None if options.damage_report is None else Path(options.damage_report)
        if folder is not None:
            clear_report(folder)
        report_damage(damage, folder, "files")
        pieces = [
            piece
            for found in plans.values()
            for piece in found.pieces
            if piece.may_hold(options.begin_ms, options.end_ms)
        ]
        return [LogPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogPartition):  # Spark also reads if there are none
            with tracebacks_hidden():
                yield from LogPieceReader(partition.piece, self._options, self._columns).batches()
