"""Tests the format `rocketmq-commitlog` in Spark on stores of Apache brokers and of OrbitMQ; errors
are one sentence.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.message.record import decode_all
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.spark.rows import rows_in, rows_of
from support.store import golden_stores
from support.store.tools import filled, flip, golden, own_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "rocketmq-commitlog"


def rows(found: DataFrame) -> list[dict[str, Any]]:
    return sorted(
        rows_in(found.toArrow()),
        key=lambda row: (row["brokerName"], row["commitLogOffset"], row["queueOffset"]),
    )


@pytest.mark.parametrize(
    "folder", ["store-4.9.8/clean/store", "store-5.5.0/clean/store", "store-5.5.0/crash/store"]
)
def test_stores_of_real_brokers_are_read_row_for_row(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    root = golden(tmp_path, folder)
    read = (
        spark.read.format(FORMAT)
        .option("includeSystemTopics", True)
        .option("maxPartitionBytes", 30_000)
    )
    found = read.load(str(root))
    assert rows(found) == rows_of(
        (record.message for record in golden_stores.records(folder)), "golden-broker"
    )
    assert found.rdd.getNumPartitions() > 2


@pytest.mark.short
def test_a_store_of_ours_is_read_as_it_serves_its_messages(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(tmp_path / "store", 200)
    found = rows(
        spark.read.format(FORMAT)
        .option("brokerName", "b")
        .option("maxPartitionBytes", 6000)
        .load(str(tmp_path / "store"))
    )
    store = own_store(tmp_path / "store", ManualClock())
    served: list[Any] = []
    for queue_id in (0, 1):
        offset = QueueOffset(0)
        while (
            result := store.reads.get(QueueKey("Orders", queue_id), offset, count_max=32)
        ).next_offset > offset:
            served += decode_all(result.records)
            offset = result.next_offset
    store.close()
    assert found == rows_of(sorted(served, key=lambda message: message.log_offset), "b")
    assert len(found) == 200


def test_stores_of_several_brokers_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    for name, count in (("broker-a", 30), ("broker-b", 20)):
        filled(tmp_path / name, count)
    paths = [str(tmp_path / name) for name in ("broker-a", "broker-b")]
    for found in (
        spark.read.format(FORMAT).load(paths),
        spark.read.format(FORMAT).load(f"{tmp_path}/broker-*"),
    ):
        assert {
            row["brokerName"]: row["count"] for row in found.groupBy("brokerName").count().collect()
        } == {
            "broker-a": 30,
            "broker-b": 20,
        }


def test_a_schema_of_the_user_says_which_columns_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    known = filled(tmp_path / "store", 20)
    found = (
        spark.read.format(FORMAT)
        .schema("tags string, commitLogOffset long, properties map<string,string>")
        .load(str(tmp_path / "store"))
    )
    assert found.columns == ["tags", "commitLogOffset", "properties"]
    taken = sorted(found.collect(), key=lambda row: row.commitLogOffset)
    assert [row.commitLogOffset for row in taken] == known
    assert (
        [row.tags for row in taken]
        == [row.properties["TAGS"] for row in taken]
        == [f"T{number % 3}" for number in range(20)]
    )


def test_times_are_those_of_the_store_and_sql_sees_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(tmp_path / "store", 20)
    found = spark.read.format(FORMAT).load(str(tmp_path / "store"))
    stored = sorted(
        int(row[0]) for row in found.selectExpr("unix_millis(storeTimestamp)").collect()
    )
    some = (
        spark.read.format(FORMAT)
        .option("startTimestamp", stored[5])
        .option("endTimestamp", stored[9])
        .load(str(tmp_path / "store"))
    )
    assert some.count() == 4


def test_damage_fails_the_read_in_one_sentence_or_is_skipped_and_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    known = filled(tmp_path / "store")
    bad = next(offset for offset in known if offset > 5000)
    path = tmp_path / "store" / "commitlog" / f"{4096:020}"
    flip(path, bad - 4096 + 95)
    with pytest.raises(Exception, match="is corrupt at byte") as refusal:
        spark.read.format(FORMAT).load(str(tmp_path / "store")).collect()
    text = str(refusal.value)
    assert (
        f"{path} is corrupt at byte {bad - 4096} (log offset {bad}): its body does not have the"
        " checksum that was stored;" in text
    )
    assert "Traceback" not in text
    report = tmp_path / "report"
    skipping = (
        spark.read.format(FORMAT).option("onDamage", "skip").option("damageReport", str(report))
    )
    assert skipping.load(str(tmp_path / "store")).count() == len(known) - 1
    [region] = spark.read.json(str(report)).collect()
    assert (region.file, region.commitLogOffset, region.bytes) == (
        str(path),
        bad,
        known[known.index(bad) + 1] - bad,
    )


def test_a_store_that_a_broker_did_not_stop_is_read_to_its_last_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = "store-4.9.8/torn/store"
    found = (
        spark.read.format(FORMAT)
        .option("includeSystemTopics", True)
        .load(str(golden(tmp_path, folder)))
    )
    assert found.count() == len(golden_stores.records(folder))


@pytest.mark.parametrize(
    ("options", "schema", "said"),
    [
        (
            {"path": "nowhere"},
            None,
            "path nowhere does not exist: give the directory that contains commitlog/",
        ),
        ({"onDamage": "shrug"}, None, "option onDamage='shrug': must be fail or skip"),
        ({"topik": "a"}, None, "unknown option topik; did you mean topics?"),
        (
            {},
            "topik string",
            "the schema has an unknown column topik: did you mean topic?",
        ),
        (
            {},
            "body string",
            "the schema declares body as string, but it is binary; cast it after reading",
        ),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], schema: str | None, said: str
) -> None:
    filled(tmp_path / "store", 5)
    read = spark.read.format(FORMAT).options(**{"path": str(tmp_path / "store"), **options})
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as refusal:
        (read if schema is None else read.schema(schema)).load().collect()
    assert said in str(refusal.value)
    assert "Traceback" not in str(refusal.value)
    assert "at org.apache.spark" not in str(refusal.value)


def test_a_stream_and_a_write_are_refused_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(tmp_path / "store", 5)
    stream = (
        spark.readStream.format(FORMAT).load(str(tmp_path / "store")).writeStream.format("noop")
    )
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(
        Exception, match=r"rocketmq-commitlog does not support streams: use spark.read"
    ) as refusal:
        query.awaitTermination()
    assert "Traceback" not in str(refusal.value)
    rows = spark.range(1).selectExpr("'x' as body")
    with pytest.raises(
        Exception, match="rocketmq-commitlog is read-only: only the broker writes to its store"
    ) as refusal:
        rows.write.format(FORMAT).mode("append").save(str(tmp_path / "store"))
    assert "Traceback" not in str(refusal.value)
    rate = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("cast(value as string) as body")
        .writeStream.format(FORMAT)
    )
    with pytest.raises(
        Exception, match="rocketmq-commitlog is read-only: only the broker writes to its store"
    ) as refusal:
        rate.option("checkpointLocation", str(tmp_path / "other")).start(
            str(tmp_path / "store")
        ).awaitTermination()
    assert "Traceback" not in str(refusal.value)


def test_a_log_alone_and_nothing_at_all_are_read(spark: SparkSession, tmp_path: Path) -> None:
    known = filled(tmp_path / "store", 20)
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert spark.read.format(FORMAT).load(str(tmp_path / "store" / "commitlog")).count() == len(
        known
    )
    assert (
        spark.read.format(FORMAT).option("topics", "nobody").load(str(tmp_path / "store")).collect()
        == []
    )
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    assert spark.read.format(FORMAT).load(str(tmp_path / "empty")).collect() == []
