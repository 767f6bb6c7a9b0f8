"""Tests that Arrow and Spark types match, and that schemas with other columns are refused."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark import schema

TYPES = {"string": StringType(), "int": IntegerType(), "bigint": LongType()}


def fields(**types: str) -> StructType:
    return StructType([StructField(name, TYPES[kind]) for name, kind in types.items()])


def test_arrow_and_spark_mean_the_same() -> None:
    names = [name for name, column in schema.COLUMNS.items() if column.spark in TYPES]
    known = fields(**{name: schema.COLUMNS[name].spark for name in names}).add(
        "properties", MapType(StringType(), StringType())
    )
    assert to_arrow_schema(known, timezone="UTC") == schema.arrow_schema([*names, "properties"])


def test_a_projection_keeps_the_order_of_the_user() -> None:
    assert schema.projection(fields(queueOffset="bigint", topic="string")) == (
        "queueOffset",
        "topic",
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (fields(topik="string"), "did you mean topic?"),
        (fields(queueid="int"), "did you mean queueId?"),
        (fields(xyzzy="int"), "Known columns are topic, brokerName, queueId"),
        (fields(queueOffset="int"), "queueOffset as int, but it is bigint; cast it after reading"),
        (StructType([StructField("topic", StringType(), nullable=False)]), "leave NOT NULL out"),
        (
            StructType(
                [
                    StructField(
                        "properties", MapType(StringType(), StringType(), valueContainsNull=False)
                    )
                ]
            ),
            "leave NOT NULL out",
        ),
        (
            StructType([StructField("topic", StringType())] * 2),
            "topic, topic: name each wanted column once",
        ),
        (StructType([]), "no column at all"),
    ],
)
def test_a_schema_that_asks_for_something_else_is_refused(wanted: StructType, said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        schema.projection(wanted)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
