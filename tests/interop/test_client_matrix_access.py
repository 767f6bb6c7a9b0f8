"""The client library with brokers that let in only who signs: 4.9.7 by `plain_acl.yml`, 5.5.0 by users and their rights, ours by both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interop.apache import Release
from interop.broker_clients import Cluster, admin, original_cluster, our_cluster
from interop.client_matrix_room import (
    FROM_FIRST,
    ORIGINALS,
    PULLS_FROM_FIRST,
    SETTINGS,
    TIMEOUT_MS,
    UNICODE,
    bodies,
    fill,
    names,
    run,
    until,
)
from orbitmq import (
    ClientSettings,
    Credentials,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RequestRefused,
    SendFailed,
)

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]

ALICE = Credentials("alice-key", "alice-secret")
OPERATOR = Credentials("operator", "operator-secret")
WRONG = {
    "wrong secret": (Credentials(ALICE.access_key, "guessed-secret"), "[Cc]heck signature failed"),
    "unknown key": (Credentials("nobody-key", "guessed-secret"), "No acl config for nobody-key|User:nobody-key is not found"),
    "no key": (None, "No accessKey is configured|username cannot be null"),
}
PLAIN_ACL = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {OPERATOR.access_key}
  secretKey: {OPERATOR.secret_key}
  admin: true
- accessKey: {ALICE.access_key}
  secretKey: {ALICE.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - Allowed=PUB|SUB
"""
USERS = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{OPERATOR.access_key}","password":"{OPERATOR.secret_key}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{OPERATOR.access_key}","secretKey":"{OPERATOR.secret_key}"}}',
    "authorizationEnabled": "true",
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
}


OUR_STYLES = {"ours, users": "5.5.0", "ours, accounts": "4.9.7"}  # and the release whose style it is
DENIED = r"permission to access Topic:Denied|No default permission for topic:Denied"


@pytest.fixture(scope="module", params=[*ORIGINALS, *OUR_STYLES])
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    """One that alice may use, but for one of its topics; users of ours are made by `mqadmin` of 5.5.0, as those of the original."""
    name: str = request.param
    release = Release(OUR_STYLES.get(name, name)).fetch()
    home = module_home / name.replace(", ", "-")
    home.mkdir()
    keys = {**SETTINGS, **guards(release, home, is_ours=name in OUR_STYLES)}
    kind = our_cluster(home, keys) if name in OUR_STYLES else original_cluster(release, home, keys)
    with kind as cluster:
        if release.is_5:
            add_alice(release, home / "admin", cluster.name_server.address)
        run(lambda: make_topics(cluster))
        yield cluster


def guards(release: Release, home: Path, *, is_ours: bool) -> dict[str, object]:
    """What a broker is told that shall look at signatures."""
    if release.is_5:
        return {**USERS, "authConfigPath": home / "auth"}
    folder = home / "acl" if is_ours else home / "original" / "conf"
    folder.mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    return {"aclEnable": "true", **({"aclFolder": folder} if is_ours else {})}


def client(cluster: Cluster, credentials: Credentials | None) -> ClientSettings:
    return ClientSettings(name_servers=cluster.name_server.address, credentials=credentials, timeout_ms=TIMEOUT_MS)


def add_alice(release: Release, home: Path, name_server: str) -> None:
    """Let the operator say who alice is and what she may do."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {OPERATOR.access_key}\nsecretKey: {OPERATOR.secret_key}\n")
    with admin(release, home) as mqadmin:
        for command in (
            ("createUser", "-u", ALICE.access_key, "-p", ALICE.secret_key),
            ("createAcl", "-s", f"User:{ALICE.access_key}", "-r", "Topic:Allowed,Group:*", "-a", "Pub,Sub", "-d", "Allow"),
        ):
            printed = mqadmin(*command, "-c", "DefaultCluster", "-n", name_server)
            assert "success" in printed, printed


async def make_topics(cluster: Cluster) -> None:
    """By the operator's first messages to them."""
    async with Producer(client(cluster, OPERATOR)) as producer:
        for topic in ("Allowed", "Denied"):
            await fill(producer, topic, "first")
            await until(lambda topic=topic: cluster.has_route(topic))  # type: ignore[misc]


