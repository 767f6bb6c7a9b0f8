"""Dead letters that a consumer of the real brokers, or of ours, really left: what `orbitmq spark
dlq` tells of them, and the way back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.broker_clients import Cluster
from interop.client_matrix_room import EVERY, cluster_of
from orbitmq import ConsumeFromWhere, ConsumerSettings, Message, ReceivedMessage, blocking
from orbitmq.admin.dead_letters import USED_UP
from orbitmq.message import properties
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.spark import runtime
from support.cli.commands import Shell
from support.common.waiting import wait_until
from support.spark.jobs import content
from support.spark.messages import messages_in

pytestmark = [
    pytest.mark.clients,
    pytest.mark.spark,
    pytest.mark.needs("java", "maven"),
    pytest.mark.timeout(900),
]
LETTERS = "%DLQ%failing"
ONE_MORE_TRY = ConsumerSettings(
    max_attempts=1, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)


@pytest.fixture(scope="module", params=EVERY)
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    soon = {"messageDelayLevel": " ".join(["1s"] * 18)}
    with cluster_of(request.param, module_home / request.param, soon) as cluster:
        cluster.make_topics({"Orders": 2, "Payments": 1})
        yield cluster


@pytest.fixture(scope="module")
def shell(cluster: Cluster) -> Iterator[Shell]:
    spark = runtime.session("local[2]", "dead-letters", {"spark.sql.shuffle.partitions": "2"})
    yield Shell(cluster.name_server.address)
    spark.stop()


def stored(cluster: Cluster, count: int) -> list[ReceivedMessage]:
    """What both topics have, once that is so many: originals answer before a message is in its
    queue.
    """

    def read() -> list[ReceivedMessage]:
        return [
            message
            for topic in ("Orders", "Payments")
            for message in messages_in(cluster.name_server.address, topic)
        ]

    wait_until(lambda: len(read()) >= count, f"{count} messages are in their queues")
    return read()


def left(cluster: Cluster) -> list[ReceivedMessage]:
    return messages_in(cluster.name_server.address, LETTERS) if cluster.has_route(LETTERS) else []


def test_letters_of_a_consumer_that_fails_are_told_and_sent_back(
    cluster: Cluster, shell: Shell, tmp_path: Path
) -> None:
    name_server = cluster.name_server.address
    with blocking.Admin(name_server) as admin:
        admin.groups.create(GroupConfig("failing", retry_max_times=ONE_MORE_TRY.max_attempts))
    with blocking.Producer(name_server) as producer:
        for number in range(8):
            topic = "Payments" if number == 7 else "Orders"
            producer.send(
                Message(
                    topic,
                    b"letter %d" % number,
                    tags="new",
                    keys=f"k{number}",
                    properties={"source": "shop"},
                )
            )
    before = stored(cluster, 8)

    def fail(_message: ReceivedMessage) -> None:
        raise ValueError("nobody can consume that")

    consumer = blocking.PushConsumer(name_server, "failing", fail, settings=ONE_MORE_TRY)
    for topic in ("Orders", "Payments"):
        consumer.subscribe(topic)
    with consumer:
        wait_until(lambda: len(left(cluster)) == 8, "all messages are dead letters", seconds=240)
    letters = left(cluster)
    assert Counter(map(content, letters)) == Counter(map(content, before))

    (found,) = shell.json("spark", "dlq", "failing")
    kinds = [(each["origin_topic"], each["messages"], each["reason"]) for each in found["by_topic"]]
    assert kinds == [("Orders", 7, USED_UP), ("Payments", 1, USED_UP)], (
        found,
        [dict(each.properties) for each in letters],
    )
    ids = {message.properties[properties.UNIQUE_KEY] for message in before} | {
        message.offset_msg_id for message in before
    }
    assert {each["origin_id"] for each in found["sample"]} <= ids

    report = tmp_path / "report.json"
    (done,) = shell.json(
        "spark", "dlq", "failing", "redrive", "--rate", "100/s", "--report", str(report)
    )
    assert done["topics"] == {"Orders": 7, "Payments": 1}
    assert json.loads(report.read_text()) == done
    assert Counter(map(content, stored(cluster, 16))) == Counter(map(content, before + before))
