"""The client library with brokers that let in only who signs: 4.9.7 by `plain_acl.yml`, 5.5.0 by
users and their rights, ours by both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interop.broker_clients import Cluster
from interop.client_matrix_room import (
    FROM_FIRST,
    PULLS_FROM_FIRST,
    TIMEOUT_MS,
    UNICODE,
    bodies,
    names,
    run,
)
from interop.guarded_clusters import DENIED, STYLES, guarded_cluster
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
    RequestRefusedError,
    SendFailedError,
)
from support.access.people import ALICE
from support.client.pull_consumers import polled
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]

WRONG = {
    "wrong secret": (Credentials(ALICE.access_key, "guessed-secret"), "[Cc]heck signature failed"),
    "unknown key": (
        Credentials("nobody-key", "guessed-secret"),
        "No acl config for nobody-key|User:nobody-key is not found",
    ),
    "no key": (None, "No accessKey is configured|username cannot be null"),
}


@pytest.fixture(scope="module", params=STYLES)
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    """One that alice may use, but for one of its topics."""
    with guarded_cluster(request.param, module_home / request.param.replace(", ", "-")) as cluster:
        yield cluster


def client(cluster: Cluster, credentials: Credentials | None) -> ClientSettings:
    return ClientSettings(
        name_servers=cluster.name_server.address, credentials=credentials, timeout_ms=TIMEOUT_MS
    )


def test_whoever_signs_with_the_right_key_does_all_that_it_may(
    cluster: Cluster, tmp_path: Path
) -> None:
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
        in_order = PushConsumer(
            settings, "alices-in-order", lambda _: None, settings=replace(FROM_FIRST, in_order=True)
        )
        for each in (consumer, in_order):
            each.subscribe("Allowed")
        lite = LitePullConsumer(settings, "alices-lite", settings=PULLS_FROM_FIRST)
        lite.subscribe("Allowed")
        async with Producer(settings) as producer, consumer, in_order, lite:
            await producer.send(
                Message(
                    "Allowed",
                    UNICODE.encode(),
                    UNICODE.split()[0],
                    UNICODE.split(),
                    {UNICODE: UNICODE},
                )
            )
            await producer.send(Message("Allowed", b"large " * 2_000))
            await producer.send_batch(
                [Message("Allowed", text.encode()) for text in names("batch", range(3))]
            )
            await producer.send_oneway(Message("Allowed", b"oneway"))
            await producer.send(Message("Allowed", b"again"))
            await until(lambda: len(found) == 9)  # one comes twice
            polled_here = await polled(lite, 8)
            await lite.commit()
            async with PullConsumer(settings, "alices-pulls") as puller:
                queues = await puller.queues("Allowed")
                for queue in queues:
                    await puller.pull(queue, 0)
                    await puller.update_offset(queue, 0)
                    assert await puller.fetch_offset(queue) == 0
                await until(lambda: sum(in_order.committed_offsets("Allowed").values()) == 8)
        wanted = sorted(
            ["first", UNICODE, "large " * 2_000, *names("batch", range(3)), "oneway", "again"]
        )
        assert bodies(polled_here) == wanted
        assert bodies(found) == sorted([*wanted, "again"])

    run(scenario)


@pytest.mark.parametrize("who", WRONG)
def test_whoever_does_not_hears_why_nothing_is_taken_or_given(
    cluster: Cluster, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    credentials, why = WRONG[who]
    settings = client(cluster, credentials)

    async def scenario() -> None:
        async with Producer(settings) as producer:
            with pytest.raises(SendFailedError, match=why):
                await producer.send(Message("Allowed", b"x"))
        async with PullConsumer(settings, "strangers") as puller:
            with pytest.raises(RequestRefusedError, match=why):
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
            with pytest.raises(SendFailedError, match=DENIED):
                await producer.send(Message("Denied", b"x"))
        async with PullConsumer(settings, "alices-pulls") as puller:
            with pytest.raises(RequestRefusedError, match=DENIED):
                await puller.pull(MessageQueue("Denied", "broker-a", 0), 0)

    run(scenario)
