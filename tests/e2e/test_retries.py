"""Messages that come again, dead letters, order, requests and replies, with our own client and
brokers whose time is moved by hand.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from orbitmq import (
    ClientSession,
    ClientSettings,
    ConsumeLater,
    ConsumerSettings,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
    SendFailedError,
    SendStatus,
    Trace,
)
from orbitmq.client.consumer.listeners import Listener
from orbitmq.client.consumer.send_back import RetrySender
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.bodies.clients import LockBatchBody, decode_locked_queues
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing import LocalCluster
from support.client.library import FROM_FIRST
from support.common.waiting import until

SAFE = {"flushDiskType": "SYNC_FLUSH"}
IN_ORDER = replace(FROM_FIRST, in_order=True, retry_pause_ms=10)


def run(
    scenario: Callable[[LocalCluster], Awaitable[None]],
    broker: Mapping[str, str] | None = None,
    *,
    topics: Mapping[str, int] | None = None,
    virtual: bool = True,
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            LocalCluster(virtual_clock=virtual, topics=topics or {"T": 4}, broker=broker) as mq,
        ):
            await scenario(mq)

    asyncio.run(main())


def settings(mq: LocalCluster, instance: str = "one") -> ClientSettings:
    return ClientSettings(name_servers=mq.name_server, timeout_ms=20_000, instance_name=instance)


@asynccontextmanager
async def consuming(
    mq: LocalCluster,
    listener: Listener,
    topic: str = "T",
    *,
    how: ConsumerSettings = FROM_FIRST,
    instance: str = "one",
) -> AsyncIterator[PushConsumer]:
    consumer = PushConsumer(settings(mq, instance), "g", listener, settings=how)
    consumer.subscribe(topic)
    async with consumer:
        yield consumer


async def advance(mq: LocalCluster, seconds: float) -> None:
    await asyncio.to_thread(mq.advance, seconds)


async def advance_until(
    mq: LocalCluster, condition: Callable[[], bool], step_s: float = 1.0
) -> None:
    """Let time pass until something has come; a machine that is busy may need more of it than the
    thing itself.
    """

    async def has_come() -> bool:
        if not condition():
            await advance(mq, step_s)
        return condition()

    await until(has_come)


async def letters(mq: LocalCluster, topic: str = "%DLQ%g") -> list[ReceivedMessage]:
    """All dead letters of the group, once the name server has heard of their topic."""
    async with PullConsumer(settings(mq, "reader"), "readers") as reader:

        async def queues() -> Sequence[MessageQueue]:
            with suppress(NotFoundError):
                return await reader.queues(topic)
            return []

        (queue,) = await until(queues, f"a route to {topic}")
        found = await reader.pull(queue, 0)
        return list(found.messages)


def test_a_message_that_fails_comes_again_later_and_later_and_is_a_dead_letter_in_the_end() -> None:
    async def scenario(mq: LocalCluster) -> None:
        seen: list[ReceivedMessage] = []

        def fail(message: ReceivedMessage) -> None:
            seen.append(message)
            raise ValueError("on purpose")

        async with (
            consuming(mq, fail, how=replace(FROM_FIRST, max_attempts=3)),
            Producer(settings(mq, "p")) as producer,
        ):
            sent = await producer.send(Message("T", b"bad", "tag", "key", {"a": "b"}))
            await until(lambda: len(seen) == 1)
            for times in (2, 3, 4):
                await advance_until(mq, lambda times=times: len(seen) == times, 5)  # type: ignore[misc]
            found = await until(lambda: letters(mq), "a dead letter")
        stored_ms = [message.stored_at_ms for message in seen]
        waits_s = [(after - before) // 1000 for before, after in pairwise(stored_ms)]
        assert all(
            wait_s >= level_s for wait_s, level_s in zip(waits_s, (10, 30, 60), strict=True)
        ), waits_s
        assert [message.reconsume_times for message in seen] == [0, 1, 2, 3]
        for message in (*seen, *found):
            assert (
                message.body,
                message.msg_id,
                message.tags,
                message.keys,
                message.properties["a"],
            ) == (*(b"bad", sent.msg_id, "tag", ("key",), "b"),)
        assert [message.topic for message in seen] == ["T"] * 4
        assert (found[0].properties["RETRY_TOPIC"], found[0].reconsume_times) == ("T", 4)

    run(scenario)


def test_a_consumer_says_when_a_message_comes_again_and_others_are_not_held_up() -> None:
    async def scenario(mq: LocalCluster) -> None:
        seen: dict[bytes, list[int]] = defaultdict(list)

        def listener(message: ReceivedMessage) -> None:
            seen[message.body].append(message.reconsume_times)
            if message.body == b"later" and message.reconsume_times == 0:
                raise ConsumeLater(delay_level=1)

        async with consuming(mq, listener), Producer(settings(mq, "p")) as producer:
            for body in (b"later", b"now"):
                await producer.send(Message("T", body))
            await until(lambda: seen == {b"later": [0], b"now": [0]})
            await advance_until(mq, lambda: seen[b"later"] == [0, 1])

    run(scenario)


def test_a_message_that_was_sent_back_comes_again_also_when_the_broker_dies_before() -> None:
    async def scenario(mq: LocalCluster) -> None:
        seen: list[int] = []

        def listener(message: ReceivedMessage) -> None:
            seen.append(message.reconsume_times)
            if message.reconsume_times < 2:
                raise ValueError("on purpose")

        async with Producer(settings(mq, "p")) as producer:
            await producer.send(Message("T", b"survives"))
        async with consuming(mq, listener) as consumer:
            await until(
                lambda: 1 in consumer.committed_offsets("T").values()
            )  # then its broker took it back
        await asyncio.to_thread(mq.kill)
        await asyncio.to_thread(mq.restart)
        async with consuming(mq, listener, instance="two"):
            await advance_until(mq, lambda: 2 in seen, 10)
        assert sorted(set(seen)) == [0, 1, 2]

    run(scenario, SAFE)


def test_a_copy_that_a_consumer_sends_to_the_retry_topic_by_itself_waits_and_comes_too() -> None:
    async def scenario(mq: LocalCluster) -> None:
        seen: list[ReceivedMessage] = []
        session = ClientSession(settings(mq, "back"))
        async with (
            Producer(settings(mq, "p")) as producer,
            PullConsumer(session, "h") as puller,
            consuming(mq, seen.append),
        ):
            await producer.send(Message("T", b"again"), selector=lambda queues, _message: queues[0])
            await until(lambda: len(seen) == 1)
            (message,) = (await puller.pull((await puller.queues("T"))[0], 0)).messages
            assert await RetrySender(session, "g", -1).to_retry_topic(message)
            await advance_until(mq, lambda: len(seen) == 2)
        await session.close()
        assert (seen[1].body, seen[1].reconsume_times, seen[1].topic) == (b"again", 1, "T")
        assert seen[1].stored_at_ms - seen[0].stored_at_ms >= 10_000

    run(scenario)


# -- in order


async def queues_to_lock(mq: LocalCluster, client_id: str) -> list[MessageQueue]:
    """Which queues of the topic a client would get now."""
    body = LockBatchBody("g", client_id, (MessageQueue("T", "broker-a", 0),)).encode()
    async with RemotingClient(ClientConfig(), SystemClock()) as client:
        answer = await client.invoke(
            mq.broker_address(), RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body)
        )
        return decode_locked_queues(answer.body or b"")


def test_in_order_a_message_that_failed_often_enough_is_a_dead_letter_at_once_and_the_others_pass_in_order() -> (
    None
):
    async def scenario(mq: LocalCluster) -> None:
        seen: list[bytes] = []

        def listener(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body in (b"2", b"3"):
                raise ValueError("on purpose")

        async with Producer(settings(mq, "p")) as producer:
            for number in range(6):
                await producer.send(Message("T", b"%d" % number))
        async with consuming(mq, listener, how=replace(IN_ORDER, max_attempts=2)):
            await until(lambda: seen[-1:] == [b"5"])
            found = await letters(mq)
        assert seen == [b"0", b"1", *[b"2"] * 3, *[b"3"] * 3, b"4", b"5"]
        assert [letter.body for letter in found] == [b"2", b"3"]
        assert all(letter.properties["RETRY_TOPIC"] == "T" for letter in found)

    run(scenario, topics={"T": 1}, virtual=False)


def test_the_queues_of_a_client_that_dies_are_another_one_s_when_its_locks_are_over_and_their_order_is_kept() -> (
    None
):
    async def scenario(mq: LocalCluster) -> None:
        seen: list[tuple[str, bytes]] = []
        stuck = asyncio.Event()

        async def dies(message: ReceivedMessage) -> None:
            seen.append(("first", message.body))
            if message.body == b"3":
                await stuck.wait()

        async with Producer(settings(mq, "p")) as producer:
            for number in range(8):
                await producer.send(Message("T", b"%d" % number))
        session = ClientSession(settings(mq, "first"))
        first = PushConsumer(session, "g", dies, settings=replace(IN_ORDER, close_timeout_ms=0))
        first.subscribe("T")
        await first.start()
        await until(lambda: seen[-1:] == [("first", b"3")])
        await (
            session.client.close()
        )  # its connections are gone, and it says nothing: its queue stays locked
        async with consuming(
            mq,
            lambda message: seen.append(("second", message.body)),
            how=IN_ORDER,
            instance="second",
        ):
            await advance(mq, 30)
            assert await queues_to_lock(mq, "third") == [], "the lock of the first is not over"
            assert [who for who, _ in seen] == ["first"] * 4
            await advance_until(mq, lambda: ("second", b"7") in seen, 10)
        stuck.set()
        await first.close()
        second = [body for who, body in seen if who == "second"]
        assert second == [b"%d" % number for number in range(int(second[0]), 8)]
        assert int(second[0]) <= 3, "what was not finished comes again"

    run(scenario, topics={"T": 1})


# -- requests and replies


def test_a_request_is_replied_to_and_the_reply_is_stored_too() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with (
            Producer(settings(mq, "asks")) as asker,
            Producer(settings(mq, "replies")) as replier,
        ):
            results = []

            async def answer(message: ReceivedMessage) -> None:
                results.append(
                    await replier.reply(
                        message, b"re: " + message.body, properties={"mood": "fine"}
                    )
                )

            async with consuming(mq, answer):
                bodies = [b"%d" % number for number in range(20)]
                replies = await asyncio.gather(
                    *(asker.request(Message("T", body), timeout_ms=20_000) for body in bodies)
                )
        assert [reply.body for reply in replies] == [b"re: " + body for body in bodies]
        assert {reply.properties["mood"] for reply in replies} == {"fine"}
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        stored = await letters(mq, "DefaultCluster_REPLY_TOPIC")
        assert sorted(message.body for message in stored) == sorted(
            b"re: " + body for body in bodies
        )

    run(scenario, virtual=False)


def test_a_reply_to_a_client_that_left_is_refused_with_its_id() -> None:
    async def scenario(mq: LocalCluster) -> None:
        received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        async with Producer(settings(mq, "replies")) as replier, consuming(mq, received.put):
            async with Producer(settings(mq, "asks")) as asker:
                with pytest.raises(RequestTimeoutError):
                    await asker.request(Message("T", b"x"), timeout_ms=200)
            request = await received.get()
            with pytest.raises(SendFailedError, match=r"channel of <.*> not found. It has left"):
                await replier.reply(request, b"where are you?")

    run(scenario, virtual=False)


def test_replies_are_not_stored_when_that_is_not_wanted() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with (
            Producer(settings(mq, "asks")) as asker,
            Producer(settings(mq, "replies")) as replier,
        ):

            async def answer(message: ReceivedMessage) -> None:
                assert (await replier.reply(message, b"yes")).offset_msg_id == "0"

            async with consuming(mq, answer):
                assert (await asker.request(Message("T", b"x"), timeout_ms=20_000)).body == b"yes"
        assert await letters(mq, "DefaultCluster_REPLY_TOPIC") == []

    run(scenario, {"storeReplyMessageEnable": "false"}, virtual=False)


# -- traces


def test_traces_of_clients_come_into_the_topic_that_the_broker_has_for_them() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with Producer(settings(mq, "p")) as producer, Trace(settings(mq, "traces")) as trace:
            producer.observers.append(trace)
            sent = await producer.send(Message("T", b"traced"))
        found = await letters(mq, "RMQ_SYS_TRACE_TOPIC")
        assert any(sent.msg_id in message.keys for message in found)

    run(scenario, {"traceTopicEnable": "true"}, virtual=False)
