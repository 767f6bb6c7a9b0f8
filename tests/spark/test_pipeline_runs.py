"""Tests pipelines from a cluster to topics, tables and consoles against a computation in plain
Python.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.pipeline.problems import PipelineFailedError
from orbitmq.spark.pipeline.status import State, StatusFile
from orbitmq.testing import LocalCluster
from support.spark.messages import messages_in
from support.spark.pipelines import (
    BEGIN,
    MINUTE,
    Order,
    Seen,
    figures,
    figures_in,
    pipeline_in,
    ran,
    send,
    some_orders,
    watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
ORDERS = """\
name: {topic}-per-minute
source: {{format: rocketmq, options: {{nameServer: "{name_server}", subscribe: {topic}, startingOffsets: earliest}}}}
steps:
  - json: {{schema: "id string, shop string, amount double, at timestamp", malformed: drop}}
  - filter: amount > 0
  - dedup: {{key: id, within: 10 minutes}}
  - window: {{time: at, watermark: 1 minute, size: 1 minute, groupBy: [shop], aggregate: {{total: sum(amount), orders: count(*)}}}}
  - sql: select shop, window.start as minute, round(total, 2) as total, orders from input
sinks:
  - {{format: rocketmq, options: {{topic: {topic}-per-minute}}}}
  - {{format: parquet, path: out/figures, partitionBy: [date]}}
trigger: {{availableNow: true}}
checkpoint: out/checkpoint
"""
ARCHIVE = """\
name: archive
source:
  format: rocketmq
  options: {{nameServer: "{name_server}", subscribe: {topic}, startingOffsets: earliest, maxOffsetsPerTrigger: 40}}
