"""Tests the first line of errors that users see: one sentence, without a stack trace before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from orbitmq.testing import LocalCluster
from support.spark.messages import first_line, read, read_stream, sent, spark_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_OPTIONS = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance:"
    " orbitmq.common.errors.ConfigurationError: "
)
OF_PLANNING = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions:"
    " orbitmq.common.errors."
)


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(topics={"orders": 1}) as cluster:
        sent(cluster.name_server, "orders", 3)
        yield cluster


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscribe": "orders", "startingOffset": "earliest"},
            "unknown option startingoffset; did you mean startingOffsets?",
        ),
        (
            {},
            ("no topic is selected; give one of the options subscribe, subscribePattern, assign"),
        ),
        (
            {"subscribe": "a", "assign": '{"a":{"b":[0]}}'},
            "options subscribe and assign exclude each other; give only one",
        ),
        (
            {"subscribe": "a", "maxOffsetsPerTrigger": "many"},
            "option maxOffsetsPerTrigger='many': must be a whole number of at least 1",
        ),
        (
            {"subscribe": "a", "accessKey": "me"},
            "option accessKey is given alone; give both accessKey and secretKey",
        ),
    ],
)
def test_a_wrong_option_is_told_by_load_in_one_sentence(
    spark: SparkSession, mq: LocalCluster, options: dict[str, str], sentence: str
) -> None:
    for attempt in (read, read_stream):
        with pytest.raises(PySparkException) as refused:
            attempt(spark, mq.name_server, **options)
        assert first_line(refused.value) == OF_OPTIONS + sentence
        assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscribe": "nowhere"},
            (
                "NotFoundError: no route to topic nowhere: none of the brokers (broker-a) has it;"
                " create it, or check the spelling"
            ),
        ),
        (
            {"assign": '{"orders":{"broker-a":[0,7]}}'},
            (
                "ConfigurationError: option assign names queue orders/broker-a/7, which does not"
                " exist; see orbitmq topic route orders"
            ),
        ),
        (
            {"assign": '{"orders":{"broker-x":[0]}}'},
            (
                "NotFoundError: queue orders/broker-x/0 cannot be read: broker broker-x is not"
                " registered; registered brokers: broker-a"
            ),
        ),
        (
            {"subscribe": "orders", "startingOffsets": '{"orders":{"broker-a":{"4":0}}}'},
            (
                "ConfigurationError: an offset or a time is given for queue orders/broker-a/4,"
                " which is not selected; selected queues: orders/broker-a/0"
            ),
        ),
    ],
)
def test_what_is_not_there_is_told_when_the_query_is_planned(
    spark: SparkSession, mq: LocalCluster, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        read(spark, mq.name_server, **options).count()
    assert first_line(refused.value) == OF_PLANNING + sentence
    assert "Traceback" not in str(refused.value)


def test_a_cluster_that_is_not_there_is_told_at_once(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as refused:
        read(spark, "127.0.0.1:1", subscribe="orders").count()
    assert first_line(refused.value) == (
        OF_PLANNING
        + "RemoteUnavailableError: no name server answers: cannot connect to 127.0.0.1:1:"
        " Connection refused; is a server running there?"
    )


def test_offsets_behind_the_end_are_lost_messages_unless_the_user_does_not_mind(
    spark: SparkSession, mq: LocalCluster
) -> None:
    options = {"subscribe": "orders", "endingOffsets": '{"orders":{"broker-a":{"0":9}}}'}
    with pytest.raises(PySparkException) as refused:
        read(spark, mq.name_server, **options).count()
    assert (
        "DataLossError: messages 3 to 8 of queue orders/broker-a/0 are lost: the queue now"
        " ends at 3" in first_line(refused.value)
    )
    assert read(spark, mq.name_server, failOnDataLoss="false", **options).count() == 3


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (
            "queueOffset bigint, bodi binary",
            "the schema has an unknown column bodi: did you mean body?",
        ),
        (
            "queueOffset int",
            "the schema declares queueOffset as int, but it is bigint; cast it after reading",
        ),
    ],
)
def test_a_schema_that_cannot_be_had_is_told(
    spark: SparkSession, mq: LocalCluster, schema: str, sentence: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        read(spark, mq.name_server, subscribe="orders", schema=schema).count()
    assert sentence in first_line(refused.value)


def test_a_broker_that_refuses_is_quoted(spark: SparkSession, mq: LocalCluster) -> None:
    with pytest.raises(PySparkException) as refused:
        read(spark, mq.name_server, subscribe="orders", sql92="amount >").count()
    lines = [
        line
        for line in str(refused.value).splitlines()
        if "queue orders/broker-a/0 cannot be read" in line
    ]
    assert lines, str(refused.value)
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscribe": "orders"},
            (
                "a stream from startingOffsets=latest, which is the default, needs the option"
                " consumerGroup: "
            ),
        ),
        (
            {"subscribe": "orders", "startingOffsets": "earliest", "endingOffsets": "latest"},
            "a stream has no end; use spark.read, or trigger",
        ),
        (
            {"subscribe": "nowhere", "startingOffsets": "earliest"},
            "no route to topic nowhere: none of the brokers (broker-a) has it",
        ),
        (
            {"subscribe": "orders", "startingOffsets": "earliest", "schema": "bodi binary"},
            "the schema has an unknown column bodi",
        ),
    ],
)
def test_what_a_stream_cannot_do_is_told_when_it_starts(
    spark: SparkSession, mq: LocalCluster, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    frame = read_stream(spark, mq.name_server, **options)
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    spark_until(lambda: not query.isActive)
    assert sentence in first_line(query.exception() or Exception("it did not fail"))
    assert "Traceback" not in str(query.exception())
