"""Consumer groups as operators handle them, on two brokers: set up, watched, explained."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orbitmq.admin import Admin
from orbitmq.admin.explanation import ConsumptionState
from orbitmq.client.consumer.process_queue import CacheLimits
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import AlreadyExistsError, NotFoundError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, QueueProgress
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere, MessageModel, SubscriptionData
from orbitmq.testing.local_cluster import LocalCluster
from support.admin.cluster import administer, resident, send
from support.common.waiting import until

FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
BROKERS = ["broker-a", "broker-b"]


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, topics={"T": 2, "Idle": 1}) as running:
        yield running


def test_a_group_is_made_changed_listed_and_deleted(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        wanted = GroupConfig("made", retry_max_times=3)
        assert await admin.groups.create(wanted) == BROKERS
        assert await admin.groups.create(wanted) == BROKERS
        assert await admin.groups.configs("made") == dict.fromkeys(BROKERS, wanted)
        with pytest.raises(AlreadyExistsError, match="group made already exists on broker-a"):
            await admin.groups.create(GroupConfig("made"))
        changed = await admin.groups.update(
            "made", lambda config: replace(config, consume_enable=False), broker="broker-b"
        )
        assert changed == {"broker-b": replace(wanted, consume_enable=False)}
        assert await admin.groups.configs("made") == {"broker-a": wanted, **changed}
        assert "made" in await admin.groups.names()
        assert await admin.groups.delete("made") == BROKERS
        for question in (admin.groups.configs, admin.groups.explain, admin.groups.delete):
            with pytest.raises(NotFoundError, match="group made"):
                await question("made")

    administer(mq.name_server, scenario)


def test_a_group_of_which_nobody_heard_is_not_made_by_looking(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        assert not (await admin.groups.connections("never")).members
        assert not (await admin.groups.progress("never")).queues
        with pytest.raises(NotFoundError, match="no broker knows group never; create it"):
            await admin.groups.configs("never")
        assert "never" not in await admin.groups.names()

    administer(mq.name_server, scenario)


def test_members_are_listed_once_with_what_they_want(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        async with resident(mq.name_server, "listed", "T", "Idle") as (client_id, _):
            found = await admin.groups.connections("listed")
            (member,) = found.members
            assert (member.client_id, member.language, member.version) == (
                client_id,
                "PYTHON",
                "V5_5_0",
            )
            assert sorted(member.brokers) == BROKERS
            assert member.address.startswith("127.0.0.1:")
            assert sorted(found.subscriptions) == ["Idle", "T"]
            assert found.message_model is MessageModel.CLUSTERING
            assert await admin.topics.groups("Idle") == ["listed"]
            assert await admin.groups.of_topic("Idle") == {"listed": found}

    administer(mq.name_server, scenario)


def test_a_member_tells_what_it_does_or_is_said_not_to_be_there(mq: LocalCluster) -> None:
    told = ConsumerRunningInfo(
        properties={"colour": "blue"},
        queues={MessageQueue("T", "broker-a", 0): QueueProgress(cached_count=7)},
    )

    async def scenario(admin: Admin) -> None:
        async with resident(mq.name_server, "telling", "T", info=told) as (client_id, _):
            assert await admin.groups.running_info("telling", client_id) == told
            with pytest.raises(
                NotFoundError,
                match=f"no member x of group telling is online; online members: {client_id}",
            ):
                await admin.groups.running_info("telling", "x")
        with pytest.raises(NotFoundError, match="online members: none"):
            await admin.groups.running_info("telling", client_id)

    administer(mq.name_server, scenario)


def test_the_progress_of_a_group_names_lag_and_owner_of_each_queue(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Consumed", 2, 2))
        queues = await admin.offsets.queues("Consumed")
        for queue in queues:
            await send(admin, "Consumed", b"1", b"2", b"3", queue=queue)
        async with consumer(mq, "consuming", "Consumed") as member:
            await until(lambda: _has_consumed(admin, member, "Consumed", 12))
            found = await admin.groups.progress("consuming", "Consumed")
            assert [each.queue for each in found.queues] == queues
            assert {each.owner for each in found.queues} == {member.session.client_id}
            assert all(each.last_consumed_ms > 1_700_000_000_000 for each in found.queues)
        await send(admin, "Consumed", b"4", queue=queues[0])
        found = await admin.groups.progress("consuming", "Consumed")
        assert {each.owner for each in found.queues} == {None}
        assert [each.lag for each in found.queues] == [1, 0, 0, 0]
        assert found.lag == 1

    administer(mq.name_server, scenario)


def test_a_group_that_reads_is_explained_queue_by_queue(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Explained", 1, 1))
        first, second = await admin.offsets.queues("Explained")
        await send(admin, "Explained", b"1", queue=first)
        async with consumer(mq, "reading", "Explained") as member:
            await until(lambda: _has_consumed(admin, member, "Explained", 1))
            states = {
                each.queue: each.state for each in await admin.groups.explain("reading", seconds=0)
            }
            assert (states[first], states[second]) == (ConsumptionState.DONE, ConsumptionState.DONE)
        await send(admin, "Explained", b"2", queue=first)
        states = {
            each.queue: each.state
            for each in await admin.groups.explain("reading", "Explained", seconds=0)
        }
        assert states == {first: ConsumptionState.NO_MEMBER, second: ConsumptionState.DONE}

    administer(mq.name_server, scenario)


def test_a_consumer_that_is_suspended_or_slow_is_explained(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Slow", 1, 1), broker="broker-a")
        await send(admin, "Slow", *(b"%d" % number for number in range(8)))
        release = asyncio.Event()

        async def listen(_: ReceivedMessage) -> None:
            await release.wait()

        limits = CacheLimits(count_max=3)
        member = PushConsumer(
            mq.name_server,
            "slow",
            listen,
            settings=replace(FROM_FIRST, limits=limits, pull_count=4),
        )
        member.subscribe("Slow")
        async with member:

            async def explained() -> tuple[ConsumptionState, str | None]:
                (found,) = await admin.groups.explain("slow", "Slow", seconds=0)
                return found.state, found.owner

            async def holds_all_it_may() -> bool:
                return (await explained())[0] is ConsumptionState.CACHE_FULL

            await until(holds_all_it_may)
            member.suspend()
            assert await explained() == (ConsumptionState.PAUSED, member.session.client_id)
            member.resume()
            release.set()

    administer(mq.name_server, scenario)


def test_a_member_that_is_stuck_is_found_out(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Stuck", 1, 1), broker="broker-a")
        (queue,) = await admin.offsets.queues("Stuck")
        await send(admin, "Stuck", b"1", b"2")
        async with resident(mq.name_server, "stuck", "Stuck") as (client_id, member):

            async def only() -> tuple[ConsumptionState, str | None, int | None]:
                (found,) = await admin.groups.explain("stuck", "Stuck", seconds=0)
                return found.state, found.owner, found.lag

            assert await only() == (ConsumptionState.SILENT, None, 2)
            member.info = ConsumerRunningInfo(subscriptions=[SubscriptionData("Stuck")])
            assert await only() == (ConsumptionState.NO_OWNER, None, 2)
            member.info = ConsumerRunningInfo(queues={queue: QueueProgress(last_pull_ms=1)})
            assert await only() == (ConsumptionState.NOT_PULLING, client_id, 2)
            await admin.groups.update("stuck", lambda config: replace(config, consume_enable=False))
            assert await only() == (ConsumptionState.FORBIDDEN, client_id, 2)

    administer(mq.name_server, scenario)


def test_offsets_in_a_topic_that_members_do_not_subscribe_are_told(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.groups.create(GroupConfig("moved"))
        await admin.offsets.set("moved", MessageQueue("Idle", "broker-a", 0), 0)
        async with resident(mq.name_server, "moved", "T"):
            found = await admin.groups.explain("moved", seconds=0)
            assert {each.state for each in found if each.queue.topic == "Idle"} == {
                ConsumptionState.NO_SUBSCRIPTION
            }
            assert {each.queue.topic for each in found} >= {"Idle", "T"}

    administer(mq.name_server, scenario)


def test_a_broker_that_cannot_be_reached_explains_its_queues() -> None:
    with LocalCluster(brokers=2, topics={"T": 1}, partitions=True) as mq:

        async def scenario(admin: Admin) -> None:
            async with resident(mq.name_server, "halved", "T"):
                with mq.partition("broker-b", reset=True):
                    found = {
                        each.queue.broker_name: each.state
                        for each in await admin.groups.explain("halved", "T", seconds=0)
                    }
                    assert found["broker-b"] is ConsumptionState.UNREACHABLE
                    assert found["broker-a"] is not ConsumptionState.UNREACHABLE
                    assert list(
                        (await admin.groups.progress("halved", with_owners=False)).unreachable
                    ) == ["broker-b"]

        administer(mq.name_server, scenario)


def test_deleting_a_group_takes_its_retry_topic_and_its_offsets_unless_they_are_kept(
    mq: LocalCluster,
) -> None:
    async def scenario(admin: Admin) -> None:
        queue = MessageQueue("T", "broker-a", 0)
        async with resident(mq.name_server, "leaving", "T"):
            assert "%RETRY%leaving" in await admin.topics.names()
            await send(admin, "T", b"1", queue=queue)
            await admin.offsets.set("leaving", queue, 1)
        await admin.groups.delete("leaving", with_offsets=False)
        assert "%RETRY%leaving" not in await admin.topics.names()
        assert (await admin.offsets.read("leaving", "T"))[queue] == 1
        await admin.groups.create(GroupConfig("leaving"))
        await admin.groups.delete("leaving")
        assert (await admin.offsets.read("leaving", "T"))[queue] is None

    administer(mq.name_server, scenario)


def consumer(mq: LocalCluster, group: str, topic: str) -> PushConsumer:
    async def listen(_: ReceivedMessage) -> None: ...

    made = PushConsumer(mq.name_server, group, listen, settings=FROM_FIRST)
    made.subscribe(topic)
    return made


async def _has_consumed(admin: Admin, member: PushConsumer, topic: str, count: int) -> bool:
    await member.offsets.persist(member.queues)
    queues = (await admin.groups.progress(member.group, topic, with_owners=False)).queues
    return sum(each.consumer_offset for each in queues) == count