sinks: [{{format: parquet, path: out/archive, partitionBy: [topic, date]}}]
trigger: {{availableNow: true}}
checkpoint: out/checkpoint
"""


@pytest.fixture
def cluster(mq_session: LocalCluster) -> LocalCluster:
    return mq_session


@pytest.mark.short
def test_figures_of_orders_in_a_topic_and_in_a_table_are_those_of_plain_python(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    for topic in ("orders", "orders-per-minute"):
        cluster.create_topic(topic)
    orders = some_orders(300, seed=1)
    send(cluster.name_server, "orders", [*(order.body() for order in orders), b"no JSON", b"{}"])
    status = ran(
        pipeline_in(tmp_path, ORDERS.format(topic="orders", name_server=cluster.name_server))
    )
    expected = figures(orders, until=watermark(orders))
    assert len(expected) > 20
    in_topic = figures_in(cluster.name_server, "orders-per-minute")
    assert len(in_topic) == len(expected)
    assert dict(in_topic) == expected
    rows = spark.read.parquet(str(tmp_path / "out/figures")).collect()
    assert {row["date"] for row in rows} == {BEGIN.date()}
    assert {
        (row["shop"], row["minute"].replace(tzinfo=UTC)): (row["total"], row["orders"])
        for row in rows
    } == expected
    assert len(rows) == len(expected)
    assert status.state is State.FINISHED
    assert [(sink.rows_in, sink.rows_out) for sink in status.sinks] == [
        (len(orders) + 2, len(expected))
    ] * 2
    assert {sink.last.lag for sink in status.sinks if sink.last is not None} == {0}


def test_a_run_goes_on_where_the_last_one_was(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("moved")
    pipeline = pipeline_in(tmp_path, ARCHIVE.format(topic="moved", name_server=cluster.name_server))
    send(cluster.name_server, "moved", [b"%d" % number for number in range(100)])
    first = Seen()
    assert ran(pipeline, first).state is State.FINISHED
    assert len(first.batches) > 1
    send(cluster.name_server, "moved", [b"%d" % number for number in range(100, 150)])
    assert ran(pipeline).sinks[0].rows_in == 50
    assert ran(pipeline).sinks[0].rows_in == 0
    archived = Counter(
        bytes(row["body"]) for row in spark.read.parquet(str(tmp_path / "out/archive")).collect()
    )
    assert archived == Counter(b"%d" % number for number in range(150))

    table = (
        "source: {format: parquet, path: out/archive}\nsteps: [{sql: 'select queueId, count(*) as"
        " messages from input group by queueId'}]"
    )
    report = pipeline_in(
        tmp_path,
        f"name: report\n{table}\nsinks: [{{format: console}}, {{format: parquet, path:"
        " out/report}]\n",
    )
    seen = Seen()
    found = ran(report, seen)
    assert (found.state, [sink.rows_out for sink in found.sinks]) == (
        State.FINISHED,
        [len(seen.shown)] * 2,
    )
    assert sum(messages for _, messages in seen.shown) == 150
    with pytest.raises(
        PipelineFailedError,
        match=r"pipeline\.yaml:4: sink parquet-report: Path file:.*out/report already exists",
    ):
        ran(report)
    failed = StatusFile(report.status_file).read()
    assert failed is not None
    assert failed.state is State.FAILED


def test_repeats_are_dropped_for_longer_than_windows_stay_open(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    for topic in ("repeated", "repeated-per-minute"):
        cluster.create_topic(topic)
    pipeline = pipeline_in(
        tmp_path,
        ORDERS.format(topic="repeated", name_server=cluster.name_server),
        "sinks=[{format: console}]",
    )
    seen = Seen()
    # minutes: each window closes a minute later, and a duplicate arrives after that
    runs = [
        [Order("a", "x", 1.0, BEGIN), Order("b", "x", 2.0, BEGIN + 3 * MINUTE)],
        [Order("a", "x", 1.0, BEGIN + 4 * MINUTE), Order("c", "x", 4.0, BEGIN + 6 * MINUTE)],
        [Order("b", "x", 2.0, BEGIN + 8 * MINUTE), Order("d", "x", 8.0, BEGIN + 9 * MINUTE)],
        [Order("e", "x", 9.0, BEGIN + 20 * MINUTE)],
        [
            Order("a", "x", 1.0, BEGIN + 30 * MINUTE),
            Order("f", "x", 9.0, BEGIN + 40 * MINUTE),
        ],  # long enough after
    ]
    for orders in runs:
        send(cluster.name_server, "repeated", (order.body() for order in orders))
        ran(pipeline, seen)
    found = {minute.replace(tzinfo=UTC): (total, count) for _, minute, total, count in seen.shown}
    assert found == {
        BEGIN + minute * MINUTE: (total, 1)
        for minute, total in ((0, 1.0), (3, 2.0), (6, 4.0), (9, 8.0), (20, 9.0), (30, 1.0))
    }
    assert len(seen.shown) == 6


def test_updates_show_windows_that_are_still_open(cluster: LocalCluster, tmp_path: Path) -> None:
    for topic in ("live", "live-per-minute"):
        cluster.create_topic(topic)
    text = ORDERS.format(topic="live", name_server=cluster.name_server)
    pipeline = pipeline_in(
        tmp_path,
        text,
        "sinks=[{format: rocketmq, mode: update, options: {topic: live-per-minute}}]",
    )
    orders = some_orders(50, seed=3, minutes=3)
    send(cluster.name_server, "live", (order.body() for order in orders))
    assert ran(pipeline).sinks[0].rows_out == len(figures(orders))
    assert dict(figures_in(cluster.name_server, "live-per-minute")) == figures(orders)


def test_updates_are_sent_once_where_that_is_asked_for(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for topic in ("once", "once-per-minute"):
        cluster.create_topic(topic)
    orders = some_orders(50, seed=5)
    send(cluster.name_server, "once", [order.body() for order in orders])
    sink = (
        "sinks=[{format: rocketmq, mode: update, options: {topic: once-per-minute,"
        " deliveryGuarantee: exactly-once}}]"
    )
    pipeline = pipeline_in(
        tmp_path, ORDERS.format(topic="once", name_server=cluster.name_server), sink
    )
    ran(pipeline)
    before = figures_in(cluster.name_server, "once-per-minute")
    assert before
    for path in (tmp_path / "out/checkpoint").glob(
        "*/commits/*"
    ):  # as if it had crashed before Spark committed the batch
        path.unlink()
    ran(pipeline)
    assert figures_in(cluster.name_server, "once-per-minute") == before


def test_messages_that_are_let_through_go_on_as_they_were(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for topic in ("all", "big"):
        cluster.create_topic(topic)
    orders = some_orders(40, seed=4)
    send(cluster.name_server, "all", (order.body() for order in orders))
    text = f"""\
