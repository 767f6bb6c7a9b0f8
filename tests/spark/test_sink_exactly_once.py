"""Tests exactly-once delivery by Spark: repeated batches are delivered once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from orbitmq.testing import LocalCluster
from support.spark.messages import messages_in, read_stream, sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ONCE = {"deliveryGuarantee": "exactly-once"}


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(topics={"from": 2}) as cluster:
        sent(cluster.name_server, "from", 60)
        yield cluster


@pytest.fixture
def target(mq: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Create a topic for the test."""
    name = request.node.name[:100]
    mq.create_topic(name, 2)
    return str(name)


def bodies(mq: LocalCluster, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in messages_in(mq.name_server, topic))


ALL = Counter(b"%d" % number for number in range(60))


def run_stream(
    spark: SparkSession, mq: LocalCluster, target: str, checkpoint: Path, **options: str
) -> None:
    """Send the pending messages in three batches, and end."""
    frame = read_stream(
        spark, mq.name_server, subscribe="from", startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    writer = (
        frame.select("body", "keys")
        .writeStream.format("rocketmq")
        .options(nameServer=mq.name_server, topic=target, **ONCE, **options)
    )
    while True:
        try:
            if (
                writer.option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
                .awaitTermination(200)
            ):
                return
        except StreamingQueryException as problem:
            if "failed to connect back" not in str(
                problem
            ):  # Spark allows a worker ten seconds, however busy the machine is
                raise


@pytest.mark.short
def test_a_batch_that_spark_repeats_is_seen_once(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    run_stream(spark, mq, target, checkpoint)
    assert bodies(mq, target) == ALL
    (record,) = (path for path in (checkpoint / "transactions").iterdir() if path.is_dir())
    assert sorted(path.name for path in record.iterdir()) == [
        f"{batch}.{kind}" for batch in range(3) for kind in ("done", "parquet")
    ]

    def forget_last_batch() -> None:
        """Forget that the batch was committed, as if the driver had crashed before."""
        for path in (checkpoint / "commits").glob("*2*"):
            path.unlink()

    forget_last_batch()
    run_stream(spark, mq, target, checkpoint)
    assert bodies(mq, target) == ALL
    forget_last_batch()
    with pytest.raises(
        Exception,
        match=(f"log of this stream is in {checkpoint}/transactions, not in {tmp_path}/log"),
    ):
        run_stream(spark, mq, target, checkpoint, transactionLog=str(tmp_path / "log"))
    assert bodies(mq, target) == ALL
    rows = spark.read.parquet(str(record / "2.parquet")).select("topic", "uniqueKey").collect()
    assert {(row.topic, row.uniqueKey) for row in rows} < {
        (target, message.msg_id) for message in messages_in(mq.name_server, target)
    }


def test_a_query_that_begins_anew_sends_everything_anew(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    for checkpoint in ("first", "second"):
        run_stream(spark, mq, target, tmp_path / checkpoint, transactionLog=str(tmp_path / "log"))
    assert bodies(mq, target) == ALL + ALL
    assert len(list((tmp_path / "log").iterdir())) == 2


def write(mq: LocalCluster, frame: DataFrame, target: str, **options: str) -> None:
    frame.write.format("rocketmq").options(
        nameServer=mq.name_server, topic=target, **ONCE, **options
    ).mode("append").save()


def test_a_write_that_fails_delivers_nothing_and_again_with_its_id_everything_once(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    named = {"transactionLog": str(tmp_path / "log"), "transactionId": "orders-of-may"}
    doomed = spark.range(0, 50, 1, 2).selectExpr("if(id = 49, null, cast(id as string)) body")
    with pytest.raises(Exception, match="row 24 of partition 1 cannot be sent: its body is null"):
        write(mq, doomed, target, **named)
    assert bodies(mq, target) == {}
    for _ in range(2):
        write(mq, spark.range(0, 50, 1, 2).selectExpr("cast(id as string) body"), target, **named)
        assert bodies(mq, target) == Counter(b"%d" % number for number in range(50))
    write(
        mq,
        spark.range(50, 60).selectExpr("cast(id as string) body"),
        target,
        **named,
        transactionBatch="1",
    )
    assert bodies(mq, target) == ALL


def test_what_is_missing_is_said_before_anything_is_sent(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    with pytest.raises(
        Exception,
        match=(
            "exactly-once needs the option transactionLog: a folder visible to driver and executors"
        ),
    ):
        write(mq, spark.sql("select 'x' body"), target)
    with pytest.raises(Exception, match="option transactionId applies to batch writes only"):
        run_stream(spark, mq, target, tmp_path, transactionId="x")
    assert bodies(mq, target) == {}
