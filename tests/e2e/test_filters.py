"""Messages chosen by SQL92 expressions, with our client and our broker: subscriptions, waits, new
versions, restarts, refusals.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from orbitmq import (
    SQL92,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RequestRefusedError,
)
from orbitmq.client.consumer.push_consumer import ConsumerSettings
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.clients import ConsumerData, HeartbeatData
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import RemotingClient
from orbitmq.testing import LocalCluster
from support.broker.process import pull_request, send_request
from support.common.waiting import until
from support.embedded.local_cluster import asked

FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


def run(scenario: Callable[[LocalCluster], Awaitable[None]], **broker: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), LocalCluster(topics={"T": 1}, broker=broker) as mq:
            await scenario(mq)

    asyncio.run(main())


async def send(mq: LocalCluster, **bodies: int) -> None:
    """Messages that have their size as a property."""
    async with Producer(mq.name_server) as producer:
        for body, size in bodies.items():
            await producer.send(Message("T", body.encode(), properties={"size": str(size)}))


def known_filters(mq: LocalCluster) -> dict[str, tuple[str, bool]]:
    """What the broker's file says of the groups that filter topic T: their expressions, and whether
    they are dead.
    """
    file = mq.store() / "config" / "consumerFilter.json"
    topics = json.loads(file.read_text())["filterDataByTopic"] if file.exists() else {}
    groups = topics.get("T", {}).get("groupFilterData", {})
    return {name: (data["expression"], data["dead"]) for name, data in groups.items()}


def test_a_consumer_gets_what_its_expression_is_true_of_old_and_new() -> None:
    async def scenario(mq: LocalCluster) -> None:
        found: list[bytes] = []
        await send(mq, a=1, b=2, c=3)
        consumer = PushConsumer(
            mq.name_server, "g", lambda message: found.append(message.body), settings=FROM_FIRST
        )
        consumer.subscribe("T", "size >= 2 AND size <> 4", SQL92)
        async with consumer:
            await until(lambda: len(found) == 2)
            await send(mq, d=4, e=5)
            await until(lambda: len(found) == 3)
        assert found == [b"b", b"c", b"e"]

    run(scenario)


def test_pulls_that_wait_are_answered_by_the_messages_that_their_expressions_are_true_of() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with PullConsumer(mq.name_server, "g") as puller:
            (queue,) = await puller.queues("T")

            async def first(expression: str) -> bytes:
                at = 0
                while True:
                    result = await puller.pull(queue, at, expression, timeout_ms=30_000, kind=SQL92)
                    if result.messages:
                        return result.messages[0].body
                    at = result.next_offset

            high, low = (
                asyncio.create_task(first(expression)) for expression in ("size > 2", "size = 1")
            )
            await send(mq, a=1)
            assert await low == b"a"
            assert not high.done()
            await send(mq, b=2, c=3)
            assert await high == b"c"

    run(scenario)


def test_a_group_that_subscribes_anew_gets_messages_by_its_new_expression() -> None:
    async def scenario(mq: LocalCluster) -> None:
        found: list[bytes] = []
        consumer = PushConsumer(
            mq.name_server, "g", lambda message: found.append(message.body), settings=FROM_FIRST
        )
        consumer.subscribe("T", "size < 10", SQL92)
        async with consumer:
            await send(mq, a=1, b=20)
            await until(lambda: found == [b"a"])
            await until(lambda: known_filters(mq) == {"g": ("size < 10", False)})
            consumer.subscribe("T", "size > 5", SQL92)
            await until(lambda: known_filters(mq) == {"g": ("size > 5", False)})
            await send(mq, c=7)  # which a pull that waits since before wants as well
            await until(lambda: found == [b"a", b"c"])
            await send(mq, d=4, e=40)
            await until(lambda: len(found) == 3)
        assert found == [b"a", b"c", b"e"]
        await until(lambda: known_filters(mq) == {"g": ("size > 5", True)})

    run(scenario)


@pytest.mark.parametrize("end", [LocalCluster.stop_broker, LocalCluster.kill])
def test_filters_outlive_the_broker(end: Callable[[LocalCluster], None]) -> None:
    async def scenario(mq: LocalCluster) -> None:
        found: list[bytes] = []
        consumer = PushConsumer(
            mq.name_server, "g", lambda message: found.append(message.body), settings=FROM_FIRST
        )
        consumer.subscribe("T", "size > 2", SQL92)
        async with consumer:
            await send(mq, a=1, b=3)
            await until(lambda: found == [b"b"])
            await until(lambda: known_filters(mq) == {"g": ("size > 2", False)})
            await asyncio.to_thread(end, mq)
            await asyncio.to_thread(mq.restart)
            await send(mq, c=1, d=3)
            await until(lambda: b"d" in found)
        assert set(found) == {b"b", b"d"}
        assert known_filters(mq).keys() == {"g"}

    run(scenario, flushDiskType="SYNC_FLUSH")


def test_a_wrong_expression_is_refused_with_what_stands_where_and_nothing_is_delivered() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, a=1)
        async with PullConsumer(mq.name_server, "g") as puller:
            (queue,) = await puller.queues("T")
            with pytest.raises(
                RequestRefusedError,
                match=r"at column 8: found `>`, expected a property, a number, a text",
            ) as refused:
                await puller.pull(queue, 0, "size > > 3", kind=SQL92)
        assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        consumer = PushConsumer(mq.name_server, "g2", lambda _message: None)
        consumer.subscribe("T", "size >", SQL92)
        with pytest.raises(
            RequestRefusedError, match=r"at column 7: found the end of the expression"
        ):
            await consumer.start()
        await consumer.close()

    run(scenario)


def test_a_broker_that_does_not_filter_says_by_which_key_it_would() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with PullConsumer(mq.name_server, "g") as puller:
            (queue,) = await puller.queues("T")
            with pytest.raises(RequestRefusedError, match="enablePropertyFilter=true") as refused:
                await puller.pull(queue, 0, "size > 3", kind=SQL92)
        assert refused.value.code == ResponseCode.SYSTEM_ERROR

    run(scenario, enablePropertyFilter="false")


@pytest.mark.parametrize("bits", ["true", "false"])
def test_bits_in_ext_files_change_nothing_of_what_a_group_gets(bits: str) -> None:
    async def scenario(mq: LocalCluster) -> None:
        found: dict[str, list[bytes]] = {"low": [], "high": []}

        def listener(group: str) -> Callable[[ReceivedMessage], None]:
            return lambda message: found[group].append(message.body)

        consumers = {
            group: PushConsumer(mq.name_server, group, listener(group), settings=FROM_FIRST)
            for group in found
        }
        consumers["low"].subscribe("T", "size < 3 OR size IS NULL", SQL92)
        consumers["high"].subscribe("T", "size >= 3 OR size IS NULL", SQL92)
        await send(mq, a=1, b=3)
        async with consumers["low"], consumers["high"]:
            await until(lambda: found == {"low": [b"a"], "high": [b"b"]})
            await send(mq, c=2, d=4, e=5)
            async with Producer(mq.name_server) as producer:
                await producer.send(Message("T", b"last"))
            await until(lambda: all(group[-1] == b"last" for group in found.values()))
        assert found == {"low": [b"a", b"c", b"last"], "high": [b"b", b"d", b"e", b"last"]}

    run(scenario, enableConsumeQueueExt="true", enableCalcFilterBitMap=bits)


@pytest.mark.parametrize(("filters_retries", "wanted"), [("false", [b"1", b"3"]), ("true", [b"3"])])
def test_messages_that_come_again_are_filtered_once_more_if_the_broker_is_told_so(
    filters_retries: str, wanted: list[bytes]
) -> None:
    retry_topic = "%RETRY%g"
    subscriptions = (
        SubscriptionData("T", "size > 2", 1, expression_type=SQL92),
        SubscriptionData(retry_topic, "*", 1),
    )
    consumer = ConsumerData(
        "g",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        subscriptions,
    )

    async def scenario(client: RemotingClient, address: str) -> list[bytes]:
        beat = HeartbeatData(client_id="c", consumers=(consumer,)).encode()
        await client.invoke(address, RemotingCommand.request(RequestCode.HEART_BEAT, body=beat))
        for size in ("1", "3"):
            message = send_request(retry_topic, size.encode())
            message.ext_fields = (message.ext_fields or {}) | {
                "i": f"size\x01{size}\x02RETRY_TOPIC\x01T\x02"
            }
            assert (await client.invoke(address, message)).code == ResponseCode.SUCCESS
        pull = pull_request(retry_topic, 0)
        pull.ext_fields = (pull.ext_fields or {}) | {"sysFlag": "0"}
        answer = await client.invoke(address, pull)
        assert answer.code == ResponseCode.SUCCESS, answer
        return [message.body for message in decode_all(answer.body or b"")]

    with LocalCluster(broker={"filterSupportRetry": filters_retries}) as mq:
        assert asked(lambda client: scenario(client, mq.broker_address())) == wanted
