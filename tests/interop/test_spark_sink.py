"""Rows that the Spark sink sends to brokers of the original and to ours: in batches, alone, by key,
and later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from interop.broker_clients import Cluster
from interop.client_matrix_room import EVERY, cluster_of
from orbitmq import ReceivedMessage
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.task_sender import send_rows
from support.common.waiting import wait_until
from support.spark.messages import messages_in

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]
MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture(scope="module", params=EVERY)
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    with cluster_of(request.param, module_home / request.param) as cluster:
        cluster.make_topics({"Batches": 4, "Later": 1})
        yield cluster


def send(cluster: Cluster, batch: pa.RecordBatch, **options: str) -> None:
    parsed = SinkOptions.of({"nameServer": cluster.name_server.address, **options})
    assert send_rows(parsed, [batch], "of partition 0").sent.messages == batch.num_rows


def stored(cluster: Cluster, topic: str, count: int) -> list[ReceivedMessage]:
    """What a topic has, once that is so many: originals answer before a message is in its queue."""
    wait_until(
        lambda: len(messages_in(cluster.name_server.address, topic)) >= count,
        f"{count} messages are in their queues",
    )
    return messages_in(cluster.name_server.address, topic)


def test_batches_arrive_with_everything_that_each_row_says(cluster: Cluster) -> None:
    count = 5_000
    text = "größer 東京 🚀"
    batch = pa.record_batch(
        {
            "body": [f"{number} {text}" for number in range(count)],
            "keys": [[f"k{number}", "all"] for number in range(count)],
            "tags": [f"t{number % 3}" for number in range(count)],
            "properties": pa.array(
                [[("number", str(number)), (text, text)] for number in range(count)], MAP
            ),
            "shardingKey": [f"s{number % 7}" if number % 2 else None for number in range(count)],
        }
    )
    send(cluster, batch, topic="Batches")
    found = sorted(
        stored(cluster, "Batches", count), key=lambda message: int(message.properties["number"])
    )
    assert [message.body.decode() for message in found] == batch["body"].to_pylist()
    assert [message.keys for message in found] == [(f"k{number}", "all") for number in range(count)]
    assert [message.tags for message in found] == batch["tags"].to_pylist()
    assert [message.properties.get("__SHARDINGKEY") for message in found] == batch[
        "shardingKey"
    ].to_pylist()
    assert {message.properties[text] for message in found} == {text}
    assert len({message.msg_id for message in found}) == count
    for number in range(7):
        of_key = [
            message for message in found if message.properties.get("__SHARDINGKEY") == f"s{number}"
        ]
        assert len({message.queue for message in of_key}) == 1
        assert [message.queue_offset for message in of_key] == sorted(
            message.queue_offset for message in of_key
        )


def test_rows_come_when_they_say(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    moment = (
        None if "4.9" in request.node.name else datetime.now(UTC) + timedelta(seconds=3)
    )  # 4.9 has levels only
    batch = pa.record_batch(
        {
            "body": ["level", "time", "now"],
            "delayLevel": pa.array([2, None, 0], pa.int32()),
            "deliverTimestamp": pa.array([None, moment, None], pa.timestamp("us", "UTC")),
        }
    )
    begun_ms = datetime.now(UTC).timestamp() * 1000
    send(cluster, batch, topic="Later")
    waited = {
        message.body: message.stored_at_ms - begun_ms for message in stored(cluster, "Later", 3)
    }
    assert waited[b"level"] >= 5_000
    if moment is not None:
        assert waited[b"time"] >= 2_000
