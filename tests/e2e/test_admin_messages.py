"""Messages as operators look for them: by id, key, place and time, as they come, and by hand to a
consumer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import Admin
from orbitmq.admin.messages import TrackState
from orbitmq.admin.positions import AtStoreTime, QueueEdge
from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import InvalidMessageError, NotFoundError, RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.running_info import DirectOutcome, DirectResult
from orbitmq.protocol.bodies.subscriptions import SQL92
from orbitmq.testing.local_cluster import LocalCluster
from support.admin.cluster import administer, resident, send


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, topics={"T": 1}) as running:
        yield running


def test_a_message_is_found_by_place_by_unique_id_and_by_key(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        queue = MessageQueue("T", "broker-b", 0)
        (sent,) = await send(
            admin, "T", "grüß".encode() * 2000, queue=queue, tags="a", keys="k1 k2"
        )
        for found in (
            await admin.messages.by_offset_id(sent.offset_msg_id),
            (await admin.messages.by_unique_key("T", sent.msg_id))[0],
            (await admin.messages.by_key("T", "k2"))[0],
            await admin.messages.view(queue, sent.queue_offset),
        ):
            assert isinstance(found, ReceivedMessage)
            assert (found.queue, found.queue_offset, found.msg_id) == (
                queue,
                sent.queue_offset,
                sent.msg_id,
            )
            assert (found.body, found.tags, found.keys) == (
                "grüß".encode() * 2000,
                "a",
                ("k1", "k2"),
            )
        for kind, message_id in (
            ("place", sent.offset_msg_id),
            ("unique id", sent.msg_id),
            ("key", "k1"),
        ):
            for topic in ("T", None):
                got = await admin.messages.get(message_id, topic)
                assert (got.found_by, got.message.msg_id) == (kind, sent.msg_id)
        assert got.looked[0] == "by offset id: it is not an offset id"

    administer(mq.name_server, scenario)


def test_what_is_not_there_is_said_to_be_so_with_where_it_was_looked_for(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        with pytest.raises(
            NotFoundError,
            match=(
                r"no message nowhere was found; searched by offset id: .*; by unique id in topic T;"
                r" by key"
            ),
        ):
            await admin.messages.get("nowhere", "T")
        with pytest.raises(InvalidMessageError, match="is not a message id"):
            await admin.messages.by_offset_id("nowhere")
        with pytest.raises(
            NotFoundError, match="where no broker is registered; registered brokers: 127"
        ):
            await admin.messages.by_offset_id("0A0000010000000100000000000000FF")
        address = mq.broker_address("broker-a")
        port = int(address.partition(":")[2])
        with pytest.raises(
            NotFoundError, match=f"{address} has no message at offset 999999999 of its commit log"
        ):
            await admin.messages.by_offset_id(f"7F000001{port:08X}{999_999_999:016X}")
        with pytest.raises(NotFoundError, match="T/broker-a/0 has no message at offset 77"):
            await admin.messages.view(MessageQueue("T", "broker-a", 0), 77)
        assert await admin.messages.by_key("T", "nowhere") == []
        assert await admin.messages.by_unique_key("T", "nowhere") == []
        with pytest.raises(NotFoundError, match="no route to topic Missing"):
            await admin.messages.by_key("Missing", "k")

    administer(mq.name_server, scenario)


def test_messages_of_a_time_come_in_order_from_all_queues(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Timed", 2, 2))
        queues = await admin.offsets.queues("Timed")
        for number in range(100):
            await send(
                admin,
                "Timed",
                b"%d" % number,
                queue=queues[number % 4],
                tags="even" if number % 2 == 0 else "odd",
            )
        found = [message async for message in admin.messages.between("Timed", 0, 1 << 62)]
        times = [message.stored_at_ms for message in found]
        assert times == sorted(times)
        assert sorted(int(message.body) for message in found) == list(range(100))
        begin, end = times[30], times[60]
        some = [message async for message in admin.messages.between("Timed", begin, end)]
        assert sorted(message.msg_id for message in some) == sorted(
            message.msg_id for message in found if begin <= message.stored_at_ms <= end
        )
        odd = [
            message.msg_id async for message in admin.messages.between("Timed", begin, end, "odd")
        ]
        assert odd == [message.msg_id for message in some if message.tags == "odd"]
        assert [
            message async for message in admin.messages.between("Timed", end + 60_000, end + 70_000)
        ] == []
        assert [message async for message in admin.messages.by_time(queues[0], 1, 2)] == []

    administer(mq.name_server, scenario)


def test_messages_are_followed_as_they_come(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Followed", 2, 2))
        await send(admin, "Followed", b"before")
        async with (
            admin.messages.follow("Followed") as new,
            admin.messages.follow("Followed", QueueEdge.FIRST) as everything,
        ):
            assert len(new.queues) == 4
            await send(admin, "Followed", b"1", b"2", b"3", tags="a")
            async with admin.messages.follow("Followed", AtStoreTime(0), "a") as tagged:
                assert sorted([(await anext(new)).body for _ in range(3)]) == [b"1", b"2", b"3"]
                assert sorted([(await anext(everything)).body for _ in range(4)]) == [
                    b"1",
                    b"2",
                    b"3",
                    b"before",
                ]
                assert sorted([(await anext(tagged)).body for _ in range(3)]) == [b"1", b"2", b"3"]
            assert "TOOLS_CONSUMER" not in await admin.topics.groups("Followed"), (
                "reading keeps no offsets"
            )

    administer(mq.name_server, scenario)


def test_what_a_broker_refuses_ends_the_following(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        async with admin.messages.follow("T", QueueEdge.LAST, "a = ", SQL92) as messages:
            with pytest.raises(RequestRefusedError, match="SQL92"):
                await anext(messages)

    administer(mq.name_server, scenario)


def test_following_what_is_not_there_says_so(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        with pytest.raises(NotFoundError, match="no route to topic Missing"):
            async with admin.messages.follow("Missing"):
                pass

    administer(mq.name_server, scenario)


def test_a_member_consumes_one_message_by_hand(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        (sent,) = await send(admin, "T", b"again")
        message = await admin.messages.by_offset_id(sent.offset_msg_id)
        async with resident(mq.name_server, "by-hand", "T") as (client_id, member):
            result = await admin.messages.consume_directly("by-hand", client_id, message)
            assert result == DirectResult(outcome=DirectOutcome.CR_LATER, remark="not now")
            assert member.consumed == [sent.offset_msg_id]
            with pytest.raises(RequestRefusedError, match="<by-hand> <x> not online"):
                await admin.messages.consume_directly("by-hand", "x", message)

    administer(mq.name_server, scenario)


def test_what_became_of_a_message_is_told_for_each_group(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Tracked", 1, 1), broker="broker-a")
        (queue,) = await admin.offsets.queues("Tracked")
        await send(admin, "Tracked", b"1", b"2", tags="a")
        for group in ("tracking", "late"):
            await admin.groups.create(GroupConfig(group))
        await admin.offsets.set("tracking", queue, 1)
        await admin.offsets.set("late", queue, 0)
        found = {
            track.group: track.state
            for track in await admin.messages.track(await admin.messages.view(queue, 0))
        }
        assert found == {"tracking": TrackState.CONSUMED, "late": TrackState.NOT_YET}
        async with resident(mq.name_server, "tracking", "Tracked"):
            tracks = await admin.messages.track(await admin.messages.view(queue, 1))
            assert {track.group: (track.is_online, track.state) for track in tracks} == {
                "tracking": (True, TrackState.NOT_YET),
                "late": (False, TrackState.NOT_YET),
            }

    administer(mq.name_server, scenario)