name: big
source:
  format: rocketmq
  options: {{nameServer: "{cluster.name_server}", subscribe: all, startingOffsets: earliest, consumerGroup: big}}
steps:
  - json: {{schema: "amount double"}}
  - filter: amount >= 100
sinks: [{{format: rocketmq, options: {{topic: big}}}}]
checkpoint: out/checkpoint
"""
    seen = Seen(stop_after=1)
    status = ran(pipeline_in(tmp_path, text), seen)
    assert status.state is State.STOPPED  # the finished batch was the last one
    big = [order for order in orders if order.amount >= 100]
    found = messages_in(cluster.name_server, "big")
    assert sorted(message.body for message in found) == sorted(order.body() for order in big)
    assert {(message.properties["KEYS"], message.properties["TAGS"]) for message in found} == {
        ("key", "new")
    }


def test_a_store_is_read_without_its_broker(tmp_path: Path) -> None:
    with LocalCluster(topics={"kept": 2}, broker={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        send(cluster.name_server, "kept", [b"%d" % number for number in range(30)])
        cluster.stop_broker()
        text = f"""\
name: report
source: {{format: rocketmq-commitlog, path: "{cluster.store()}"}}
steps:
  - dedup: {{key: body, within: 1 day}}
  - window: {{time: storeTimestamp, size: 1 day, groupBy: [topic, queueId], aggregate: {{messages: count(*)}}}}
sinks: [{{format: console}}]
"""
        seen = Seen()
        assert ran(pipeline_in(tmp_path, text), seen).state is State.FINISHED
    assert Counter({(topic, queue): messages for _, topic, queue, messages in seen.shown}) == {
        ("kept", 0): 15,
        ("kept", 1): 15,
    }


def test_a_source_that_cannot_be_read_ends_the_pipeline_with_a_sentence(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    pipeline = pipeline_in(
        tmp_path, ARCHIVE.format(topic="missing", name_server=cluster.name_server)
    )
    with pytest.raises(
        PipelineFailedError, match=r"pipeline\.yaml:\d+: source: .*missing"
    ) as caught:
        ran(pipeline)
    assert "\n" not in str(caught.value)
    status = StatusFile(pipeline.status_file).read()
    assert status is not None
    assert (status.state, status.problem) == (State.FAILED, str(caught.value))


def test_a_text_that_is_no_json_can_end_the_pipeline(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.create_topic("strict")
    send(cluster.name_server, "strict", [b"no JSON"])
    text = ORDERS.format(topic="strict", name_server=cluster.name_server)
    pipeline = pipeline_in(
        tmp_path, text, "steps.0.json.malformed=fail", "sinks=[{format: console}]"
    )
    with pytest.raises(
        PipelineFailedError,
        match=r"^sink console: Malformed records are detected in record parsing",
    ) as caught:
        ran(pipeline)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_two_runs_at_the_same_time_are_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, ARCHIVE.format(topic="twice", name_server=cluster.name_server))
    file = StatusFile(pipeline.status_file)
    file.acquire()
    with pytest.raises(Exception, match="the pipeline is already running"):
        ran(pipeline)
    file.release()
