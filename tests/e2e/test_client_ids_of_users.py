"""Another user as a client that lives: neither its replies nor its queue locks are to be had by
naming its id.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from orbitmq import Credentials
from orbitmq.admin import Admin
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.bodies.clients import (
    HeartbeatData,
    LockBatchBody,
    MessageQueue,
    decode_locked_queues,
)
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.testing import LocalCluster
from support.access.people import (
    ALICE,
    OPERATOR,
    PLAIN_ACL,
    USERS,
    add_alice,
    run,
    settings,
    signed,
)
from support.broker.retries import retry_fields
from support.common.waiting import until

STYLES = {"accounts": ResponseCode.SYSTEM_ERROR, "users": ResponseCode.NO_PERMISSION}
VICTIM = "10.0.0.1@asker"
QUEUES = (MessageQueue("Allowed", "broker-a", 0), MessageQueue("Allowed", "broker-a", 1))


class Peer:
    """A connection of somebody to a broker, and the replies that come to it."""

    def __init__(
        self, client: RemotingClient, address: str, credentials: Credentials | None
    ) -> None:
        self._client, self._address, self._credentials = client, address, credentials
        self.replies: list[bytes | None] = []

    def push(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self.replies.append(request.body)
        return request.reply(ResponseCode.SUCCESS)

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        return await self._client.invoke(self._address, signed(request, self._credentials), 30_000)

    async def beat(self, client_id: str = VICTIM) -> RemotingCommand:
        return await self.ask(
            RemotingCommand(
                RequestCode.HEART_BEAT, body=HeartbeatData(client_id, ("askers",), ()).encode()
            )
        )

    async def reply(self, body: bytes) -> RemotingCommand:
        """Reply to the victim."""
        names = {"REPLY_TO_CLIENT": VICTIM, "CORRELATION_ID": "7"}
        fields = retry_fields(
            names, topic="DefaultCluster_REPLY_TOPIC", producerGroup="p", reconsumeTimes=0
        )
        texts = {name: str(value) for name, value in fields.items()}
        return await self.ask(
            RemotingCommand(RequestCode.SEND_REPLY_MESSAGE, ext_fields=texts, body=body)
        )

    async def lock(
        self, *, client_id: str = VICTIM, code: int = RequestCode.LOCK_BATCH_MQ
    ) -> RemotingCommand:
        return await self.ask(
            RemotingCommand(code, body=LockBatchBody("locks", client_id, QUEUES).encode())
        )


@asynccontextmanager
async def connected(mq: LocalCluster, credentials: Credentials | None) -> AsyncIterator[Peer]:
    clock = SystemClock()
    dispatcher = RequestDispatcher(clock)
    async with RemotingClient(
        ClientConfig(connect_timeout_ms=10_000), clock, dispatcher=dispatcher
    ) as client:
        peer = Peer(client, mq.broker_address(), credentials)
        dispatcher.register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, peer.push)
        yield peer


@pytest.fixture(params=STYLES)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, int]]:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    broker = (
        {"aclEnable": "true", "aclFolder": str(folder)}
        if request.param == "accounts"
        else dict(USERS)
    )
    with LocalCluster(broker=broker) as mq:
        if request.param == "users":

            async def prepare() -> None:
                async with Admin(settings(mq.name_server, OPERATOR)) as admin:
                    await add_alice(admin)

            run(prepare)
        yield mq, STYLES[request.param]


def test_replies_reach_the_user_whose_client_asked_and_nobody_who_takes_its_id(
    guarded: tuple[LocalCluster, int],
) -> None:
    mq, denied = guarded

    async def scenario() -> None:
        async with connected(mq, ALICE) as asker, connected(mq, OPERATOR) as thief:
            assert (await asker.beat()).code == ResponseCode.SUCCESS
            for _ in range(2):
                refused = await thief.beat()
                assert refused.code == denied
                assert f"client id {VICTIM} belongs to another user" in (refused.remark or "")
            assert (await thief.reply(b"secret")).code == ResponseCode.SUCCESS
            assert (asker.replies, thief.replies) == ([b"secret"], [])
            assert (await thief.beat("an id of its own")).code == ResponseCode.SUCCESS
            async with connected(
                mq, ALICE
            ) as again:  # the old connection may be dead, and nobody knows yet
                assert (await again.beat()).code == ResponseCode.SUCCESS
                assert (await thief.reply(b"newest")).code == ResponseCode.SUCCESS
                assert (asker.replies, again.replies) == ([b"secret"], [b"newest"])
            assert (await thief.beat()).code == denied
        async with connected(mq, OPERATOR) as thief:
            assert (await thief.beat()).code == denied, (
                "a client that lost its connection comes back for its id"
            )
            async with connected(mq, ALICE) as asker:
                assert (await asker.beat()).code == ResponseCode.SUCCESS
                leaving = RemotingCommand(
                    RequestCode.UNREGISTER_CLIENT,
                    ext_fields={"clientID": VICTIM, "producerGroup": "askers"},
                )
                assert (await asker.ask(leaving)).code == ResponseCode.SUCCESS
                assert (await thief.beat()).code == ResponseCode.SUCCESS, "it said goodbye"

    run(scenario)


def test_another_user_neither_takes_nor_gives_up_the_locks_of_a_client_nor_unregisters_it(
    guarded: tuple[LocalCluster, int],
) -> None:
    mq, denied = guarded

    async def scenario() -> None:
        async with connected(mq, ALICE) as owner, connected(mq, OPERATOR) as thief:
            async with Admin(settings(mq.name_server, OPERATOR)) as admin:
                await admin.topics.create(TopicConfig(QUEUES[0].topic))
            assert (await owner.beat()).code == ResponseCode.SUCCESS
            assert set(decode_locked_queues((await owner.lock()).body or b"")) == set(QUEUES)
            for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
                refused = await thief.lock(code=code)
                assert refused.code == denied
                assert "belongs to another user" in (refused.remark or "")
            assert decode_locked_queues((await thief.lock(client_id="another")).body or b"") == []
            leaving = RemotingCommand(
                RequestCode.UNREGISTER_CLIENT,
                ext_fields={"clientID": VICTIM, "producerGroup": "askers"},
            )
            await thief.ask(leaving)
            assert (await thief.reply(b"still there")).code == ResponseCode.SUCCESS
            assert owner.replies == [b"still there"]
            assert (await owner.lock(code=RequestCode.UNLOCK_BATCH_MQ)).code == ResponseCode.SUCCESS
            assert set(
                decode_locked_queues((await thief.lock(client_id="another")).body or b"")
            ) == set(QUEUES)

    run(scenario)


def test_without_access_control_the_newest_connection_has_the_id_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        with LocalCluster() as mq:
            async with connected(mq, None) as old, connected(mq, None) as new:
                for peer in (old, new, old):
                    assert (await peer.beat()).code == ResponseCode.SUCCESS
                assert (await old.reply(b"x")).code == ResponseCode.SUCCESS
                await until(lambda: bool(new.replies))
                assert (old.replies, new.replies) == ([], [b"x"])

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert f"client_id_moved client={VICTIM} user=- peer=" in caplog.text
