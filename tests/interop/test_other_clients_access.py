"""Apache's Go and C++ clients that sign, allowed and denied: by 4.9.7's `plain_acl.yml`, by 5.5.0's
users, and by ours in both styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.broker_clients import Cluster
from interop.guarded_clusters import DENIED, STYLES, guarded_cluster
from interop.other_clients import ADDON, StartClient
from orbitmq import Credentials
from support.access.people import ALICE
from support.common.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(240)]

WRONG = {
    "wrong secret": (Credentials(ALICE.access_key, "guessed-secret"), "[Cc]heck signature failed"),
    "unknown key": (
        Credentials("nobody-key", "guessed-secret"),
        "No acl config for nobody-key|User:nobody-key is not found",
    ),
    "no key": (
        None,
        "No accessKey is configured|No acl config for ,|username cannot be null",
    ),  # that for C++ signs with an empty one
}


@pytest.fixture(scope="module", params=STYLES)
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    """One that alice may use, but for one of its topics."""
    with guarded_cluster(request.param, module_home / request.param.replace(", ", "-")) as cluster:
        yield cluster


def test_whoever_signs_with_the_right_key_does_all_that_it_may(
    cluster: Cluster, start_client: StartClient, language: str
) -> None:
    with start_client(cluster.name_server.address, ALICE) as peer:
        peer.consume(f"alices-{language}", "Allowed")
        peer.consume(f"alices-in-order-{language}", "Allowed", orderly=True)
        keys = [f"{language}-single", f"{language}-größe", f"{language}-committed"]
        for key in keys[:2]:
            peer.send("Allowed", key, tag="tag", properties={"größe": "日本語 𝄞"})
        peer.transact(f"alices-deals-{language}", "Allowed", keys[2], "unknown", "commit")
        for key in keys:
            peer.wait_for("consumed", group=f"alices-{language}", key=key, body=f"body of {key}")
            peer.wait_for(
                "consumed", group=f"alices-in-order-{language}", key=key, body=f"body of {key}"
            )
        assert not peer.happened("failed")


@pytest.mark.needs("node")
@pytest.mark.parametrize("language", [ADDON], indirect=True)
def test_the_newer_cpp_client_signs_as_the_others_do(
    cluster: Cluster, start_client: StartClient
) -> None:
    with start_client(cluster.name_server.address, ALICE) as peer:
        peer.consume("alices-addon", "Allowed")
        peer.send("Allowed", "addon-single", tag="tag")
        assert peer.wait_consumed("addon-single")[0]["body"] == "body of addon-single"
        peer.order("send", topic="Denied", key="x", body="x", group="other-producers")
        assert re.search(DENIED, peer.wait_for("failed", order="send")["error"] + peer.logged())


def refuse(
    start_client: StartClient, cluster: Cluster, who: Credentials | None, topic: str, why: str
) -> None:
    """A client that sends what it may not hears why; that for C++ only writes it down."""
    with start_client(cluster.name_server.address, who) as peer:
        peer.order("send", topic=topic, key="x", body="x", group="other-producers")
        heard = peer.wait_for("failed", order="send")
        wait_until(
            lambda: re.search(why, heard["error"] + peer.logged()) is not None, f"{why} in {heard}"
        )


@pytest.mark.parametrize("who", WRONG)
def test_whoever_signs_wrongly_hears_why(
    cluster: Cluster, start_client: StartClient, who: str
) -> None:
    credentials, why = WRONG[who]
    refuse(start_client, cluster, credentials, "Allowed", why)


def test_what_somebody_may_not_do_is_refused_by_name(
    cluster: Cluster, start_client: StartClient
) -> None:
    refuse(start_client, cluster, ALICE, "Denied", DENIED)


def test_somebody_gets_nothing_of_what_is_not_for_it(
    cluster: Cluster, start_client: StartClient, language: str
) -> None:
    with start_client(cluster.name_server.address, ALICE) as peer:
        peer.consume(f"curious-{language}", "Denied")
        peer.consume(f"content-{language}", "Allowed")
        key = f"{language}-sign"
        peer.send("Allowed", key)
        peer.wait_consumed(key)
        assert {event["topic"] for event in peer.happened("consumed")} == {"Allowed"}
