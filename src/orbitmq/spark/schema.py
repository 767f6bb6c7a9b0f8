"""The columns of a message: their Arrow and Spark types, and which of them a user's schema selects.

Knows nothing of record bytes: `kernels.rows` fills the columns. Spark sees every column as
nullable. `msgId` is the offset message id, which encodes where the message is stored; `uniqueKey`
is the id that the producer assigned. `topic` is the topic the message is stored under. Bodies are
decompressed, so `sysFlag` never carries the compression bit.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from orbitmq.common.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ColumnType(NamedTuple):
    """A column's type in Arrow and in Spark's DDL."""

    arrow: pa.DataType
    spark: str


_TEXT: Final = ColumnType(pa.string(), "string")
_INT: Final = ColumnType(pa.int32(), "int")
_LONG: Final = ColumnType(pa.int64(), "bigint")
_TIME: Final = ColumnType(pa.timestamp("us", tz="UTC"), "timestamp")

COLUMNS: Final[dict[str, ColumnType]] = {
    "topic": _TEXT,
    "brokerName": _TEXT,
    "queueId": _INT,
    "queueOffset": _LONG,
    "commitLogOffset": _LONG,
    "msgId": _TEXT,
    "uniqueKey": _TEXT,
    "keys": _TEXT,
    "tags": _TEXT,
    "body": ColumnType(pa.binary(), "binary"),
    "properties": ColumnType(pa.map_(pa.string(), pa.string()), "map<string,string>"),
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
    """Return the Arrow schema of a RecordBatch with these columns, as Spark compares it."""
    return pa.schema([(name, COLUMNS[name].arrow) for name in names])


def projection(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a Spark schema selects, in its order.

    Raises ConfigurationError for a column that does not exist or has another type.
    """
    for field in schema.fields:
        column = COLUMNS.get(field.name)
        if column is None:
            near = difflib.get_close_matches(field.name.lower(), map(str.lower, COLUMNS), n=1)
            meant = next(
                (f"did you mean {name}? " for name in COLUMNS if [name.lower()] == near), ""
            )
            raise ConfigurationError(
                f"the schema has an unknown column {field.name}: {meant}Known columns are"
                f" {', '.join(COLUMNS)}"
            )
        if field.dataType.simpleString() != column.spark:
            raise ConfigurationError(
                f"the schema declares {field.name} as {field.dataType.simpleString()}, but it is"
                f" {column.spark}; cast it after reading"
            )
        if not field.nullable or not getattr(field.dataType, "valueContainsNull", True):
            raise ConfigurationError(
                f"the schema declares {field.name} as NOT NULL, but every column is nullable; leave"
                " NOT NULL out"
            )
    names = tuple(field.name for field in schema.fields)
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"the schema selects {', '.join(names) or 'no column at all'}: name each wanted column"
            " once"
        )
    return names
