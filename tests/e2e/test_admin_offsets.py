"""Offsets as operators handle them: the ends of queues, places by time, groups that are set, reset
and copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import Admin
from orbitmq.admin.positions import AtOffset, AtStoreTime, Position, QueueEdge
from orbitmq.client.consumer.push_consumer import PushConsumer
from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import NotFoundError, RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.testing.local_cluster import LocalCluster
from support.admin.cluster import administer, resident, send
from support.common.waiting import until

BODIES = (b"0", b"1", b"2", b"3")


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def by_clients() -> Iterator[LocalCluster]:
    """As brokers were before they kept resets themselves."""
    with LocalCluster(broker={"useServerSideResetOffset": "false"}) as running:
        yield running


async def filled(admin: Admin, topic: str, group: str) -> list[MessageQueue]:
    """The queues of a new topic with four messages each, and a group that exists."""
    await admin.topics.create(TopicConfig(topic, 1, 1))
    queues = await admin.offsets.queues(topic)
    for queue in queues:
        await send(admin, topic, *BODIES, queue=queue)
    await admin.groups.create(GroupConfig(group))
    return queues


def test_the_ends_of_a_queue_and_places_by_time_are_told(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        queue = (await filled(admin, "Ends", "g"))[1]
        assert (await admin.offsets.first(queue), await admin.offsets.end(queue)) == (0, 4)
        third = await admin.messages.view(queue, 2)
        assert await admin.offsets.at_time(queue, third.stored_at_ms) <= 2
        assert await admin.offsets.at_time(queue, 1) == 0
        assert await admin.offsets.at(queue, QueueEdge.FIRST) == 0
        assert await admin.offsets.at(queue, QueueEdge.LAST) == 4
        assert await admin.offsets.at(queue, AtStoreTime(1)) == 0
        assert await admin.offsets.at(queue, AtOffset(4)) == 4
        with pytest.raises(
            RequestRefusedError,
            match="Ends/broker-b/0 has no offset 5; its offsets range from 0 to 4",
        ):
            await admin.offsets.at(queue, AtOffset(5))

    administer(mq.name_server, scenario)


def test_offsets_are_set_and_read(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await filled(admin, "Set", "setting")
        assert await admin.offsets.read("setting", "Set") == {first: None, second: None}
        await admin.offsets.set("setting", second, 3)
        assert await admin.offsets.read("setting", "Set") == {first: None, second: 3}
        assert await admin.offsets.committed("setting", second) == 3
        with pytest.raises(RequestRefusedError, match="Group nobody not exist"):
            await admin.offsets.set("nobody", second, 3)

    administer(mq.name_server, scenario)


@pytest.mark.parametrize(
    ("to", "after"),
    [(QueueEdge.FIRST, 0), (QueueEdge.LAST, 4), (AtStoreTime(1), 0), (AtOffset(2), 2)],
    ids=str,
)
@pytest.mark.parametrize("kind", ["kept by the broker", "told to clients"])
def test_a_group_that_is_not_online_goes_on_where_it_was_reset_to(
    mq: LocalCluster, by_clients: LocalCluster, kind: str, to: Position, after: int
) -> None:
    async def scenario(admin: Admin) -> None:
        name = f"Offline-{type(to).__name__}-{after}"
        queues = await filled(admin, name, name)
        for queue in queues:
            await admin.offsets.set(name, queue, 3)
        plan = await admin.offsets.plan_reset(name, name, to)
        assert [(each.queue, each.before, each.after) for each in plan] == [
            (queue, 3, after) for queue in queues
        ]
        assert set((await admin.offsets.read(name, name)).values()) == {3}, "a plan changes nothing"
        assert await admin.offsets.reset(name, name, to) == plan
        assert await admin.offsets.read(name, name) == dict.fromkeys(queues, after)

    administer((mq if kind == "kept by the broker" else by_clients).name_server, scenario)


def test_one_queue_is_reset_alone_and_without_force_none_goes_forward(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await filled(admin, "Some", "some")
        await admin.offsets.set("some", first, 1)
        await admin.offsets.set("some", second, 1)
        await admin.offsets.reset("some", "Some", AtOffset(3), queues=[second])
        assert await admin.offsets.read("some", "Some") == {first: 1, second: 3}
        await admin.offsets.reset("some", "Some", AtOffset(2), force=False)
        assert await admin.offsets.read("some", "Some") == {first: 1, second: 2}

    administer(mq.name_server, scenario)


def test_a_reset_that_cannot_be_made_whole_changes_nothing(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        queues = await filled(admin, "Whole", "whole")
        await send(admin, "Whole", b"one more", queue=queues[0])
        with pytest.raises(RequestRefusedError, match="Whole/broker-b/0 has no offset 5"):
            await admin.offsets.reset("whole", "Whole", AtOffset(5))
        with pytest.raises(NotFoundError, match="topic Whole has no queue broker-b:7"):
            await admin.offsets.reset(
                "whole", "Whole", QueueEdge.FIRST, queues=[MessageQueue("Whole", "broker-b", 7)]
            )
        with pytest.raises(NotFoundError, match="no route to topic Missing"):
            await admin.offsets.reset("whole", "Missing", QueueEdge.FIRST)
        assert set((await admin.offsets.read("whole", "Whole")).values()) == {None}
        with pytest.raises(RequestRefusedError, match="Group nobody does not exist"):
            await admin.offsets.reset("nobody", "Whole", QueueEdge.FIRST)

    administer(mq.name_server, scenario)


@pytest.mark.parametrize("kind", ["kept by the broker", "told to clients"])
def test_a_group_that_is_online_consumes_again_from_where_it_was_reset_to(
    mq: LocalCluster, by_clients: LocalCluster, kind: str
) -> None:
    running = mq if kind == "kept by the broker" else by_clients

    async def scenario(admin: Admin) -> None:
        queues = await filled(admin, "Online", "online")
        for queue in queues:
            await admin.offsets.set("online", queue, 0)
        got: list[bytes] = []

        async def listen(message: ReceivedMessage) -> None:
            got.append(message.body)

        member = PushConsumer(running.name_server, "online", listen)
        member.subscribe("Online")
        async with member:
            await until(lambda: _is(len(got) == 4 * len(queues)))
            await member.offsets.persist(queues)
            await admin.offsets.reset("online", "Online", QueueEdge.FIRST)
            for queue in queues:
                await send(
                    admin, "Online", b"4", queue=queue
                )  # which ends the wait of pulls, as a quarter of a minute would
            await until(
                lambda: _is(
                    all(got.count(body) == 2 * len(queues) for body in BODIES)
                    and got.count(b"4") >= len(queues)
                )
            )
        assert set((await admin.offsets.read("online", "Online")).values()) == {5}

    administer(running.name_server, scenario)


def test_an_older_broker_sets_members_that_are_online_by_time_only(
    by_clients: LocalCluster,
) -> None:
    async def scenario(admin: Admin) -> None:
        (queue,) = await filled(admin, "Older", "older")
        async with resident(by_clients.name_server, "older", "Older"):
            for to, queues in ((AtOffset(2), []), (QueueEdge.FIRST, [queue])):
                with pytest.raises(
                    RequestRefusedError,
                    match="only by time and for all queues together: stop the members of older first",
                ):
                    await admin.offsets.reset("older", "Older", to, queues=queues)

    administer(by_clients.name_server, scenario)


def test_a_group_goes_on_where_another_one_is(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        queues = await filled(admin, "Copied", "source")
        for offset, queue in enumerate(queues):
            await admin.offsets.set("source", queue, offset + 1)
        assert await admin.offsets.clone("source", "copy") == ["Copied"]
        assert await admin.offsets.read("copy", "Copied") == {
            queue: offset + 1 for offset, queue in enumerate(queues)
        }
        with pytest.raises(NotFoundError, match="group nobody has no offsets in topic Copied"):
            await admin.offsets.clone("nobody", "copy", "Copied")

    administer(mq.name_server, scenario)


async def _is(condition: bool) -> bool:
    return condition