def test_whoever_signs_with_the_right_key_does_all_that_it_may(cluster: Cluster, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(f"AccessKey={ALICE.access_key}\nSecretKey={ALICE.secret_key}\n")
    settings = client(cluster, Credentials.from_file(key_file))
    found: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> None:
        found.append(message)
        if message.body == b"again" and message.reconsume_times == 0:
            raise ValueError("on purpose")

    async def scenario() -> None:
        consumer = PushConsumer(settings, "alices", listener, settings=FROM_FIRST)
        in_order = PushConsumer(settings, "alices-in-order", lambda _: None, settings=replace(FROM_FIRST, in_order=True))
        for each in (consumer, in_order):
            each.subscribe("Allowed")
        lite = LitePullConsumer(settings, "alices-lite", settings=PULLS_FROM_FIRST)
        lite.subscribe("Allowed")
        async with Producer(settings) as producer, consumer, in_order, lite:
            await producer.send(Message("Allowed", UNICODE.encode(), UNICODE.split()[0], UNICODE.split(), {UNICODE: UNICODE}))
            await producer.send(Message("Allowed", b"large " * 2_000))
            await producer.send_batch([Message("Allowed", text.encode()) for text in names("batch", range(3))])
            await producer.send_oneway(Message("Allowed", b"oneway"))
            await producer.send(Message("Allowed", b"again"))
            await until(lambda: len(found) == 9)  # one comes twice
            polled: list[ReceivedMessage] = []
            while len(polled) < 8:
                polled += await lite.poll()
            await lite.commit()
            async with PullConsumer(settings, "alices-pulls") as puller:
                queues = await puller.queues("Allowed")
                for queue in queues:
                    await puller.pull(queue, 0)
                    await puller.update_offset(queue, 0)
                    assert await puller.fetch_offset(queue) == 0
                await until(lambda: sum(in_order.committed_offsets("Allowed").values()) == 8)
        wanted = sorted(["first", UNICODE, "large " * 2_000, *names("batch", range(3)), "oneway", "again"])
        assert bodies(polled) == wanted
        assert bodies(found) == sorted([*wanted, "again"])

    run(scenario)


@pytest.mark.parametrize("who", WRONG)
def test_whoever_does_not_hears_why_nothing_is_taken_or_given(cluster: Cluster, who: str, caplog: pytest.LogCaptureFixture) -> None:
    credentials, why = WRONG[who]
    settings = client(cluster, credentials)

    async def scenario() -> None:
        async with Producer(settings) as producer:
            with pytest.raises(SendFailed, match=why):
                await producer.send(Message("Allowed", b"x"))
        async with PullConsumer(settings, "strangers") as puller:
            with pytest.raises(RequestRefused, match=why):
                await puller.pull(MessageQueue("Allowed", "broker-a", 0), 0)
        consumer = PushConsumer(settings, "strangers", lambda _: None)
        consumer.subscribe("Allowed")
        async with consumer:
            assert re.search(why, str(await consumer.explain()))

    run(scenario)
    assert re.search(f"broker_not_told .*({why})", caplog.text)


def test_what_somebody_may_not_do_is_refused_by_name(cluster: Cluster) -> None:
    settings = client(cluster, ALICE)

    async def scenario() -> None:
        async with Producer(settings) as producer:
            with pytest.raises(SendFailed, match=DENIED):
                await producer.send(Message("Denied", b"x"))
        async with PullConsumer(settings, "alices-pulls") as puller:
            with pytest.raises(RequestRefused, match=DENIED):
                await puller.pull(MessageQueue("Denied", "broker-a", 0), 0)

    run(scenario)
