"""Requests and replies of the client library by the original brokers, 5.5.0 and 4.9.7, and by ours;
with Java clients on the other side.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from interop.apache import Release
from interop.client_matrix_room import BESIDE_JAVA, cluster_of
from interop.java_peer import JavaPeer, java_peer
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import InvalidMessageError, RequestTimeoutError, SendFailedError
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from support.common.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]

TOPICS = ("ToJava", "FromJava", "Here", "Late", "Gone")
LARGE = "large body " * 2_000  # clients compress it
TIMEOUT_MS = 30_000
WITHIN_S = 60.0


class Room(NamedTuple):
    """A broker of one release, or of ours, and a Java client."""

    name_server: str
    peer: JavaPeer


@pytest.fixture(scope="module", params=BESIDE_JAVA, ids="-".join)
def room(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Room]:
    broker, java = request.param
    home = module_home / "-".join(request.param)
    with cluster_of(broker, home) as cluster:
        cluster.make_topics(dict.fromkeys(TOPICS, 2))
        with java_peer(Release(java).fetch(), home / "peer", cluster.name_server.address) as peer:
            yield Room(cluster.name_server.address, peer)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            await scenario()

    asyncio.run(main())


@asynccontextmanager
async def consuming(
    name_server: str, topic: str, listener: Callable[[ReceivedMessage], Awaitable[None]]
) -> AsyncIterator[None]:
    settings = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(name_server, f"consumers-of-{topic}", listener, settings=settings)
    consumer.subscribe(topic)
    async with consumer:
        yield


def test_a_java_consumer_replies_to_requests_from_here(room: Room) -> None:
    room.peer.do("answer", "java-repliers", "ToJava", "you said ", until="consuming")

    async def scenario() -> None:
        async with Producer(room.name_server) as producer:
            for body in ("hello", LARGE):
                reply = await producer.request(
                    Message("ToJava", body.encode()), timeout_ms=TIMEOUT_MS
                )
                assert reply.body.decode() == f"you said {body}"
                assert reply.topic == "DefaultCluster_REPLY_TOPIC"
                assert reply.stored_at_ms >= reply.born_at_ms > 0

    run(scenario)
    wait_until(
        lambda: len(room.peer.happened("answered", status="SEND_OK")) == 2,
        "the Java consumer knows that its replies arrived",
    )


def test_requests_of_a_java_producer_are_replied_to_here(room: Room) -> None:
    async def scenario() -> None:
        async with Producer(room.name_server) as producer:

            async def answer(message: ReceivedMessage) -> None:
                result = await producer.reply(
                    message, b"I heard " + message.body, keys="answer", properties={"mood": "fine"}
                )
                assert result.status is SendStatus.SEND_OK

            async with consuming(room.name_server, "FromJava", answer):
                for body in ("hello", LARGE):
                    reply = await asyncio.to_thread(
                        room.peer.do, "request", "FromJava", body, str(TIMEOUT_MS), until="replied"
                    )
                    assert reply["body"] == f"I heard {body}"
                    assert (reply["properties"]["KEYS"], reply["properties"]["mood"]) == (
                        "answer",
                        "fine",
                    )

    run(scenario)


def test_producers_of_one_session_get_the_replies_to_their_own_requests(room: Room) -> None:
    async def scenario() -> None:
        session = ClientSession(ClientSettings(name_servers=room.name_server))
        async with (
            Producer(session, group="one") as one,
            Producer(session, group="two") as two,
            Producer(session, group="replier") as replier,
        ):

            async def answer(message: ReceivedMessage) -> None:
                await replier.reply(message, message.body.upper())

            async with consuming(room.name_server, "Here", answer):
                asked = [
                    (producer, f"{producer.group} {number}")
                    for number in range(30)
                    for producer in (one, two)
                ]
                replies = await asyncio.gather(
                    *(
                        producer.request(Message("Here", body.encode()), timeout_ms=TIMEOUT_MS)
                        for producer, body in asked
                    )
                )
        assert [reply.body.decode() for reply in replies] == [body.upper() for _, body in asked]
        assert not session.requests
        await session.close()

    run(scenario)


def test_a_reply_that_comes_too_late_is_taken_and_the_next_request_is_answered(room: Room) -> None:
    async def scenario() -> None:
        was_given_up = asyncio.Event()
        late: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        async with Producer(room.name_server) as producer:

            async def answer(message: ReceivedMessage) -> None:
                if message.body == b"quickly":
                    await producer.reply(message, b"here I am")
                else:
                    await was_given_up.wait()
                    late.set_result(await producer.reply(message, b"sorry"))

            async with consuming(room.name_server, "Late", answer):
                with pytest.raises(
                    RequestTimeoutError,
                    match="to topic Late was sent, but no reply came within 500 ms",
                ) as raised:
                    await producer.request(Message("Late", b"slowly"), timeout_ms=500)
                assert raised.value.was_sent
                was_given_up.set()
                assert (await late).status is SendStatus.SEND_OK
                assert (
                    await producer.request(Message("Late", b"quickly"), timeout_ms=TIMEOUT_MS)
                ).body == b"here I am"

    run(scenario)


def test_whoever_cannot_be_replied_to_is_said_to_be_so(room: Room) -> None:
    async def scenario() -> None:
        received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        async with (
            Producer(room.name_server) as producer,
            consuming(room.name_server, "Gone", received.put),
        ):
            async with Producer(room.name_server) as requester:
                with pytest.raises(RequestTimeoutError):
                    await requester.request(Message("Gone", b"x"), timeout_ms=300)
            request = await received.get()
            with pytest.raises(SendFailedError, match="DefaultCluster_REPLY_TOPIC"):  # it has left
                await producer.reply(request, b"where are you?")
            await producer.send(Message("Gone", b"not a request"))
            with pytest.raises(InvalidMessageError, match="it has no property CORRELATION_ID"):
                await producer.reply(await received.get(), b"x")

    run(scenario)
