"""The data source `rocketmq`: reads and writes topics as tables and streams.

Spark constructs it in a Python worker whenever the format is named, and requests a reader or writer
later. The constructor checks options that belong to a read, so that a mistake is reported by
`load()`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from orbitmq.spark.failures import hide_traceback
from orbitmq.spark.option_reader import OptionReader
from orbitmq.spark.options import CONNECTION_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS, SourceOptions
from orbitmq.spark.schema import DDL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketmqSource(DataSource):
    """The format `rocketmq` of `spark.read`, `readStream`, `write` and `writeStream`."""

    @hide_traceback
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        OptionReader(options).check_names((*CONNECTION_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS))
        if SourceOptions.has_any(options):
            SourceOptions.of(options)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @hide_traceback
    def schema(self) -> str:
        SourceOptions.of(self.options)
        return DDL

    @hide_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        from orbitmq.spark.schema import projection
        from orbitmq.spark.source.batch_reader import BatchReader

        return BatchReader(SourceOptions.of(self.options), projection(schema))

    @hide_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from orbitmq.spark.source.stream_reader import StreamReader

        return StreamReader(SourceOptions.of(self.options), schema)

    @hide_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from orbitmq.spark.sink.writer import writer

        return writer(self.options, schema, overwrite)

    @hide_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from orbitmq.spark.sink.stream_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
