"""A slave takes over the tables of a running OrbitMQ master: its topics with their lives, groups,
offsets, modes, filters, locks and delivery progress.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitmq.broker.roles.slave_sync import MasterKind
from orbitmq.broker.wiring.components import BrokerComponents
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.types import QueueKey, QueueOffset
from support.access.people import USERS
from support.broker.process import create_request, send_request
from support.broker.running import RunningBroker, broker, request
from support.broker.slave import loaded, slave, tables
from support.common.waiting import until

GROUP = {"groupName": "g", "consumeEnable": True, "retryQueueNums": 2, "attributes": {}}
LOCKS = {
    "consumerGroup": "g",
    "clientId": "c",
    "mqSet": [{"topic": "T", "brokerName": "a", "queueId": 0}],
    "onlyThisBroker": True,
}
MODE = {"topic": "T", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 2}
SUBSCRIPTION = {
    "topic": "T",
    "subString": "a > 5",
    "subVersion": 1,
    "tagsSet": [],
    "codeSet": [],
    "expressionType": "SQL92",
}
HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [],
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [SUBSCRIPTION],
            "unitMode": False,
        }
    ],
}


async def ask(master: RunningBroker, code: int, body: object = None, **fields: str) -> None:
    answer = await master(request(code, body, **fields))
    assert answer.code == ResponseCode.SUCCESS, answer


async def commit(master: RunningBroker, queue_id: int, offset: int) -> None:
    await ask(
        master,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup="g",
        topic="T",
        queueId=str(queue_id),
        commitOffset=str(offset),
    )


async def fill(master: RunningBroker) -> None:
    """Put something into every table."""
    assert (await master(create_request("T"))).code == ResponseCode.SUCCESS
    assert (await master(send_request("T", b"x"))).code == ResponseCode.SUCCESS
    await ask(master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP)
    await ask(
        master,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        group="other",
        topic="T",
        readable="false",
    )
    await commit(master, 0, 1)
    await ask(master, RequestCode.SET_MESSAGE_REQUEST_MODE, MODE)
    await ask(master, RequestCode.HEART_BEAT, HEARTBEAT)
    await ask(master, RequestCode.LOCK_BATCH_MQ, LOCKS)


def bodies(broker: BrokerComponents, topic: str) -> list[bytes]:
    """The messages that the queue of a topic shows."""
    result = broker.store.reads.get(QueueKey(topic, 0), QueueOffset(0), count_max=32)
    return [message.body for message in decode_all(result.records)]


async def send(master: RunningBroker, topic: str, *numbers: bytes) -> None:
    for number in numbers:
        answer = await master(send_request(topic, number))
        assert answer.code == ResponseCode.SUCCESS, answer


def test_after_a_tick_the_slave_has_all_tables_of_its_master(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m", enablePropertyFilter="true") as master,
            slave(tmp_path / "s", master.address, enablePropertyFilter="true") as follower,
        ):
            await fill(master)
            follower.copy_log(master.components)
            await follower.tick()
            assert follower.sync.kind is MasterKind.ORBITMQ
            found = tables(follower.components)
            assert found == tables(master.components)
            assert found["topics"]["T"].read_queue_nums == 1
            assert found["offsets"]["T@g"].offsets == {0: 1}
            assert len(found["locks"]) == len(found["filters"]) == len(found["modes"]) == 1

            await commit(master, 0, 4)
            await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            await ask(
                master, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true"
            )
            await ask(master, RequestCode.UNLOCK_BATCH_MQ, LOCKS)
            await follower.tick()
            found = tables(follower.components)
            assert found == tables(master.components)
            assert "T" not in found["topics"]
            assert not found["offsets"]
            assert not found["locks"]
            assert follower.deleted == ["T"]
            assert not follower.components.store.queues.has_messages("T")

    asyncio.run(scenario())


def test_what_was_taken_over_outlives_a_restart_of_the_slave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path / "m", enablePropertyFilter="true") as master:
            await fill(master)
            async with slave(tmp_path / "s", master.address) as follower:
                follower.copy_log(master.components)
                await follower.tick()
                before = tables(follower.components)
            async with loaded(tmp_path / "s") as again:
                after = tables(again)
        for name in ("topics", "beginnings", "topics version", "groups", "groups version"):
            assert after[name] == before[name], name
        for name in ("offsets", "offsets version", "modes", "levels"):
            assert after[name] == before[name], name

    asyncio.run(scenario())


def test_a_tick_without_changes_changes_nothing_and_costs_one_small_request(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m") as master,
            slave(tmp_path / "s", master.address) as follower,
        ):
            await fill(master)
            await follower.tick()
            calls: list[int] = []
            invoke = follower.components.client.invoke

            async def counted(*call: object) -> object:
                answer = await invoke(*call)  # type: ignore[arg-type]
                calls.append(len(answer.body or b""))
                return answer

            follower.components.client.invoke = counted  # type: ignore[assignment, method-assign]
            numbers = follower.components.metadata.topics.changes.number
            await follower.tick()
            assert len(calls) == 1
            assert calls[0] < 1_000
            assert follower.components.metadata.topics.changes.number == numbers

    asyncio.run(scenario())


def test_a_topic_that_was_deleted_and_created_again_shows_its_present_life_only(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m") as master,
            slave(tmp_path / "s", master.address) as follower,
        ):
            await master(create_request("T"))
            await master(create_request("Other"))
            await send(master, "T", b"1", b"2", b"3")
            await send(master, "Other", b"7", b"8")
            follower.copy_log(master.components)
            await follower.tick()
            assert bodies(follower.components, "T") == [b"1", b"2", b"3"]

            await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            await master(create_request("T"))
            await send(master, "T", b"4", b"5")
            follower.copy_log(master.components)  # before the slave hears of the new life
            await follower.tick()
            assert bodies(follower.components, "T") == [b"4", b"5"]
            assert bodies(follower.components, "Other") == [b"7", b"8"]
            await send(master, "T", b"6")
            follower.copy_log(master.components)
            assert bodies(follower.components, "T") == [b"4", b"5", b"6"]
            assert tables(follower.components) == tables(master.components)

        async with loaded(tmp_path / "s") as again:
            assert bodies(again, "T") == [b"4", b"5", b"6"]
            assert bodies(again, "Other") == [b"7", b"8"]

    asyncio.run(scenario())


def test_a_slave_that_hears_of_a_new_life_before_its_messages_shows_only_those(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m") as master,
            slave(tmp_path / "s", master.address) as follower,
        ):
            await master(create_request("T"))
            await send(master, "T", b"1", b"2")
            follower.copy_log(master.components)
            await follower.tick()
            await send(master, "T", b"3")
            await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            await master(create_request("T"))
            await send(master, "T", b"4")
            await follower.tick()  # the log of the slave ends in the first life
            assert bodies(follower.components, "T") == []
            follower.copy_log(master.components)
            assert bodies(follower.components, "T") == [b"4"]

    asyncio.run(scenario())


def test_messages_that_arrive_before_their_topic_are_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m") as master,
            slave(tmp_path / "s", master.address) as follower,
        ):
            await follower.tick()
            await master(create_request("T"))
            await send(master, "T", b"1", b"2")
            follower.copy_log(master.components)
            queue = follower.components.store.queues.plain.find("T", 0)
            await follower.tick()
            assert follower.components.store.queues.plain.find("T", 0) is queue
            assert bodies(follower.components, "T") == [b"1", b"2"]

    asyncio.run(scenario())


def test_what_the_slave_changed_itself_is_overwritten_by_the_next_tick(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m") as master,
            slave(tmp_path / "s", master.address) as follower,
        ):
            await fill(master)
            follower.copy_log(master.components)
            await follower.tick()
            own = follower.components
            own.metadata.offsets.commit("g", "T", 0, 77)
            own.metadata.offsets.commit("mine", "T", 0, 1)
            own.metadata.topics.for_send("Mine", "TBW102", 4)
            own.metadata.groups.find("mine")
            await follower.tick()
            assert tables(own) == tables(master.components)

    asyncio.run(scenario())


def test_a_master_that_restarts_is_followed_with_its_new_tables(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave(tmp_path / "s", None) as follower:
            async with broker(tmp_path / "m") as master:
                await fill(master)
                follower.master = master.address
                follower.copy_log(master.components)
                await follower.tick()
            await follower.sync.run_once()
            assert follower.sync.problem is not None
            assert "metadata changes" in follower.sync.problem
            assert "T" in follower.components.metadata.topics.table
            async with broker(tmp_path / "m") as master:
                follower.master = master.address
                await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
                await follower.tick()
                assert tables(follower.components) == tables(master.components)

    asyncio.run(scenario())


def test_the_driver_takes_over_at_once_when_the_master_is_known_and_each_second_after(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m") as master,
            slave(tmp_path / "s", None) as follower,
        ):
            await fill(master)
            follower.sync.start()
            try:
                follower.master = master.address
                follower.sync.wake()
                topics = follower.components.metadata.topics
                await until(lambda: "T" in topics.table, "the topic arrives")
                await master(create_request("Later"))
                await until(lambda: "Later" in topics.table, "the next tick")
                assert follower.sync.synced_ms > 0
            finally:
                await follower.sync.stop()

    asyncio.run(scenario())


def test_a_broker_that_is_its_own_master_asks_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave(tmp_path / "s", None) as follower:
            follower.master = follower.components.identity.address
            await follower.tick()
            assert follower.sync.kind is MasterKind.UNKNOWN
            assert follower.sync.synced_ms == 0

    asyncio.run(scenario())


def test_delivery_progress_waits_for_the_copies_in_the_slaves_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            broker(tmp_path / "m", messageDelayLevel="1s 5s") as master,
            slave(tmp_path / "s", master.address, messageDelayLevel="1s 5s") as follower,
        ):
            await master(create_request("T"))
            own = master.components
            delayed = send_request("T", b"x")
            assert delayed.ext_fields is not None
            delayed.ext_fields["i"] += "DELAY\x011\x02"
            assert (await master(delayed)).code == ResponseCode.SUCCESS
            before = own.store.log.end_offset
            await until(lambda: own.store.log.end_offset > before, "the delivery")
            await until(lambda: own.delay.levels.content().offsets == {1: 1}, "its progress")
            await follower.tick()
            assert follower.components.delay.levels.content().offsets == {}
            follower.copy_log(own)
            await follower.tick()
            assert follower.components.delay.levels.content() == own.delay.levels.content()

    asyncio.run(scenario())


def test_with_access_control_only_a_slave_with_credentials_is_answered(tmp_path: Path) -> None:
    inner = "innerClientAuthenticationCredentials"

    async def scenario() -> None:
        async with broker(tmp_path / "m", **USERS) as master:
            master.components.metadata.topics.update(TopicConfig("T"))
            async with slave(tmp_path / "stranger", master.address) as stranger:
                await stranger.sync.run_once()
                assert stranger.sync.problem is not None
                assert "metadata changes: " in stranger.sync.problem
                assert stranger.sync.kind is MasterKind.UNKNOWN
                assert "T" not in stranger.components.metadata.topics.table
            async with slave(tmp_path / "s", master.address, **{inner: USERS[inner]}) as follower:
                await follower.tick()
                assert "T" in follower.components.metadata.topics.table

    asyncio.run(scenario())
