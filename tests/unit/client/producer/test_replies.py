"""Requests and replies: which request gets which reply, and the error if none arrives."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.replies import received_reply, reply_to
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import (
    InvalidMessageError,
    RemoteUnavailableError,
    RequestTimeoutError,
    SendFailedError,
)
from orbitmq.message import hosts, properties
from orbitmq.message.compression import deflate
from orbitmq.message.flags import COMPRESSED, CompressionType
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers.send import ReplyMessageRequestHeader
from support.client.scripted_broker import (
    BROKER_NAME,
    CLUSTER,
    HOST,
    ScriptedBroker,
    Sent,
    scripted_broker,
)
from support.common.waiting import until
from support.remoting.peers import run

TIMEOUT_MS = 20_000


def received(sent: Sent) -> ReceivedMessage:
    """Return a message as its consumer receives it."""
    texts = {**sent.properties, properties.CLUSTER: CLUSTER}
    stored = StoredMessage(
        sent.header.topic,
        0,
        0,
        sent.offset,
        0,
        sent.header.sys_flag,
        1,
        HOST,
        2,
        HOST,
        0,
        0,
        sent.body,
        0,
        properties.encode(texts),
        0,
    )
    return ReceivedMessage.of(stored, BROKER_NAME)


async def request_of(broker: ScriptedBroker, number: int = 0) -> ReceivedMessage:
    """Return the request as soon as the broker has received it."""
    await until(lambda: len(broker.sent) > number)
    return received(broker.sent[number])


def test_the_reply_comes_to_whoever_asked_with_all_that_was_said() -> None:
    async def scenario() -> None:
        async with (
            scripted_broker() as broker,
            Producer(broker.address) as producer,
            Producer(broker.address) as replier,
        ):
            asking = asyncio.create_task(
                producer.request(Message("T", b"how are you?", keys="k"), timeout_ms=TIMEOUT_MS)
            )
            request = await request_of(broker)
            assert request.properties[properties.REPLY_TO_CLIENT] == producer.session.client_id
            assert request.properties[properties.TTL] == str(TIMEOUT_MS)
            large = b"fine " * 2000
            result = await replier.reply(
                request, large, tags="mood", keys=["a", "b"], properties={"weather": "sunny"}
            )
            reply = await asking
            assert (reply.body, reply.tags, reply.keys, reply.properties["weather"]) == (
                large,
                "mood",
                ("a", "b"),
                "sunny",
            )
            assert reply.topic == "cluster_REPLY_TOPIC"
            assert reply.properties[properties.ARRIVE_TIME]
            assert reply.msg_id == result.msg_id
            assert broker.push_codes == [ResponseCode.SUCCESS]
            assert len(broker.sent[1].body) < len(large)  # compressed on the wire

    run(scenario)


def test_each_producer_of_a_session_gets_its_own_replies_in_whatever_order_they_come() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker, Producer(broker.address) as replier:
            session = ClientSession(ClientSettings(name_servers=broker.address))
            async with Producer(session, group="a") as a, Producer(session, group="b") as b:
                asked = [
                    (producer, b"%s %d" % (producer.group.encode(), number))
                    for number in range(5)
                    for producer in (a, b)
                ]
                asking = [
                    asyncio.create_task(each.request(Message("T", body), timeout_ms=TIMEOUT_MS))
                    for each, body in asked
                ]
                await until(lambda: len(broker.sent) == 10)
                for sent in reversed(broker.sent[:10]):
                    await replier.reply(received(sent), sent.body.upper())
                assert [(await task).body for task in asking] == [body.upper() for _, body in asked]
                assert session.requests == {}
            await session.close()

    run(scenario)


def test_a_broker_that_lost_the_connection_is_told_again_who_waits() -> None:
    async def scenario() -> None:
        async with (
            scripted_broker() as broker,
            Producer(broker.address) as producer,
            Producer(broker.address) as replier,
        ):
            for number in range(2):
                asking = asyncio.create_task(
                    producer.request(Message("T", b"?"), timeout_ms=TIMEOUT_MS)
                )
                await replier.reply(await request_of(broker, 2 * number), b"!")
                assert (await asking).body == b"!"
                broker.clients.pop(producer.session.client_id).close("the test wants it")
                await until(lambda: not producer.session.client.connections)

    run(scenario)


def test_a_request_without_a_reply_says_that_it_was_sent_and_a_late_reply_is_taken() -> None:
    async def scenario() -> None:
        async with (
            scripted_broker() as broker,
            Producer(broker.address) as producer,
            Producer(broker.address) as replier,
        ):
            timeout_ms = 50
            while True:
                with pytest.raises(RequestTimeoutError) as raised:
                    await producer.request(Message("T", b"?"), timeout_ms=timeout_ms)
                if raised.value.was_sent:
                    break
                timeout_ms *= 2  # a busy machine took longer to send it
            assert str(raised.value).startswith(
                f"the request to topic T was sent, but no reply came within {timeout_ms} ms"
            )
            await replier.reply(await request_of(broker, -1), b"too late")
            assert broker.push_codes == [ResponseCode.SUCCESS]  # otherwise it would be sent again
            assert producer.session.requests == {}

    run(scenario)


def test_a_request_that_no_broker_took_in_time_says_that_it_was_not_sent() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker, Producer(broker.address) as producer:
            broker.answer_code = None
            with pytest.raises(
                RequestTimeoutError,
                match="was not sent, or its send was not confirmed, within 100 ms",
            ) as raised:
                await producer.request(Message("T", b"?"), timeout_ms=100)
            assert not raised.value.was_sent

    run(scenario)


def test_a_request_ends_with_its_client() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            async with Producer(broker.address) as producer:
                asking = asyncio.create_task(
                    producer.request(Message("T", b"?"), timeout_ms=TIMEOUT_MS)
                )
                await request_of(broker)
                await until(lambda: bool(producer.session.requests))
            with pytest.raises(RemoteUnavailableError):
                await asking

    run(scenario)


def test_a_reply_to_somebody_who_left_is_refused_with_the_reason() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker, Producer(broker.address) as replier:
            async with Producer(broker.address) as producer:
                with pytest.raises(RequestTimeoutError):
                    await producer.request(Message("T", b"?"), timeout_ms=50)
            with pytest.raises(SendFailedError, match="its sender is not here"):
                await replier.reply(await request_of(broker), b"!")

    run(scenario)


def test_a_client_of_a_namespace_replies_to_the_topic_of_the_cluster() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            settings = ClientSettings(name_servers=broker.address, namespace="shop")
            async with Producer(settings) as producer:
                asking = asyncio.create_task(
                    producer.request(Message("T", b"?"), timeout_ms=TIMEOUT_MS)
                )
                await producer.reply(await request_of(broker), b"!")
                await asking
            assert [sent.header.topic for sent in broker.sent] == ["shop%T", "cluster_REPLY_TOPIC"]

    run(scenario)


def a_request(**missing: None) -> ReceivedMessage:
    texts = {
        properties.CORRELATION_ID: "id",
        properties.REPLY_TO_CLIENT: "client",
        properties.TTL: "3000",
        properties.CLUSTER: CLUSTER,
    }
    kept = {name: text for name, text in texts.items() if name not in missing}
    stored = StoredMessage(
        "T", 0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, b"?", 0, properties.encode(kept), 0
    )
    return replace(ReceivedMessage.of(stored, BROKER_NAME), queue=MessageQueue("T", BROKER_NAME, 0))


def test_a_reply_carries_what_its_request_said() -> None:
    message, added = reply_to(a_request(), b"!", keys="k")
    assert message == Message("cluster_REPLY_TOPIC", b"!", keys="k")
    assert added == {
        "CORRELATION_ID": "id",
        "REPLY_TO_CLIENT": "client",
        "TTL": "3000",
        "MSG_TYPE": "reply",
    }


@pytest.mark.parametrize("name", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
def test_what_is_no_request_cannot_be_replied_to(name: str) -> None:
    with pytest.raises(
        InvalidMessageError, match=f"it has no property {name}; only messages sent with request"
    ):
        reply_to(a_request(**{name: None}), b"!")


HEADER = ReplyMessageRequestHeader(
    producer_group="g",
    topic="cluster_REPLY_TOPIC",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=0,
    sys_flag=0,
    born_timestamp=1,
    flag=7,
    born_host="127.0.0.1:4711",
    store_host="127.0.0.1:10911",
    store_timestamp=2,
    properties=properties.write({"CORRELATION_ID": "id"}),
)


@given(body=st.binary(min_size=1), kind=st.sampled_from(CompressionType), is_old=st.booleans())
def test_a_reply_is_read_however_it_is_compressed(
    body: bytes, kind: CompressionType, is_old: bool
) -> None:
    if is_old:  # clients before 4.9.4 set only the compressed flag, meaning zlib
        kind, bits = CompressionType.ZLIB, 0
    else:
        bits = kind
    found = received_reply(replace(HEADER, sys_flag=COMPRESSED | bits), deflate(body, kind), 99)
    assert (found.body, found.properties) == (body, {"CORRELATION_ID": "id", "ARRIVE_TIME": "99"})
    assert (found.born_at_ms, found.stored_at_ms, found.stored.flag) == (1, 2, 7)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("127.0.0.1:4711", hosts.pack("127.0.0.1", 4711)),
        ("/10.0.0.7:1", hosts.pack("10.0.0.7", 1)),
        ("host.example/10.0.0.7:1", hosts.pack("10.0.0.7", 1)),
        ("[::1]:4711", hosts.pack("::1", 4711)),
        ("0:0:0:0:0:0:0:1:4711", hosts.pack("::1", 4711)),
        ("unknown", hosts.pack("0.0.0.0", 0)),
        ("", hosts.pack("0.0.0.0", 0)),
    ],
)
def test_a_host_is_read_in_every_way_that_brokers_write_it(text: str, host: bytes) -> None:
    assert received_reply(replace(HEADER, born_host=text), b"!", 1).stored.born_host == host
