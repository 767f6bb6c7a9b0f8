"""Topics as operators handle them, on two brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import Admin
from orbitmq.common.errors import (
    AlreadyExistsError,
    NotFoundError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.testing.local_cluster import LocalCluster
from support.admin.cluster import administer, send


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


def test_a_topic_is_made_on_every_master_and_clients_find_it_at_once(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        wanted = TopicConfig("Made", 3, 2, attributes={"message.type": "NORMAL"})
        assert await admin.topics.create(wanted) == ["broker-a", "broker-b"]
        assert await admin.topics.configs("Made") == {"broker-a": wanted, "broker-b": wanted}
        route = await admin.topics.route("Made")
        assert sorted(
            (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums)
            for queues in route.queue_datas
        ) == [
            ("broker-a", 3, 2),
            ("broker-b", 3, 2),
        ]
        assert "Made" in await admin.topics.names()
        assert "Made" in await admin.topics.names("DefaultCluster")
        assert await admin.topics.names("Nowhere") == []

    administer(mq.name_server, scenario)


def test_making_a_topic_again_changes_nothing_and_another_of_its_name_is_refused(
    mq: LocalCluster,
) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Twice", 4, 4), broker="broker-a")
        assert await admin.topics.create(TopicConfig("Twice", 4, 4)) == ["broker-a", "broker-b"]
        with pytest.raises(
            AlreadyExistsError,
            match="topic Twice already exists on broker-a with other settings",
        ):
            await admin.topics.create(TopicConfig("Twice", 8, 8))
        assert {
            config.read_queue_nums for config in (await admin.topics.configs("Twice")).values()
        } == {4}

    administer(mq.name_server, scenario)


def test_an_update_changes_what_it_names_and_leaves_the_rest(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(
            TopicConfig("Changed", 4, 4, attributes={"message.type": "NORMAL", "reserve.time": "5"})
        )
        await admin.topics.update(
            "Changed", lambda config: config._replace(perm=4), broker="broker-a"
        )
        found = await admin.topics.update(
            "Changed",
            lambda config: config._replace(
                write_queue_nums=6, read_queue_nums=6, attributes={"message.type": "FIFO"}
            ),
        )
        assert found == await admin.topics.configs("Changed")
        assert {name: (config.perm, config.read_queue_nums) for name, config in found.items()} == {
            "broker-a": (4, 6),
            "broker-b": (6, 6),
        }
        assert {tuple(config.attributes.items()) for config in found.values()} == {
            (("message.type", "FIFO"),)
        }
        with pytest.raises(
            NotFoundError, match="no topic Missing at broker-a, broker-b; create it"
        ):
            await admin.topics.update("Missing", lambda config: config)

    administer(mq.name_server, scenario)


def test_an_ordered_topic_tells_name_servers_its_queues(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Ordered", 4, 4, order=True))
        assert (
            await admin.name_servers.kv_get("ORDER_TOPIC_CONFIG", "Ordered")
            == "broker-a:4;broker-b:4"
        )
        await admin.topics.update(
            "Ordered", lambda config: config._replace(write_queue_nums=3), broker="broker-a"
        )
        assert (
            await admin.name_servers.kv_get("ORDER_TOPIC_CONFIG", "Ordered")
            == "broker-a:3;broker-b:4"
        )
        await admin.topics.update("Ordered", lambda config: config._replace(order=False))
        assert not any(config.order for config in (await admin.topics.configs("Ordered")).values())
        with pytest.raises(NotFoundError):
            await admin.name_servers.kv_get("ORDER_TOPIC_CONFIG", "Ordered")

    administer(mq.name_server, scenario)


def test_a_deleted_topic_is_gone_everywhere_with_its_messages(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Gone", 1, 1))
        await send(admin, "Gone", b"1", b"2")
        assert (await admin.topics.stats("Gone")).message_count == 2
        assert await admin.topics.delete("Gone") == ["broker-a", "broker-b"]
        for question in (
            admin.topics.route,
            admin.topics.configs,
            admin.topics.stats,
            admin.topics.delete,
        ):
            with pytest.raises(NotFoundError, match="no route to topic Gone"):
                await question("Gone")
        await admin.topics.create(TopicConfig("Gone", 1, 1))
        assert (await admin.topics.stats("Gone")).message_count == 0

    administer(mq.name_server, scenario)


def test_the_ends_of_queues_follow_what_is_sent(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topics.create(TopicConfig("Counted", 2, 2))
        queue = MessageQueue("Counted", "broker-b", 1)
        await send(admin, "Counted", b"1", b"2", b"3", queue=queue)
        stats = await admin.topics.stats("Counted")
        assert {
            each: (ends.min_offset, ends.max_offset) for each, ends in stats.queues.items()
        } == {
            MessageQueue("Counted", "broker-a", 0): (0, 0),
            MessageQueue("Counted", "broker-a", 1): (0, 0),
            MessageQueue("Counted", "broker-b", 0): (0, 0),
            queue: (0, 3),
        }
        assert stats.queues[queue].last_update_timestamp > 1_700_000_000_000
        assert not stats.unreachable

    administer(mq.name_server, scenario)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"cluster": "Nowhere"}, "there is no cluster Nowhere; there are DefaultCluster"),
        ({"broker": "broker-z"}, "no broker broker-z is registered; there are broker-a, broker-b"),
    ],
)
def test_a_place_that_is_not_there_is_said_to_be_so(
    mq: LocalCluster, target: dict[str, str], words: str
) -> None:
    async def scenario(admin: Admin) -> None:
        with pytest.raises(NotFoundError, match=words):
            await admin.topics.create(TopicConfig("Never"), **target)

    administer(mq.name_server, scenario)


def test_what_a_broker_refuses_is_told_with_its_address_and_reason(mq: LocalCluster) -> None:
    async def scenario(admin: Admin) -> None:
        with pytest.raises(
            RequestRefusedError,
            match=(
                rf"{mq.broker_address('broker-a')} refused: .* contains illegal"
                r" characters.*INVALID_PARAMETER"
            ),
        ):
            await admin.topics.create(TopicConfig("no topic"))
        with pytest.raises(NotFoundError, match="no route to topic no topic"):
            await admin.topics.route("no topic")

    administer(mq.name_server, scenario)


def test_a_broker_that_cannot_be_reached_is_named_beside_what_the_others_tell() -> None:
    with LocalCluster(brokers=2, topics={"T": 1}, partitions=True) as mq:

        async def scenario(admin: Admin) -> None:
            with mq.partition("broker-b", reset=True):
                stats = await admin.topics.stats("T")
                assert {queue.broker_name for queue in stats.queues} == {"broker-a"}
                assert list(stats.unreachable) == ["broker-b"]
                with pytest.raises(RemoteUnavailableError, match="cannot connect to"):
                    await admin.topics.update("T", lambda config: config._replace(perm=4))
                assert (await admin.topics.configs("T"))["broker-a"].perm == 6, (
                    "nothing is changed when not all can be"
                )
            with (
                mq.partition(reset=True),
                pytest.raises(RemoteUnavailableError, match="no broker replied"),
            ):
                await admin.topics.stats("T")

        administer(mq.name_server, scenario)


def test_without_any_broker_the_remedy_is_told() -> None:
    with LocalCluster() as mq:
        mq.stop_broker()

        async def scenario(admin: Admin) -> None:
            with pytest.raises(NotFoundError, match="no broker is registered; start one"):
                await admin.topics.create(TopicConfig("T"))

        administer(mq.name_server, scenario)
