"""The columns of a message in Spark, what each is in Arrow and in Spark, and which of them a user's schema asks for.

Knows no bytes of records: `rows` fills the columns. Every column may be null to Spark. `msgId` is the offset id, which says where the
message is stored; `uniqueKey` is the id that its producer gave it. `topic` is the one it is stored under. Bodies are as they were sent,
so `sysFlag` never says that they are compressed.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from orbitmq.common.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    """A column's type in Arrow, and in the language of Spark's schemas."""

    arrow: pa.DataType
    spark: str


_TEXT: Final = Column(pa.string(), "string")
_INT: Final = Column(pa.int32(), "int")
_LONG: Final = Column(pa.int64(), "bigint")
_TIME: Final = Column(pa.timestamp("us", tz="UTC"), "timestamp")

COLUMNS: Final[dict[str, Column]] = {
    "topic": _TEXT,
    "brokerName": _TEXT,
    "queueId": _INT,
    "queueOffset": _LONG,
    "commitLogOffset": _LONG,
    "msgId": _TEXT,
    "uniqueKey": _TEXT,
    "keys": _TEXT,
    "tags": _TEXT,
    "body": Column(pa.binary(), "binary"),
    "properties": Column(pa.map_(pa.string(), pa.string()), "map<string,string>"),
    "bornTimestamp": _TIME,
    "storeTimestamp": _TIME,
    "bornHost": _TEXT,
    "storeHost": _TEXT,
    "reconsumeTimes": _INT,
    "sysFlag": _INT,
    "flag": _INT,
}
DDL: Final = ", ".join(f"{name} {column.spark}" for name, column in COLUMNS.items())


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """What a RecordBatch of these columns looks like, as Spark compares it."""
    return pa.schema([(name, COLUMNS[name].arrow) for name in names])


def projection(schema: StructType) -> tuple[str, ...]:
    """The names of the columns that a schema of Spark asks for, in its order; ConfigurationError for one that there is not."""
    for field in schema.fields:
        column = COLUMNS.get(field.name)
        if column is None:
            near = difflib.get_close_matches(field.name.lower(), map(str.lower, COLUMNS), n=1)
            meant = next((f"did you mean {name}? " for name in COLUMNS if [name.lower()] == near), "")
            raise ConfigurationError(f"the schema asks for a column {field.name} that there is not: {meant}There are {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != column.spark:
            raise ConfigurationError(
                f"the schema asks for {field.name} as {field.dataType.simpleString()}: it is {column.spark}; cast it after it is read"
            )
        if not field.nullable or not getattr(field.dataType, "valueContainsNull", True):
            raise ConfigurationError(f"the schema says that {field.name} is never null: write it without NOT NULL")
    names = tuple(field.name for field in schema.fields)
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"the schema asks for {', '.join(names) or 'no column at all'}: name each wanted column once")
    return names
