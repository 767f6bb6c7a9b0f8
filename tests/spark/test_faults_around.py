"""Tests crashes of Python workers and brokers: files get every message once, topics at
least once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import LocalCluster
from support.spark.faults import Command, Outcome, place_of
from support.spark.messages import Collected, expected, messages_in, read_stream, sent, spark_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.crash
BATCH = 50
COUNT = 400
BOTH_SINKS = """\
name: both
source:
  format: rocketmq
  options: {{nameServer: "{name_server}", subscribe: from, startingOffsets: earliest, maxOffsetsPerTrigger: {batch}, minPartitions: 2}}
steps:
  - sql: select concat(brokerName, ' ', queueId, ' ', queueOffset) as body from input
sinks:
  - {{format: rocketmq, options: {{topic: to}}}}
  - {{format: parquet, path: rows}}
checkpoint: checkpoint
"""


ONCE = BOTH_SINKS.replace("topic: to", "topic: to, deliveryGuarantee: exactly-once").replace(
    "  - {{format: parquet, path: rows}}\n", ""
)


def bodies(mq: LocalCluster) -> list[str]:
    return [message.body.decode() for message in messages_in(mq.name_server, "to")]


def places(mq: LocalCluster) -> list[str]:
    return [place_of(message) for message in messages_in(mq.name_server, "from")]


@pytest.mark.timeout(1200)
def test_workers_that_die_leave_nothing_behind_where_rows_are_delivered_exactly_once(
    tmp_path: Path,
) -> None:
    with LocalCluster(topics={"from": 2, "to": 2}) as mq:
        sent(mq.name_server, "from", COUNT)
        file = tmp_path / "once.yaml"
        file.write_text(ONCE.format(name_server=mq.name_server, batch=BATCH))
        command = Command(
            tmp_path / "command", "pipeline", "run", str(file), "--once", "--master", "local[2,4]"
        )
        command.run(faults="read@3=worker,write@3=worker,write@6=worker")
        assert command.came_to() >= {"read-3", "write-3", "write-6"}
        outcome = Outcome.of(places(mq), bodies(mq))
    outcome.tell("workers killed, to a topic exactly once")
    assert outcome == Outcome(attempted=COUNT, delivered=COUNT, lost=0, duplicated=0)


@pytest.mark.timeout(1200)
def test_workers_that_die_reading_and_writing_are_replaced(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with LocalCluster(topics={"from": 2, "to": 2}) as mq:
        sent(mq.name_server, "from", COUNT)
        file = tmp_path / "both.yaml"
        file.write_text(BOTH_SINKS.format(name_server=mq.name_server, batch=BATCH))
        command = Command(
            tmp_path / "command", "pipeline", "run", str(file), "--once", "--master", "local[2,4]"
        )
        command.run(faults="read@3=worker,write@3=worker")
        assert command.came_to() >= {"read-3", "write-3"}
        wanted, in_topic = places(mq), bodies(mq)

    spark: SparkSession = request.getfixturevalue("spark")
    rows = [row["body"] for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    of_files, of_topic = Outcome.of(wanted, rows), Outcome.of(wanted, in_topic)
    of_files.tell("workers killed, to Parquet")
    of_topic.tell("workers killed, to a topic")
    assert of_files == Outcome(attempted=COUNT, delivered=COUNT, lost=0, duplicated=0)
    assert of_topic.lost == 0
    assert 0 < of_topic.duplicated <= 2 * BATCH  # sent by the worker that was killed in `write`


@pytest.mark.timeout(1200)
def test_a_broker_is_killed_and_started_again_under_running_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LocalCluster(topics={"from": 2, "to": 2}, processes=True) as mq:

        def stream() -> DataFrame:
            return read_stream(
                spark,
                mq.name_server,
                subscribe="from",
                startingOffsets="earliest",
                maxOffsetsPerTrigger=BATCH,
            )

        collected = Collected(spark, tmp_path / "files")
        sent(mq.name_server, "from", COUNT)
        to_files = collected.start(stream())
        copy = stream().selectExpr("concat(brokerName, ' ', queueId, ' ', queueOffset) as body")
        writer = copy.writeStream.format("rocketmq").options(nameServer=mq.name_server, topic="to")
        to_topic = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            for kill in range(2):
                spark_until(lambda: min(progress(to_files), progress(to_topic)) > 0, to_files)
                before = progress(to_files)
                mq.kill()
                mq.restart()
                sent(mq.name_server, "from", COUNT, first=COUNT * (kill + 1))
                spark_until(lambda before=before: progress(to_files) > before, to_files)  # type: ignore[misc]
            wanted = places(mq)
            spark_until(lambda: progress(to_files) >= len(wanted), to_files)
            spark_until(lambda: set(bodies(mq)) >= set(wanted), to_topic)
        finally:
            to_files.stop()
            to_topic.stop()
        of_topic = Outcome.of(wanted, bodies(mq))
        rows = collected.rows()
        assert rows == expected(mq.name_server, "from")
    found = (f"{row['brokerName']} {row['queueId']} {row['queueOffset']}" for row in rows)
    of_files = Outcome.of(wanted, found)
    of_files.tell("broker killed, to Parquet", kills=2)
    of_topic.tell("broker killed, to a topic", kills=2)
    assert of_files == Outcome(attempted=3 * COUNT, delivered=3 * COUNT, lost=0, duplicated=0)
    assert of_topic.lost == 0


def progress(query: object) -> int:
    """Return the number of rows read in finished batches."""
    return sum(each["numInputRows"] for each in query.recentProgress)  # type: ignore[attr-defined]
