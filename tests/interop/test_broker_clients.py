"""The real Java client, 5.5.0 and 4.9.7, does the same things with the original 5.5.0 broker and
with ours, and gets the same answers.

The programs in `java/` print what their client saw, without ids, times and addresses. Where a
broker refuses, codes are compared and not remarks: ours say what to do instead.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop import subject
from interop.apache import Release
from interop.broker_clients import Cluster, clusters, our_cluster, suite
from interop.frames import Request, ask

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(400)]

SENDS = ("sync", "made", "async", "oneway", "batch", "bodies", "pull", "lookup", "refused")
CONSUMES = ("tags", "orderly", "broadcast", "liteSubscribe", "liteAssign", "rebalance", "begins")
QUEUE_COUNTS = {
    **dict.fromkeys(
        (
            "Sync",
            "Async",
            "Oneway",
            "Batch",
            "Bodies",
            "Pull",
            "Lookup",
            "Refused",
            "Tags",
            "Orderly",
            "Broadcast",
            "Lite",
        ),
        4,
    ),
    **{"Assign": 4, "Shared": 8, "Begins": 1},
}


class Seen(NamedTuple):
    """What the client of one release saw, scenario by scenario."""

    original: dict[str, Any]
    ours: dict[str, Any]


@pytest.fixture(scope="module", params=[pytest.param("5.5.0", marks=pytest.mark.short), "4.9.7"])
def seen(request: pytest.FixtureRequest, apache_5: Release, module_home: Path) -> Iterator[Seen]:
    """All scenarios, with the client of each release in turn; both brokers work at the same
    time.
    """
    release = Release(request.param).fetch()
    home = module_home / release.version

    def run(cluster: Cluster, name: str) -> dict[str, Any]:
        cluster.make_topics(QUEUE_COUNTS)
        address = cluster.name_server.address
        sent = suite(release, home / f"{name}-sends", "ClientSuite", address, *SENDS)
        return sent | suite(release, home / f"{name}-consumes", "ConsumerSuite", address, *CONSUMES)

    with clusters(apache_5, home) as both, ThreadPoolExecutor(2) as threads:
        yield Seen(*threads.map(run, both, ("original", "ours")))


def comparable(answer: Any) -> Any:
    """An answer without the words of a refusal."""
    return (
        {**answer, "remark": bool(answer["remark"])}
        if isinstance(answer, dict) and answer.keys() == {"code", "remark"}
        else answer
    )


@pytest.mark.parametrize("scenario", [*SENDS, *CONSUMES])
def test_the_client_sees_the_same(seen: Seen, scenario: str) -> None:
    original, ours = (
        {name: comparable(answer) for name, answer in side[scenario].items()} for side in seen
    )
    assert ours == original


def test_every_message_arrives_whole(seen: Seen) -> None:
    found = [message for queue in range(4) for message in seen.ours["sync"][f"queue {queue}"]]
    assert sorted(message["key"] for message in found) == sorted(
        [*(f"sync-{n}" for n in range(10)), "one two three", "none"]
    )
    assert [f"SEND_OK {message['body']}" for message in seen.ours["bodies"]["found"]] == seen.ours[
        "bodies"
    ]["sent"]
    assert seen.ours["bodies"]["found"][3]["body"].startswith("100000 bytes")
    assert [message["key"] for message in seen.ours["batch"]["found"]] == [
        *(f"batch-{n}" for n in range(7)),
        "batch-0",
    ]
    assert (seen.ours["async"]["kept"], seen.ours["oneway"]["kept"]) == (30, 20)


def test_every_consumer_gets_what_it_should(seen: Seen) -> None:
    assert len(seen.ours["tags"]["*"]) == 30
    assert seen.ours["tags"]["tag1"] == sorted(f"tags-{n}" for n in range(1, 30, 3))
    assert seen.ours["orderly"]["queues"] == {
        f"queue {q}": [f"orderly-{n}" for n in range(q, 60, 4)] for q in range(4)
    }
    everything = sorted(f"broadcast-{n}" for n in range(20))
    assert seen.ours["broadcast"] == {"consumer 0": everything, "consumer 1": everything}
    assert seen.ours["liteSubscribe"]["polled after the commit"] == ["after"]
    assert seen.ours["rebalance"] == {"by three": 80, "by two": 40, "everybody got some": True}


def test_codes_of_other_rooms_are_refused_in_words(tmp_path: Path) -> None:
    with our_cluster(tmp_path) as ours:
        for code in (200050, 200051, 200053, 400, 9999):
            answer = ask(ours.broker.address, Request(code, {"consumerGroup": "g", "topic": "t"}))
            assert subject.IS_ORIGINAL or answer.code == 3, answer
            assert answer.remark, answer


def test_a_group_goes_on_where_it_was_after_its_broker_was_stopped_or_killed(
    release: Release, tmp_path: Path
) -> None:
    with our_cluster(tmp_path / "servers") as ours:
        ours.make_topics({"GoOn": 1})
        for count, ending in enumerate((signal.SIGTERM, signal.SIGKILL, None)):
            got = suite(
                release,
                tmp_path / f"client-{count}",
                "ConsumerSuite",
                ours.name_server.address,
                "goOn",
            )["goOn"]["got"]
            assert got == [f"on-from-{10 * count}-{n}" for n in range(10)]
            if ending is not None:
                ours.broker.send_signal(ending)
                ours.broker.wait_ended()
                ours.broker.start()
                ours.broker.wait_ready()
                ours.wait_registered()
                ours.make_topics({"GoOn": 1})
