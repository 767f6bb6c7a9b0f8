"""Tests batch writes: all rows are messages when the write ends, and errors are one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import LocalCluster
from support.spark.messages import messages_in, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(
        brokers=2, topics={"T": 2, "U": 1}, broker={"autoCreateTopicEnable": "false"}
    ) as cluster:
        yield cluster


def write(mq: LocalCluster, frame: DataFrame, mode: str = "append", **options: str) -> None:
    frame.write.format("rocketmq").options(nameServer=mq.name_server, **options).mode(mode).save()


def test_every_column_of_spark_arrives(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("columns")
    frame = spark.sql(
        "select cast('größer 東京' as binary) body, array('a', 'b') keys, 'tag' tags, map('x', '1',"
        " 'y', null, 'город', 'Київ') properties, 'shard' shardingKey, 'columns' topic, 0"
        " delayLevel, cast(null as timestamp) deliverTimestamp"
    )
    write(mq, frame)
    write(
        mq,
        frame.selectExpr("cast(body as string) body", "'c' keys", "map('x', '1') properties"),
        topic="columns",
    )
    first, second = sorted(messages_in(mq.name_server, "columns"), key=lambda message: message.keys)
    assert first.body == second.body == "größer 東京".encode()
    assert (first.keys, first.tags) == (("a", "b"), "tag")
    assert {"x": "1", "город": "Київ", "__SHARDINGKEY": "shard"}.items() <= first.properties.items()
    assert "y" not in first.properties
    assert (second.keys, second.tags, second.properties["x"]) == (("c",), None, "1")


@pytest.mark.short
def test_every_row_arrives_once_from_all_partitions(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("many", 4)
    frame = spark.range(0, 30_000, 1, 5).selectExpr(
        "cast(id as string) body", "concat('k', id) keys", "concat('t', id % 3) tags"
    )
    write(mq, frame, topic="many")
    write(mq, frame.limit(0), topic="many")
    found = read(
        spark, mq.name_server, subscribe="many", schema="body binary, keys string, tags string"
    )
    bodies = found.selectExpr("cast(body as string) body", "keys", "tags")
    assert bodies.count() == 30_000
    assert bodies.exceptAll(frame).count() == 0


def test_rows_of_one_topic_go_to_another_with_their_own_properties(
    spark: SparkSession, mq: LocalCluster
) -> None:
    write(mq, spark.sql("select 'x' body, map('a', '1') properties, 'k' keys"), topic="T")
    rows = read(spark, mq.name_server, subscribe="T").select("body", "keys", "tags", "properties")
    with pytest.raises(Exception, match="is reserved by RocketMQ"):
        write(mq, rows, topic="U")
    write(mq, rows, topic="U", reservedProperties="drop")
    (before,), (after,) = (messages_in(mq.name_server, topic) for topic in ("T", "U"))
    assert (after.body, after.keys, after.properties["a"]) == (before.body, before.keys, "1")
    assert after.msg_id != before.msg_id


@pytest.mark.parametrize(
    ("sql", "options", "said"),
    [
        (
            "select 1 id",
            {"topic": "T"},
            "messages have no column id: Select only columns of topic, body, keys, tags",
        ),
        (
            "select 'x' body",
            {},
            "messages have no topic: give the option topic, or a column topic",
        ),
        ("select 'x' body", {"topik": "T"}, "unknown option topik; did you mean topic?"),
        (
            "select cast(null as string) body",
            {"topic": "T"},
            "row 0 of partition 0 cannot be sent: its body is null",
        ),
        (
            "select 'x' body",
            {"topic": "V", "requestTimeout": "300ms"},
            "a message to topic V was not sent: no route to topic V",
        ),
        (
            "select 'x' body, timestamp'2099-01-01' deliverTimestamp",
            {"topic": "T"},
            "refused a message to topic T: timer message illegal",
        ),
    ],
)
def test_what_cannot_be_written_is_told_in_one_sentence(
    spark: SparkSession, mq: LocalCluster, sql: str, options: dict[str, str], said: str
) -> None:
    frame = spark.sql(sql)
    with pytest.raises(Exception, match="Python") as failed:
        write(mq, frame, **options)
    assert said in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, mq: LocalCluster) -> None:
    with pytest.raises(Exception, match="messages of a topic cannot be replaced; use mode append"):
        write(mq, spark.sql("select 'x' body"), mode="overwrite", topic="T")
