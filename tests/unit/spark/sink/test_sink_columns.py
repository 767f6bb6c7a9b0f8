"""Tests that invalid schemas and rows are refused before sending, and that single rows become
messages.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.client.messages import Message
from orbitmq.common.errors import ConfigurationError, InvalidMessageError
from orbitmq.spark.sink.columns import SinkRows, check_schema

TEXT = StringType()


def fields(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    "schema",
    [
        fields(body=BinaryType()),
        fields(
            body=TEXT, keys=TEXT, tags=TEXT, delayLevel=IntegerType(), shardingKey=TEXT, topic=TEXT
        ),
        fields(
            keys=ArrayType(TEXT),
            body=TEXT,
            properties=MapType(TEXT, TEXT),
            deliverTimestamp=TimestampType(),
            delayLevel=LongType(),
        ),
    ],
)
def test_columns_may_be_in_any_order_and_of_several_types(schema: StructType) -> None:
    check_schema(schema, has_topic=True)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            fields(body=TEXT, tag=TEXT),
            "messages have no column tag: did you mean tags? Select only columns of topic, body,"
            " keys",
        ),
        (
            fields(body=TEXT, amount=DoubleType()),
            "messages have no column amount: Select only columns of topic",
        ),
        (
            fields(body=DoubleType()),
            "column body is double but must be binary or string; cast it",
        ),
        (
            fields(body=TEXT, keys=ArrayType(LongType())),
            "column keys is array<bigint> but must be string or array<string>",
        ),
        (
            fields(body=TEXT, properties=MapType(TEXT, LongType())),
            "column properties is map<string,bigint>",
        ),
        (
            fields(body=TEXT, deliverTimestamp=TimestampNTZType()),
            "column deliverTimestamp is timestamp_ntz but must be timestamp",
        ),
        (fields(topic=TEXT, keys=TEXT), "there is no column body of type binary or string"),
        (
            StructType([StructField("body", TEXT)] * 2),
            "columns body, body: each may occur only once",
        ),
    ],
)
def test_a_schema_that_will_not_do_is_refused_in_one_sentence(
    schema: StructType, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_schema(schema, has_topic=True)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rows_need_a_topic_from_somewhere() -> None:
    check_schema(fields(body=TEXT, topic=TEXT), has_topic=False)
    with pytest.raises(ConfigurationError, match="give the option topic, or a column topic"):
        check_schema(fields(body=TEXT), has_topic=False)


def message(*, drops_reserved: bool = False, **values: object) -> Message:
    """Return the message of a row with these values."""
    types = {
        "properties": pa.map_(pa.string(), pa.string()),
        "keys": pa.list_(pa.string()) if isinstance(values.get("keys"), list) else pa.string(),
        "deliverTimestamp": pa.timestamp("us", "UTC"),
        "delayLevel": pa.int32(),
        "body": pa.binary(),
    }
    arrays = {
        name: pa.array([value], types.get(name, pa.string())) for name, value in values.items()
    }
    return SinkRows.of(pa.record_batch(arrays)).message(0, "T", drops_reserved=drops_reserved)


def test_a_row_that_goes_alone_has_everything_that_its_columns_say() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    assert message(body=b"b") == Message("T", b"b")
    assert message(
        body=b"b", keys=None, tags=None, properties=None, shardingKey=None, delayLevel=None
    ) == Message("T", b"b")
    assert message(body=b"b", keys=["a", None, "", "c"]).keys == ("a", "c")
    assert message(body=b"b", deliverTimestamp=moment).deliver_at_ms == 1_767_323_045_678
    assert message(body=b"b", deliverTimestamp=None).deliver_at_ms is None
    assert message(
        body=b"b",
        keys="a c",
        tags="t",
        properties=[("x", "1"), ("y", None)],
        shardingKey="s",
        delayLevel=3,
    ) == Message("T", b"b", "t", "a c", {"x": "1"}, sharding_key="s", delay_level=3)


def test_properties_of_rocketmq_itself_are_left_out_when_that_is_wanted() -> None:
    row: dict[str, Any] = {"body": b"b", "properties": [("UNIQ_KEY", "1"), ("x", "1")]}
    assert message(drops_reserved=True, **row).properties == {"x": "1"}
    with pytest.raises(InvalidMessageError, match="UNIQ_KEY is reserved by RocketMQ"):
        message(**row).wire_properties()


def test_a_negative_delay_level_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="its delayLevel is -1"):
        message(body=b"b", delayLevel=-1)


def test_rows_go_alone_that_come_later() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    times = pa.array([None, moment, None, moment], pa.timestamp("us", "UTC"))
    batch = pa.record_batch(
        {
            "body": ["a", "b", "c", "d"],
            "delayLevel": pa.array([0, None, 2, 1], pa.int64()),
            "deliverTimestamp": times,
        }
    )
    assert bytes(SinkRows.of(batch).columns(has_topic=True).is_alone) == b"\0\1\1\1"
    none_later = pa.record_batch({"body": ["a"], "delayLevel": [0]})
    assert SinkRows.of(none_later).columns(has_topic=True).is_alone is None
