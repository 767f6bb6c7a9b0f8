"""Java clients of 5.5.0 and 4.9.8 that sign, by `AclClientRPCHook` and a key file: allowed and
denied by our broker, in both styles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.apache import Release
from interop.broker_clients import Cluster, our_cluster, suite
from interop.client_matrix_room import JAVA_CLIENTS, SETTINGS
from orbitmq import Credentials, Message, Producer
from orbitmq.admin import Admin
from support.access.people import ALICE, OPERATOR, PLAIN_ACL, USERS, add_alice
from support.access.people import run as run_soon
from support.access.people import settings as settings_of

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(240)]

KEYS = {"single", "batch-0", "batch-1", "oneway"}


@pytest.fixture(scope="module", params=["users", "accounts"])
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    """One of ours that alice may use, but for one of its topics."""
    folder = module_home / "acl"
    folder.mkdir(exist_ok=True)
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    keys = {
        **SETTINGS,
        **(USERS if request.param == "users" else {"aclEnable": "true", "aclFolder": folder}),
    }
    with our_cluster(module_home / request.param, keys) as cluster:

        async def prepare() -> None:
            operator = settings_of(cluster.name_server.address, OPERATOR)
            async with Admin(operator) as admin:
                if request.param == "users":
                    await add_alice(admin)
            async with Producer(operator) as producer:
                for topic in ("Allowed", "Denied"):
                    await producer.send(Message(topic, b"first", keys=["first"]))

        run_soon(prepare)
        yield cluster


def answers(
    release: str, home: Path, cluster: Cluster, who: Credentials, scenario: str
) -> dict[str, object]:
    home.mkdir(exist_ok=True)
    (home / "key").write_text(f"AccessKey={who.access_key}\nSecretKey={who.secret_key}\n")
    found: dict[str, object] = suite(
        Release(release).fetch(), home, "AccessSuite", cluster.name_server.address, scenario
    )[scenario]
    return found


@pytest.mark.parametrize("release", JAVA_CLIENTS)
def test_a_java_client_that_signs_does_all_that_it_may(
    release: str, cluster: Cluster, tmp_path: Path
) -> None:
    found = answers(release, tmp_path / "home", cluster, ALICE, "mayDo")
    for way in ("polled", "ordered", "pushed"):
        assert set(found[way]) >= KEYS, found  # type: ignore[call-overload]
    assert found["found by its id"] == "single"
    assert found["committed queues"]


@pytest.mark.parametrize("release", JAVA_CLIENTS)
def test_a_java_client_hears_what_it_may_not_do(
    release: str, cluster: Cluster, tmp_path: Path
) -> None:
    found = answers(release, tmp_path / "home", cluster, ALICE, "mayNot")
    assert found.keys() == {"send", "batch", "pull"}
    for answer in found.values():
        assert isinstance(answer, dict)
        assert answer["code"] in (1, 16), found
        assert "Denied" in answer["remark"], found


@pytest.mark.parametrize("release", JAVA_CLIENTS)
def test_a_java_client_with_a_wrong_key_hears_that_it_is_wrong(
    release: str, cluster: Cluster, tmp_path: Path
) -> None:
    found = answers(
        release,
        tmp_path / "home",
        cluster,
        Credentials(ALICE.access_key, "guessed-it"),
        "isUnknown",
    )
    assert "heck signature failed" in str(found["send"]), found
