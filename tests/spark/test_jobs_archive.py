"""Tests `orbitmq spark archive`: the files hold every message once with all columns, however often
the job is started.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message
from orbitmq.testing import LocalCluster
from support.cli.commands import Shell
from support.common.waiting import wait_until
from support.spark.messages import (
    PATIENCE_S,
    Rows,
    expected,
    group_offsets,
    messages_in,
    rows_of,
    sent,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


def archived(spark: SparkSession, folder: Path) -> Rows:
    return rows_of(spark.read.parquet(str(folder)))


@pytest.mark.short
def test_an_archive_has_every_message_once_with_all_columns_and_goes_on_where_it_was(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("orders", 2)
    mq.create_topic("payments", 1)
    sent(mq.name_server, "orders", 40, properties={"a": "b"}, tags="new")
    sent(mq.name_server, "payments", 10)
    shell, folder = Shell(mq.name_server), tmp_path / "shop"
    job = (
        "spark",
        "archive",
        "orders",
        "payments",
        "--to",
        str(folder),
        "--consumer-group",
        "archive",
    )
    planned = shell.json(*job, "--dry-run")
    assert planned == [
        {"topic": "orders", "queues": 4, "messages": 40},
        {"topic": "payments", "queues": 2, "messages": 10},
    ]
    assert not folder.exists()

    first = shell.run(*job, "--once")
    assert first.exit_code == 0, first.stderr
    assert "50 rows in, 50 out" in first.stdout.splitlines()[-1]
    sent(mq.name_server, "orders", 7, first=40)
    told = shell.run(*job, "--once", "-o", "json")
    assert told.exit_code == 0, told.stderr
    last = json.loads(told.stdout.splitlines()[-1])
    assert (last["event"], last["state"], last["sinks"][0]["rows_out"]) == ("state", "finished", 7)
    assert "finished" in shell.run(*job, "--once").stdout.splitlines()[-1]

    rows = archived(spark, folder)
    wanted = expected(mq.name_server, "orders", "payments")
    assert [
        {name: value for name, value in row.items() if name != "date"} for row in rows
    ] == wanted
    assert {row["date"] for row in rows} == {row["storeTimestamp"].date() for row in wanted}
    assert [entry.name for entry in folder.iterdir() if not entry.name.startswith("_")] == [
        f"date={rows[0]['date']}"
    ]
    queues = [message.queue for message in messages_in(mq.name_server, "orders")]
    assert None not in group_offsets(mq.name_server, "archive", queues).values()


def test_an_archive_may_begin_at_a_time_take_some_tags_and_have_folders_by_hour(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path
) -> None:
    mq.create_topic("tagged", 1)
    with Producer(mq.name_server) as producer:
        for number in range(12):
            producer.send(Message("tagged", str(number).encode(), tags=("a", "b", "c")[number % 3]))
    moment_ms = sorted(message.stored_at_ms for message in messages_in(mq.name_server, "tagged"))[5]
    job = (
        "spark",
        "archive",
        "tagged",
        "--to",
        str(tmp_path / "out"),
        "--once",
        "--from",
        f"@{moment_ms}",
        "--tags",
        "a || b",
    )
    result = Shell(mq.name_server).run(*job, "--partition-by", "hour")
    assert result.exit_code == 0, result.stderr
    wanted = [
        row
        for row in expected(mq.name_server, "tagged")
        if row["tags"] in ("a", "b")
        and row["storeTimestamp"].replace(tzinfo=UTC).timestamp() * 1000 >= moment_ms
    ]
    rows = archived(spark, tmp_path / "out")
    assert [row["msgId"] for row in rows] == [row["msgId"] for row in wanted]
    assert all(
        (row["date"], row["hour"]) == (row["storeTimestamp"].date(), row["storeTimestamp"].hour)
        for row in rows
    )


def test_what_cannot_be_archived_is_said_in_one_sentence_before_spark_starts(
    mq: LocalCluster, tmp_path: Path
) -> None:
    shell = Shell(mq.name_server)
    mq.create_topic("plain", 1)
    to = ("--to", str(tmp_path / "none"))
    assert "needs the option consumerGroup" in shell.fails(
        "spark", "archive", "plain", *to, "--from", "last"
    )
    assert "option --every='often'" in shell.fails(
        "spark", "archive", "plain", *to, "--every", "often"
    )
    assert "no route to topic nobody" in shell.fails("spark", "archive", "nobody", *to, "--dry-run")
    assert not (tmp_path / "none").exists()


@pytest.mark.timeout(900)  # two starts of Spark
def test_an_archive_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LocalCluster(topics={"stream": 2}) as mq:
        sent(mq.name_server, "stream", 200)
        shell, folder = Shell(mq.name_server), tmp_path / "stream"
        job = (
            "spark",
            "archive",
            "stream",
            "--to",
            str(folder),
            "--master",
            "local[2]",
            "--option",
            "maxOffsetsPerTrigger=20",
        )
        process = shell.process(*job, "--every", "0s")
        try:

            def two_files() -> bool:
                assert process.poll() is None, process.communicate()
                return len(list(folder.glob("date=*/*.parquet"))) >= 2

            wait_until(two_files, seconds=PATIENCE_S)
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()
        sent(mq.name_server, "stream", 20, first=200)
        result = shell.run(*job, "--once")
        assert result.exit_code == 0, result.stderr
        rows = archived(spark, folder)
        assert [
            {name: value for name, value in row.items() if name != "date"} for row in rows
        ] == expected(mq.name_server, "stream")
        assert len(rows) == 220
        assert datetime.now(UTC).date() >= rows[0]["date"]
