"""The data source `rocketmq`: topics as tables and streams, to read and to write.

Spark makes it in a Python worker whenever it is named, and asks for a reader or a writer later. What can only be meant for reading is
checked when it is made, so that a mistake is told at `load()`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

from orbitmq.spark.failures import plainly
from orbitmq.spark.option_texts import OptionTexts
from orbitmq.spark.options import CONNECTION_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS, SourceOptions
from orbitmq.spark.schema import DDL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketmqSource(DataSource):
    """`spark.read.format("rocketmq")`, and the other three."""

    @plainly
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        OptionTexts(options).check_names((*CONNECTION_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS))
        if SourceOptions.is_meant(options):
            SourceOptions.of(options)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @plainly
    def schema(self) -> str:
        SourceOptions.of(self.options)
        return DDL

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from orbitmq.spark.batch_reader import BatchReader
        from orbitmq.spark.schema import projection

        return BatchReader(SourceOptions.of(self.options), projection(schema))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from orbitmq.spark.stream_reader import StreamReader

        return StreamReader(SourceOptions.of(self.options), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from orbitmq.spark.writer import writer

        return writer(self.options, schema, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from orbitmq.spark.stream_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
