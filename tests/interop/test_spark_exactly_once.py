"""A topic that Spark writes to exactly once, on the real brokers and on ours: a driver that is
killed costs a Java consumer nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.broker_clients import Cluster
from interop.client_matrix_room import EVERY, SETTINGS, cluster_of, tools_of
from interop.java_peer import java_peer
from support.common.waiting import wait_until
from support.spark.faults import Command, Outcome, copy_pipeline, place_of
from support.spark.messages import messages_in, sent

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.needs("java", "maven"),
    pytest.mark.timeout(3600),
]  # eleven starts of Spark
BATCH = 50
SENT_BEFORE_EACH_KILL = 5 * BATCH
SENT_AT_LAST = 40
POINTS = {  # and at which of its occurrences
    "latestOffset": 3,
    "partitions": 3,
    "read": 3,
    "sourceCommit": 3,
    "write": 3,
    "beforeSinkCommit": 2,
    "decided": 2,
    "amongEnds": BATCH + BATCH // 2,
    "beforeDone": 2,
    "afterSinkCommit": 2,
}


@pytest.fixture(params=EVERY)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Cluster]]:
    """Whose broker asks every second about messages that are staged."""
    with cluster_of(request.param, tmp_path / "cluster", SETTINGS) as cluster:
        cluster.make_topics({"from": 2, "to": 2})
        yield request.param, cluster


def test_a_driver_that_is_killed_at_every_point_delivers_everything_once(
    cluster: tuple[str, Cluster], tmp_path: Path
) -> None:
    name, servers = cluster
    name_server = servers.name_server.address
    file = tmp_path / "copy.yaml"
    file.write_text(copy_pipeline(name_server, BATCH, "deliveryGuarantee: exactly-once"))
    command = Command(tmp_path / "command", "pipeline", "run", str(file), "--master", "local[2,4]")
    count = 0
    for point, occurrence in POINTS.items():
        sent(name_server, "from", SENT_BEFORE_EACH_KILL, first=count)
        count += SENT_BEFORE_EACH_KILL
        command.killed_at(point, occurrence)
    sent(name_server, "from", SENT_AT_LAST, first=count)
    count += SENT_AT_LAST
    command.run("--once")

    wanted = [place_of(message) for message in messages_in(name_server, "from")]
    stored = [message.body.decode() for message in messages_in(name_server, "to")]
    with java_peer(tools_of(name), tmp_path / "java", name_server) as java:
        java.do("consume", "readers", "to", until="consuming")
        wait_until(
            lambda: len(java.happened("consumed")) >= len(stored), "the Java consumer has read all"
        )
        outcome = Outcome.of(wanted, (event["body"] for event in java.happened("consumed")))
    outcome.tell(f"driver killed, exactly once, {name}", kills=len(POINTS))
    assert outcome == Outcome(attempted=count, delivered=count, lost=0, duplicated=0)
    assert sorted(stored) == sorted(wanted)
