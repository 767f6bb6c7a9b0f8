"""Requests and replies of Apache's Go client by the original brokers, 5.5.0 and 4.9.7, and by ours;
its C++ client knows none.
"""

from __future__ import annotations

import asyncio

import pytest

from interop.client_matrix_room import FROM_FIRST, TIMEOUT_MS, Room, run
from interop.frames import Request, ask
from interop.other_clients import GO, StartClient
from orbitmq import Message, PushConsumer, ReceivedMessage
from support.common.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.needs("go"),
    pytest.mark.timeout(180),
    pytest.mark.parametrize("language", [GO], indirect=True),
]

LARGE = "large body " * 2_000  # clients compress it
ASKERS = "go-askers"
ASK = {"group": ASKERS, "timeoutMs": 30_000}


def test_requests_of_the_client_are_replied_to_by_another_of_it(
    room: Room, start_client: StartClient
) -> None:
    topic = room.topic("GoAsksGo", 1)
    with start_client(room.address) as asker, start_client(room.address) as replier:
        asker.send(topic, "no request", group=ASKERS)
        known = Request(204, {"producerGroup": ASKERS, "topic": topic})
        wait_until(
            lambda: ask(room.cluster.broker.address, known).code == 0,
            "the broker knows whom to bring replies to",
        )
        replier.do(
            "answer",
            "consuming",
            group="go-repliers",
            topic=topic,
            prefix="you said ",
            expression="*",
        )
        for number, body in enumerate(("hello", "größe 日本語 𝄞")):
            reply = asker.do(
                "request", "replied", topic=topic, key=f"request-{number}", body=body, **ASK
            )
            assert reply["body"] == f"you said {body}"
            assert reply["topic"] == "DefaultCluster_REPLY_TOPIC"
            replier.wait_for("answered", key=f"request-{number}")


def test_requests_of_the_client_are_replied_to_here(room: Room, start_client: StartClient) -> None:
    topic = room.topic("GoAsksUs", 1)

    async def scenario() -> None:
        async with room.producer() as producer:

            async def answer(message: ReceivedMessage) -> None:
                await producer.reply(
                    message, b"I heard " + message.body, keys="answer", properties={"mood": "fine"}
                )

            consumer = PushConsumer(room.client, "repliers-to-go", answer, settings=FROM_FIRST)
            consumer.subscribe(topic)
            async with consumer:
                for body in ("hello", LARGE):
                    reply = await asyncio.to_thread(
                        peer.do, "request", "replied", topic=topic, key="request", body=body, **ASK
                    )
                    assert reply["body"] == f"I heard {body}"
                    assert (reply["properties"]["KEYS"], reply["properties"]["mood"]) == (
                        "answer",
                        "fine",
                    )

    with start_client(room.address) as peer:
        run(scenario)


def test_the_client_replies_to_requests_from_here(room: Room, start_client: StartClient) -> None:
    topic = room.topic("WeAskGo", 1)

    async def scenario() -> None:
        async with room.producer() as producer:
            for body in ("hello", "größe 日本語 𝄞"):
                reply = await producer.request(Message(topic, body.encode()), timeout_ms=TIMEOUT_MS)
                assert reply.body.decode() == f"you said {body}"

    with start_client(room.address) as peer:
        peer.do(
            "answer",
            "consuming",
            group="go-repliers-to-us",
            topic=topic,
            prefix="you said ",
            expression="*",
        )
        run(scenario)


def test_a_request_that_nobody_replies_to_is_given_up(
    room: Room, start_client: StartClient
) -> None:
    topic = room.topic("GoAsksNobody", 1)
    with start_client(room.address) as peer:
        peer.order("request", topic=topic, key="lost", body="x", group=ASKERS, timeoutMs=500)
        assert "wait reply message timeout" in peer.wait_for("failed", order="request")["error"]
