"""Tests streaming writes: no message is lost, however the stream is stopped, killed or repeated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from orbitmq.testing import LocalCluster
from support.spark.messages import messages_in, read_stream, sent, spark_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(topics={"from": 3}) as cluster:
        yield cluster


@pytest.fixture
def target(mq: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Create a topic for the test."""
    name = request.node.name[:100]
    mq.create_topic(name, 3)
    return str(name)


def writer_of(
    mq: LocalCluster, frame: DataFrame, target: str, checkpoint: Path
) -> DataStreamWriter:
    writer = frame.writeStream.format("rocketmq").options(nameServer=mq.name_server, topic=target)
    return writer.option("checkpointLocation", str(checkpoint))


def run(writer: DataStreamWriter) -> None:
    """Send the pending messages, and end."""
    is_done = False
    while not is_done:
        try:
            is_done = writer.trigger(availableNow=True).start().awaitTermination(200) or False
        except StreamingQueryException as problem:
            if "failed to connect back" not in str(
                problem
            ):  # Spark allows a worker ten seconds, however busy the machine is
                raise


def bodies(mq: LocalCluster, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in messages_in(mq.name_server, topic))


def test_a_query_goes_on_where_it_was_and_sends_nothing_twice(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    for round_number in range(2):
        sent(mq.name_server, "from", 60, first=60 * round_number)
        frame = read_stream(
            spark,
            mq.name_server,
            subscribe="from",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=25,
        )
        run(writer_of(mq, frame.select("body", "keys", "tags"), target, tmp_path))
        assert bodies(mq, target) == Counter(
            b"%d" % number for number in range(60 * (round_number + 1))
        )


def test_a_batch_that_is_repeated_is_sent_again_and_none_is_lost(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    mq.create_topic("source", 1)
    sent(mq.name_server, "source", 50)
    frame = read_stream(
        spark,
        mq.name_server,
        subscribe="source",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=25,
    ).select("body")
    run(writer_of(mq, frame, target, tmp_path))
    for path in (tmp_path / "commits").glob(
        "*1*"
    ):  # as if the driver had crashed before it committed the second batch
        path.unlink()
    run(writer_of(mq, frame, target, tmp_path))
    assert bodies(mq, target) == Counter(
        {b"%d" % number: 1 + (number >= 25) for number in range(50)}
    )


def test_rows_go_out_while_the_query_runs_and_it_fails_with_one_sentence(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    mq.create_topic("live", 1)
    frame = read_stream(spark, mq.name_server, subscribe="live", startingOffsets="earliest")
    doomed = frame.selectExpr("if(cast(body as string) = '3', null, body) body")
    query = writer_of(mq, doomed, target, tmp_path).start()
    try:
        sent(mq.name_server, "live", 3)
        spark_until(lambda: len(bodies(mq, target)) == 3, query)
        sent(mq.name_server, "live", 1, first=3)
        spark_until(lambda: not query.isActive)
    finally:
        query.stop()
    problem = str(query.exception())
    assert re.search(
        r"row 0 of partition 0 cannot be sent: its body is null, but a message needs a body",
        problem,
    )
    assert "Traceback" not in problem


def test_all_results_are_sent_again_in_the_output_mode_complete(
    spark: SparkSession, mq: LocalCluster, target: str, tmp_path: Path
) -> None:
    mq.create_topic("counted", 1)
    for round_number in (1, 2):
        sent(mq.name_server, "counted", 5)
        rows = read_stream(spark, mq.name_server, subscribe="counted", startingOffsets="earliest")
        counts = rows.groupBy("topic").count().selectExpr("cast(count as string) body")
        run(writer_of(mq, counts, target, tmp_path).outputMode("complete"))
        assert max(int(body) for body in bodies(mq, target)) == 5 * round_number
