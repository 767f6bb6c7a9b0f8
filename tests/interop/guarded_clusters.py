"""Clusters that let in only who signs: 4.9.7 by `plain_acl.yml`, 5.5.0 by users and their rights,
ours by both; alice may use one topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.apache import Release
from interop.broker_clients import Cluster, admin
from interop.client_matrix_room import OURS, SETTINGS, cluster_of, fill, run
from orbitmq import ClientSettings, Producer
from support.access import people
from support.access.people import ALICE, OPERATOR, PLAIN_ACL
from support.common.waiting import until

_STYLES = {
    "5.5.0": "5.5.0",
    "4.9.7": "4.9.7",
    f"{OURS}, users": "5.5.0",
    f"{OURS}, accounts": "4.9.7",
}  # and the release whose style it is
STYLES = tuple(_STYLES)
DENIED = r"permission to access Topic:Denied|No default permission for topic:Denied"
USERS = {
    **people.USERS,
    "authenticationProvider": (
        "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider"
    ),
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": (
        "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider"
    ),
    "authorizationMetadataProvider": (
        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


@contextmanager
def guarded_cluster(name: str, home: Path) -> Iterator[Cluster]:
    """One that alice may use, but for one of its topics; users of ours are made by `mqadmin` of
    5.5.0, as those of the original.
    """
    release = Release(_STYLES[name]).fetch()
    home.mkdir()
    kind = name.split(",")[0]
    with cluster_of(
        kind, home, {**SETTINGS, **_guards(release, home, is_ours=kind == OURS)}
    ) as cluster:
        if release.is_5:
            _add_alice(release, home / "admin", cluster.name_server.address)
        run(lambda: _make_topics(cluster))
        yield cluster


def _guards(release: Release, home: Path, *, is_ours: bool) -> dict[str, object]:
    """What a broker is told that shall look at signatures."""
    if release.is_5:
        return {**USERS, "authConfigPath": home / "auth"}
    folder = home / "acl" if is_ours else home / "original" / "conf"
    folder.mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    return {"aclEnable": "true", **({"aclFolder": folder} if is_ours else {})}


def _add_alice(release: Release, home: Path, name_server: str) -> None:
    """Let the operator say who alice is and what she may do."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(
        f"accessKey: {OPERATOR.access_key}\nsecretKey: {OPERATOR.secret_key}\n"
    )
    with admin(release, home) as mqadmin:
        for command in (
            ("createUser", "-u", ALICE.access_key, "-p", ALICE.secret_key),
            (
                "createAcl",
                "-s",
                f"User:{ALICE.access_key}",
                "-r",
                "Topic:Allowed,Group:*",
                "-a",
                "Pub,Sub",
                "-d",
                "Allow",
            ),
        ):
            printed = mqadmin(*command, "-c", "DefaultCluster", "-n", name_server)
            assert "success" in printed, printed


async def _make_topics(cluster: Cluster) -> None:
    """By the operator's first messages to them."""
    async with Producer(
        ClientSettings(
            name_servers=cluster.name_server.address, credentials=OPERATOR, timeout_ms=15_000
        )
    ) as producer:
        for topic in ("Allowed", "Denied"):
            await fill(producer, topic, "first")
            await until(lambda topic=topic: cluster.has_route(topic))  # type: ignore[misc, arg-type]
