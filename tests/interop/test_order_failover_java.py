"""Java clients that take queues over from members of ours, in order: at once when these leave, when
their locks are over when they die.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.apache import Release
from interop.broker_clients import Cluster, our_cluster
from interop.client_matrix_room import JAVA_CLIENTS
from interop.java_peer import JavaPeer, java_peer
from orbitmq import Message, ReceivedMessage, blocking
from support.client.ordered_member import SETTINGS, Line, OrderedMember, check_order, of
from support.common.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(300)]

QUEUES = 4
COUNT = 400
LOCK_S_MAX = 60


@pytest.fixture(scope="module")
def cluster(module_home: Path) -> Iterator[Cluster]:
    with our_cluster(module_home / "ours") as cluster:
        yield cluster


@pytest.fixture(params=JAVA_CLIENTS)
def peer(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[JavaPeer]:
    with java_peer(
        Release(request.param).fetch(), tmp_path / "peer", cluster.name_server.address
    ) as peer:
        yield peer


def filled(cluster: Cluster, topic: str) -> str:
    cluster.make_topics({topic: QUEUES})
    with blocking.Producer(cluster.name_server.address) as producer:
        queues = producer.queues(topic)
        for number in range(COUNT):
            producer.send(Message(topic, b"%d" % number), queue=queues[number % QUEUES])
    return topic


def in_java(peer: JavaPeer, topic: str) -> list[Line]:
    return [
        Line(event["queue"], event["offset"], event["body"])
        for event in peer.happened("consumed", topic=topic)
    ]


def taken_over(peer: JavaPeer, topic: str, first: list[Line], within_s: float) -> None:
    """The Java client consumes the rest, each queue from where it was left."""

    def all_came() -> bool:
        return (
            len({(line.queue_id, line.offset) for line in [*first, *in_java(peer, topic)]}) == COUNT
        )

    wait_until(
        all_came,
        f"a Java client takes over, after {len(first)} and with {len(in_java(peer, topic))}",
        seconds=within_s,
    )
    check_order([*first, *in_java(peer, topic)], dict.fromkeys(range(QUEUES), COUNT // QUEUES))


def test_a_java_client_takes_over_when_the_locks_of_a_member_that_was_killed_are_over(
    cluster: Cluster, peer: JavaPeer
) -> None:
    topic = filled(cluster, f"Killed-{id(peer)}")
    member = OrderedMember(cluster.name_server.address, f"g-{topic}", topic)
    wait_until(lambda: len(member.lines) > COUNT // 10, "the first messages")
    member.kill()
    peer.do("consumeInOrder", f"g-{topic}", topic, until="consuming")
    taken_over(peer, topic, member.lines, 2 * LOCK_S_MAX)


def test_a_java_client_takes_over_at_once_what_a_member_gives_back(
    cluster: Cluster, peer: JavaPeer
) -> None:
    topic = filled(cluster, f"Left-{id(peer)}")
    lines: list[Line] = []

    def listener(message: ReceivedMessage) -> None:
        lines.append(of(message))

    member = blocking.PushConsumer(
        cluster.name_server.address, f"g-{topic}", listener, settings=SETTINGS
    )
    member.subscribe(topic)
    with member:
        wait_until(lambda: len(lines) > COUNT // 10, "the first messages")
    peer.do("consumeInOrder", f"g-{topic}", topic, until="consuming")
    taken_over(peer, topic, lines, LOCK_S_MAX / 2)
