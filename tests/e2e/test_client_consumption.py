"""How the push consumer consumes: in order, again after failures, asked by brokers, and what it
says of itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from dataclasses import replace

import pytest

from orbitmq.access.credentials import Credentials
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.consumer.queue_reader import WAITS_FOR_MESSAGES
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ConfigurationError, InvalidStateError
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectOutcome, DirectResult
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from orbitmq.protocol.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from support.client.library import FROM_FIRST, consuming, run
from support.common.waiting import until

IN_ORDER = replace(FROM_FIRST, in_order=True, retry_pause_ms=10)


async def send_all(cluster: EmbeddedCluster, bodies: list[bytes], topic: str = "T") -> None:
    """One after the other to the first queue, after one that makes the topic and goes to the
    last.
    """
    async with Producer(cluster.name_server_address) as producer:
        await producer.send(Message(topic, b"first"), selector=lambda queues, _message: queues[-1])
        queue = (await producer.queues(topic))[0]
        for body in bodies:
            await producer.send(Message(topic, body), queue=queue)


@pytest.mark.parametrize("in_thread", [False, True])
def test_in_order_a_message_that_fails_is_tried_again_before_the_next_one(in_thread: bool) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        seen: list[tuple[bytes, int]] = []

        def take(message: ReceivedMessage) -> None:
            if message.body == b"first":
                return
            seen.append((message.body, message.reconsume_times))
            if message.body == b"3" and message.reconsume_times < 2:
                raise ValueError("not yet")

        async def take_on_the_loop(message: ReceivedMessage) -> None:
            take(message)

        await send_all(cluster, [b"%d" % number for number in range(100)])
        async with consuming(cluster, take if in_thread else take_on_the_loop, settings=IN_ORDER):
            await until(lambda: len(seen) == 102)
        numbers = [0, 1, 2, 3, 3, 3, *range(4, 100)]
        assert [body for body, _ in seen] == [b"%d" % number for number in numbers]
        assert [times for body, times in seen if body == b"3"] == [0, 1, 2]

    run(scenario)


def test_in_order_a_message_that_is_long_for_a_producer_is_a_dead_letter_as_any_other() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        seen: list[bytes] = []

        async def take(message: ReceivedMessage) -> None:
            seen.append(message.body[:5])
            if len(message.body) > 5:
                raise ValueError("on purpose")

        async with Producer(
            cluster.name_server_address, settings=ProducerSettings(size_max=8 << 20)
        ) as producer:
            await producer.send(Message("T", b"first"))
            queue = (await producer.queues("T"))[0]
            for body in (b"1", b"long " + bytes(5 << 20), b"2", b"3"):
                await producer.send(Message("T", body), queue=queue, timeout_ms=20_000)
        async with consuming(cluster, take, settings=replace(IN_ORDER, max_attempts=0)):
            await until(lambda: b"3" in seen)
        assert [body for body in seen if body != b"first"] == [b"1", b"long ", b"2", b"3"]

    run(scenario, maxMessageSize=str(16 << 20))


def test_in_order_a_queue_goes_from_member_to_member_without_two_having_it() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        running: defaultdict[int, int] = defaultdict(int)
        overlaps: list[int] = []
        seen: defaultdict[int, list[int]] = defaultdict(list)

        async def take(message: ReceivedMessage) -> None:
            queue = message.queue.queue_id
            running[queue] += 1
            if running[queue] > 1:
                overlaps.append(queue)
            await asyncio.sleep(0.002)
            running[queue] -= 1
            seen[queue].append(message.queue_offset)

        async with Producer(cluster.name_server_address) as producer:
            await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(400)))
            async with consuming(cluster, take, settings=IN_ORDER) as first:
                await until(lambda: sum(map(len, seen.values())) > 50)
                async with consuming(cluster, take, settings=IN_ORDER) as second:
                    await until(lambda: {queue.topic for queue in second.queues} >= {"T"})
                    await until(lambda: sum(len(set(offsets)) for offsets in seen.values()) == 400)
                    assert not {
                        queue for queue in first.queues & second.queues if queue.topic == "T"
                    }
        assert not overlaps
        for offsets in seen.values():
            firsts = list(dict.fromkeys(offsets))
            assert firsts == sorted(firsts)

    run(scenario)


@pytest.mark.parametrize("in_order", [True, False])
def test_after_a_suspension_it_goes_on_where_it_was_and_nothing_is_handed_out_meanwhile(
    in_order: bool,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        seen: list[bytes] = []

        async def take(message: ReceivedMessage) -> None:
            seen.append(message.body)

        before, meanwhile = (
            [b"%d" % number for number in range(40)],
            [b"%d" % number for number in range(40, 50)],
        )
        await send_all(cluster, before)
        async with consuming(
            cluster, take, settings=replace(IN_ORDER, in_order=in_order)
        ) as consumer:
            await until(lambda: len(seen) == 41)
            consumer.suspend()
            await send_all(cluster, meanwhile)  # which end pulls that wait
            await until(lambda: any("suspended" in report.why for report in consumer.reports()))
            await asyncio.sleep(0.1)
            assert len(seen) == 41
            consumer.resume()
            await until(lambda: len(seen) == 52)
            await asyncio.sleep(0.1)
        numbers = [int(body) for body in seen if body != b"first"]
        assert (numbers if in_order else sorted(numbers)) == list(range(50))

    run(scenario)


def test_listeners_that_block_run_side_by_side_and_heartbeats_go_on() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        barrier = threading.Barrier(
            4, timeout=30
        )  # passed only when four are inside at the same time
        passed: list[bytes] = []

        def take(message: ReceivedMessage) -> None:
            barrier.wait()
            passed.append(message.body)

        await send_all(cluster, [b"1", b"2", b"3"])
        async with consuming(cluster, take):
            await until(lambda: len(passed) == 4)

    run(scenario)


@pytest.mark.parametrize("by_broker", [True, False])
def test_a_reset_while_it_consumes_brings_everything_again(by_broker: bool) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        taken: list[bytes] = []
        await send_all(cluster, [b"1", b"2", b"3"])
        async with consuming(cluster, lambda message: taken.append(message.body)) as consumer:
            await until(lambda: len(taken) == 4)
            await consumer._persist()
            header = ResetOffsetRequestHeader(topic="T", group="g", timestamp=0, is_force=True)
            await ask(
                consumer,
                cluster,
                RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header),
            )
            if by_broker:  # consumers hear of it when they ask the next time
                async with Producer(cluster.name_server_address) as producer:
                    for queue in await producer.queues("T"):
                        await producer.send(Message("T", b"next"), queue=queue)
            await until(lambda: taken.count(b"3") == 2 and taken.count(b"first") == 2)
        assert sorted(body for body in taken if body != b"next") == sorted(
            [b"first", b"1", b"2", b"3"] * 2
        )

    run(scenario, useServerSideResetOffset="true" if by_broker else "false")


async def ask(
    consumer: PushConsumer, cluster: EmbeddedCluster, request: RemotingCommand
) -> RemotingCommand:
    return await consumer.session.ask(cluster.broker_address, request)


def test_an_operator_sees_what_a_consumer_does_and_can_make_it_consume_one_message() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        taken: list[ReceivedMessage] = []

        def take(message: ReceivedMessage) -> None:
            taken.append(message)
            if len(taken) == 3:
                raise ValueError("the third time")

        await send_all(cluster, [b"1"])
        async with consuming(cluster, take) as consumer:
            await until(lambda: len(taken) == 2)
            client_id = consumer.session.client_id
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group="g", client_id=client_id, jstack_enable=True
            )
            answer = await ask(
                consumer,
                cluster,
                RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header),
            )
            info = ConsumerRunningInfo.decode(answer.body or b"")
            assert {queue.topic for queue in info.queues} == {"T", "%RETRY%g"}
            assert "MainThread" in (info.stacks or "")
            status = GetConsumerStatusRequestHeader(topic="T", group="g")
            answer = await ask(
                consumer,
                cluster,
                RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status),
            )
            assert client_id.encode() in (answer.body or b"")
            direct = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g", client_id=client_id, msg_id=taken[0].offset_msg_id, topic="T"
            )
            request = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)
            answer = await ask(consumer, cluster, request)
            result = DirectResult.decode(answer.body or b"")
            assert (result.outcome, result.remark) == (
                DirectOutcome.CR_THROW_EXCEPTION,
                "ValueError: the third time",
            )
            assert (
                DirectResult.decode((await ask(consumer, cluster, request)).body or b"").outcome
                is DirectOutcome.CR_SUCCESS
            )
            assert taken[3].body == taken[0].body

    run(scenario)


def test_it_explains_why_a_queue_moves_or_does_not() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        go_on = asyncio.Event()

        async def take(_message: ReceivedMessage) -> None:
            await go_on.wait()

        await send_all(cluster, [b"1"])
        async with consuming(cluster, take) as consumer:
            consumer.subscribe("Missing")
            await until(lambda: any(report.cached_count for report in consumer.reports()))
            report = await consumer.explain()
            stuck = [queue for queue in report.queues if queue.cached_count]
            assert "1 messages are being consumed or queued for it, the first is" in stuck[0].why
            assert stuck[0].behind
            assert any("no route to topic Missing" in note for note in report.notes)
            go_on.set()
            await until(lambda: not any(each.behind for each in consumer.reports()))
            idle = [
                queue for queue in (await consumer.explain()).queues if queue.queue.topic == "T"
            ]
            assert [queue.behind for queue in idle if queue.why == WAITS_FOR_MESSAGES] == [0, 0]
            assert [queue.why for queue in idle if queue.why != WAITS_FOR_MESSAGES] == [
                "pulling messages from offset 0"
            ] * 2
            consumer.suspend()
            others = [consuming(cluster, take) for _ in range(4)]
            members = [await other.__aenter__() for other in others]
            await until(
                lambda: (
                    not all("T" in {queue.topic for queue in member.queues} for member in members)
                )
            )
            notes = [note for member in members for note in (await member.explain()).notes]
            assert any("has 4 queues for 5 members" in note for note in notes)
            for other in others:
                await other.__aexit__(None, None, None)

    run(scenario)


def test_at_the_end_listeners_are_waited_for_and_what_they_took_does_not_come_again() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        taken: list[bytes] = []
        inside = asyncio.Event()

        async def take(message: ReceivedMessage) -> None:
            inside.set()
            await asyncio.sleep(0.2)
            taken.append(message.body)

        await send_all(cluster, [b"1"])
        settings = replace(FROM_FIRST, concurrency=2)
        async with consuming(cluster, take, settings=settings):
            await inside.wait()
        assert taken
        before = len(taken)
        async with consuming(cluster, take, settings=settings):
            await until(lambda: len(taken) >= 2)
            await asyncio.sleep(0)
        assert len(set(taken)) == len(taken) == 2 >= before

    run(scenario)


def test_names_of_a_namespace_are_its_own_at_the_broker_and_the_applications_here() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        taken: list[ReceivedMessage] = []
        settings = ClientSettings(name_servers=cluster.name_server_address, namespace="shop")
        async with Producer(settings, group="p") as producer:
            result = await producer.send(Message("orders", b"x", tags="a"))
            assert result.queue.topic == "shop%orders"
        consumer = PushConsumer(settings, "g", taken.append, settings=FROM_FIRST)
        consumer.subscribe("orders", "a")
        async with consumer:
            await until(lambda: len(taken) == 1)
            assert (taken[0].topic, taken[0].queue.topic, consumer.group) == (
                "orders",
                "shop%orders",
                "g",
            )
            assert {queue.topic for queue in consumer.queues} == {"shop%orders", "%RETRY%shop%g"}
            direct = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="shop%g",
                client_id=consumer.session.client_id,
                msg_id=taken[0].offset_msg_id,
                topic="shop%orders",
            )
            await ask(
                consumer,
                cluster,
                RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct),
            )
            assert (taken[1].topic, taken[1].queue.topic) == ("orders", "shop%orders")

    run(scenario)


def test_several_members_share_one_session_and_brokers_see_one_client() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        taken: list[tuple[str, bytes]] = []
        session = ClientSession(ClientSettings(name_servers=cluster.name_server_address))
        async with Producer(session) as producer:
            await producer.send(Message("T", b"x"))
            consumers = []
            for group in ("g1", "g2"):
                consumer = PushConsumer(
                    session,
                    group,
                    lambda message, group=group: taken.append((group, message.body)),
                    settings=FROM_FIRST,
                )
                consumer.subscribe("T")
                consumers.append(await consumer.__aenter__())
            await until(lambda: len(taken) == 2)
            for consumer in consumers:
                await consumer.close()
            await producer.send(Message("T", b"y"))
        await session.close()
        assert sorted(taken) == [("g1", b"x"), ("g2", b"x")]

    run(scenario)


def test_keys_are_read_from_a_file_and_never_printed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_text("AccessKey=me\nSecretKey=very-secret\n")
    credentials = Credentials.from_file(path)
    assert credentials == Credentials("me", "very-secret")
    assert "very-secret" not in repr(ClientSettings(credentials=credentials))
    path.write_text("AccessKey=me\n")
    with pytest.raises(ConfigurationError, match="has no SecretKey"):
        Credentials.from_file(path)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        Credentials.from_file(path.with_name("none"))


@pytest.mark.parametrize("settings", [FROM_FIRST, IN_ORDER], ids=["concurrent", "in order"])
def test_a_second_start_is_refused_and_leaves_the_first_as_it_is(
    settings: ConsumerSettings,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        seen: list[bytes] = []
        await send_all(cluster, [b"1"])
        async with consuming(
            cluster, lambda message: seen.append(message.body), settings=settings
        ) as consumer:
            tasks = asyncio.all_tasks()
            with pytest.raises(InvalidStateError, match="this client is already started"):
                await consumer.start()
            assert {
                task.get_coro()
                for task in asyncio.all_tasks() - tasks
                if "repeat" in repr(task.get_coro())
            } == set()
            await until(lambda: sorted(seen) == [b"1", b"first"])

    run(scenario)
