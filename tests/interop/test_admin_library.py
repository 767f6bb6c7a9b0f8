"""The admin library does the same work on ours and on Apache 5.5.0 and 4.9.7, and finds the same
values.

One script for all three. What differs on purpose stands in `DIFFERS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interop import apache
from interop.apache import Release
from interop.broker_clients import BROKER_NAME, Cluster, our_cluster, residents
from orbitmq.admin import Admin
from orbitmq.admin.messages import MessageTrack, TrackState
from orbitmq.admin.positions import AtOffset, QueueEdge
from orbitmq.client.consumer.push_consumer import PushConsumer
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectOutcome, QueueProgress
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from support.admin.cluster import Resident, resident, send
from support.common.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven"), pytest.mark.timeout(400)]

WITHIN_S = 240.0
BODIES = (b"0", b"1", b"2", b"3")
QUEUE = MessageQueue("T", BROKER_NAME, 0)
Values = dict[str, Any]

DIFFERS: dict[str, dict[str, Any]] = {
    "5.5.0": {},
    "4.9.7": {
        "attributes": {},  # of topics, which it does not know
        "no offsets": 0,  # of a queue that still has its first message
        "online exact": "RequestRefusedError",  # its members that are online go to times only
    },
}


async def topics(admin: Admin, values: Values) -> None:
    config = TopicConfig("T", 4, 2, attributes={"message.type": "NORMAL"})
    values["created"] = await admin.topics.create(config)
    values["attributes"] = dict((await admin.topics.configs("T"))[BROKER_NAME].attributes)
    values["config"] = {
        name: found._replace(attributes={})
        for name, found in (await admin.topics.configs("T")).items()
    }
    changed = await admin.topics.update(
        "T", lambda found: found._replace(perm=6, write_queue_nums=4)
    )
    values["updated"] = {name: found.write_queue_nums for name, found in changed.items()}
    values["route"] = [
        (each.broker_name, each.read_queue_nums, each.write_queue_nums, each.perm)
        for each in (await admin.topics.route("T")).queue_datas
    ]
    values["listed"] = (
        "T" in await admin.topics.names(),
        "T" in await admin.topics.names("DefaultCluster"),
    )
    await admin.topics.create(TopicConfig("Ordered", 1, 1, order=True))
    values["ordered"] = await admin.name_servers.kv_get("ORDER_TOPIC_CONFIG", "Ordered")
    values["deleted"] = await admin.topics.delete("Ordered")
    values["missing"] = await outcome(admin.topics.route("Ordered"))


async def messages(admin: Admin, values: Values) -> None:
    sent = [
        (await send(admin, "T", body, queue=QUEUE, tags="a", keys=f"k{number} all"))[0]
        for number, body in enumerate(BODIES)
    ]
    await until(lambda: count_is(admin, 4))
    stats = await admin.topics.stats("T")
    values["stats"] = {
        queue.queue_id: (ends.min_offset, ends.max_offset) for queue, ends in stats.queues.items()
    }
    await until(lambda: has_key(admin, "k3"))
    values["by place"] = shown(await admin.messages.by_offset_id(sent[1].offset_msg_id))
    values["by unique key"] = list(
        map(shown, await admin.messages.by_unique_key("T", sent[2].msg_id))
    )
    values["by key"] = list(map(shown, await admin.messages.by_key("T", "all")))
    values["viewed"] = shown(await admin.messages.view(QUEUE, 3))
    values["got by"] = [
        (await admin.messages.get(each, "T")).found_by
        for each in (sent[0].offset_msg_id, sent[0].msg_id, "k0")
    ]
    begin_ms, end_ms = [
        (await admin.messages.view(QUEUE, offset)).stored_at_ms for offset in (0, 3)
    ]
    values["by time"] = [
        shown(message) async for message in admin.messages.between("T", begin_ms, end_ms)
    ]
    values["by later time"] = [
        shown(message) async for message in admin.messages.between("T", end_ms + 1, end_ms + 1000)
    ]
    async with admin.messages.follow("T", QueueEdge.FIRST, "a") as following:
        values["followed"] = [shown(await anext(following)) for _ in BODIES]
    values["no such key"] = await admin.messages.by_key("T", "nothing")
    values["no such place"] = await outcome(admin.messages.view(QUEUE, 99))


async def groups_and_offsets(admin: Admin, values: Values) -> None:
    values["group created"] = await admin.groups.create(GroupConfig("g", retry_max_times=3))
    changed = await admin.groups.update("g", lambda config: replace(config, retry_queue_nums=2))
    values["group"] = {
        name: (each.retry_max_times, each.retry_queue_nums) for name, each in changed.items()
    }
    values["group listed"] = "g" in await admin.groups.names()
    values["ends"] = [
        await admin.offsets.first(QUEUE),
        await admin.offsets.end(QUEUE),
        await admin.offsets.at_time(QUEUE, 1),
    ]
    await admin.offsets.set("g", QUEUE, 3)
    values["set"] = await admin.offsets.committed("g", QUEUE)
    values["progress"] = lags(await admin.groups.progress("g", "T"))
    values["groups of topic"] = await admin.topics.groups("T")
    for to in (QueueEdge.FIRST, QueueEdge.LAST, AtOffset(2)):
        plan = await admin.offsets.reset("g", "T", to, queues=[QUEUE])
        values[f"reset {to}"] = (
            [(each.before, each.after) for each in plan],
            await admin.offsets.committed("g", QUEUE),
        )
    values["too far"] = await outcome(admin.offsets.reset("g", "T", AtOffset(99), queues=[QUEUE]))
    values["cloned"] = (
        await admin.offsets.clone("g", "copy", "T"),
        await admin.offsets.committed("copy", QUEUE),
    )


async def members(admin: Admin, values: Values) -> None:
    name_server = admin.session.settings.known_name_servers()[0]
    info = ConsumerRunningInfo(
        subscriptions=(SubscriptionData("T"),),
        queues={QUEUE: QueueProgress(cached_count=1000, last_pull_ms=admin.session.clock.now_ms())},
    )
    async with resident(name_server, "g", "T", info=info) as (client_id, member):
        found = await admin.groups.connections("g")
        values["members"] = [
            (each.client_id == client_id, each.language, each.version, each.brokers)
            for each in found.members
        ]
        values["wanted"] = (
            sorted(found.subscriptions),
            found.message_model,
            found.consume_type,
            found.consume_from_where,
        )
        values["running"] = await admin.groups.running_info("g", client_id) == info
        values["owner"] = [
            each.owner == client_id for each in (await admin.groups.progress("g", "T")).queues
        ]
        explained = await admin.groups.explain("g", seconds=0)
        values["explained"] = {
            each.queue.queue_id: (each.state.name, each.lag)
            for each in explained
            if each.queue.topic == "T"
        }
        values["by hand"] = await by_hand(admin, client_id, member)
        values["online exact"] = await outcome(
            admin.offsets.reset("g", "T", AtOffset(1), queues=[QUEUE])
        )
    values["offline"] = (await admin.groups.connections("g")).members


async def by_hand(
    admin: Admin, client_id: str, member: Resident
) -> tuple[str | None, str | None, int]:
    result = await admin.messages.consume_directly(
        "g", client_id, await admin.messages.view(QUEUE, 0)
    )
    return result.outcome and result.outcome.name, result.remark, len(member.consumed)


async def online_reset(admin: Admin, values: Values) -> None:
    got: list[bytes] = []

    async def listen(message: ReceivedMessage) -> None:
        got.append(message.body)

    await admin.groups.create(GroupConfig("reading"))
    for queue in await admin.offsets.queues("T"):
        await admin.offsets.set("reading", queue, 0)
    member = PushConsumer(admin.session.settings.known_name_servers()[0], "reading", listen)
    member.subscribe("T")
    async with member:
        await until(lambda: has(len(got) == 4))
        await until(lambda: is_committed(admin, "reading", 4))
        await admin.offsets.reset("reading", "T", QueueEdge.FIRST)
        await send(
            admin, "T", b"4", queue=QUEUE
        )  # which ends the wait of a pull, as a quarter of a minute would
        await until(lambda: has(all(got.count(body) == 2 for body in BODIES) and b"4" in got))
    values["consumed again"] = sorted(set(got))


async def servers(admin: Admin, values: Values) -> None:
    (place,) = await admin.cluster.brokers()
    values["place"] = place.cluster, place.name, place.broker_id
    runtime = await admin.cluster.runtime(place.address)
    values["runtime"] = (
        (runtime.put_today or 0) >= len(BODIES),
        runtime.log_first_offset,
        runtime.boot_ms is not None,
        runtime.disk_ratio is not None,
    )
    values["broker name"] = (await admin.cluster.config(place.address))["brokerName"]
    await admin.cluster.update_config(place.address, {"fileReservedTime": "48"})
    values["broker config"] = (await admin.cluster.config(place.address))["fileReservedTime"]
    await admin.name_servers.kv_put("ns", "k", "v")
    values["kv"] = (
        await admin.name_servers.kv_get("ns", "k"),
        await admin.name_servers.kv_list("ns"),
    )
    await admin.name_servers.kv_delete("ns", "k")
    values["no kv"] = await outcome(admin.name_servers.kv_get("ns", "k"))
    await admin.name_servers.wipe_write_perm(BROKER_NAME)
    values["wiped"] = {each.perm for each in (await admin.topics.route("T")).queue_datas}
    await admin.name_servers.add_write_perm(BROKER_NAME)
    values["added"] = {each.perm for each in (await admin.topics.route("T")).queue_datas}


async def the_end(admin: Admin, values: Values) -> None:
    values["group deleted"] = await admin.groups.delete("g")
    values["no offsets"] = await admin.offsets.committed("g", QUEUE)
    values["no group"] = await outcome(admin.groups.configs("g"))
    values["topic deleted"] = await admin.topics.delete("T")
    values["no topic"] = await outcome(admin.topics.stats("T"))


def script(name_server: str) -> Values:
    """Everything, and what it found."""
    values: Values = {}

    async def main(admin: Admin) -> None:
        for part in (topics, messages, groups_and_offsets, members, online_reset, servers, the_end):
            await part(admin, values)

    run(name_server, main)
    return values


def run(name_server: str, work: Callable[[Admin], Awaitable[None]]) -> None:
    """Do some work with an admin that has time."""

    async def main() -> None:
        settings = ClientSettings(name_servers=name_server, timeout_ms=20_000)
        async with asyncio.timeout(WITHIN_S), Admin(settings) as admin:
            await work(admin)

    asyncio.run(main())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Values:
    with our_cluster(tmp_path_factory.mktemp("ours") / "cluster") as cluster:
        return script(cluster.name_server.address)


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_the_same_work_finds_the_same_values(ours: Values, version: str, tmp_path: Path) -> None:
    release = Release(version).fetch()
    names = apache.name_server(release, tmp_path / "names")
    original = Cluster(
        names, apache.broker(release, tmp_path / "broker", [names.address], name=BROKER_NAME)
    )
    with apache.running(names), apache.running(original.broker):
        original.wait_registered()
        found = script(names.address)
    assert found == ours | DIFFERS[version]


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_a_java_consumer_tells_what_it_does_and_consumes_by_hand(
    version: str, tmp_path: Path
) -> None:
    async def look(admin: Admin, ids: dict[str, str]) -> None:
        (member,) = (await admin.groups.connections("residents")).members
        assert (member.language, member.version) == ("JAVA", f"V{version.replace('.', '_')}")
        info = await admin.groups.running_info("residents", member.client_id, with_stacks=True)
        queues = [queue for queue in info.queues if queue.topic == "Residents"]
        assert sorted(queues) == await admin.offsets.queues("Residents")
        assert all(info.queues[queue].last_pull_ms > 1_700_000_000_000 for queue in queues)
        assert (info.is_ordered, info.setting("pullBatchSize", 0)) == (False, 32)
        assert "ConsumeMessageThread" in (info.stacks or "")
        explained = await admin.groups.explain("residents", "Residents", seconds=0.5)
        assert [(each.state.is_fine, each.owner) for each in explained] == [
            (True, member.client_id)
        ] * len(queues)
        found = await admin.messages.get(ids["id"], "Residents")
        assert (found.found_by, found.message.offset_msg_id) == ("unique id", ids["offsetId"])
        result = await admin.messages.consume_directly("residents", member.client_id, found.message)
        assert result.outcome is DirectOutcome.CR_SUCCESS
        consumed = MessageTrack("residents", True, TrackState.CONSUMED)
        await until(
            lambda: is_tracked(admin, found.message, consumed)
        )  # a consumer commits when it is ten seconds old

    with our_cluster(tmp_path / "ours") as cluster:
        cluster.make_topics({"Residents": 4, "Others": 4})
        address = cluster.name_server.address
        with residents(Release(version).fetch(), tmp_path / "clients", address) as ids:
            run(address, lambda admin: look(admin, ids))


# -- questions of the script


async def outcome(work: Awaitable[object]) -> str:
    """How it ends: the name of the error, or that there was none."""
    try:
        await work
    except OrbitError as problem:
        return type(problem).__name__
    return "done"


async def has(condition: bool) -> bool:
    return condition


async def count_is(admin: Admin, count: int) -> bool:
    return (await admin.topics.stats("T")).message_count == count


async def has_key(admin: Admin, key: str) -> bool:
    return bool(await admin.messages.by_key("T", key))


async def is_committed(admin: Admin, group: str, offset: int) -> bool:
    return await admin.offsets.committed(group, QUEUE) == offset


async def is_tracked(admin: Admin, message: ReceivedMessage, expected: MessageTrack) -> bool:
    return await admin.messages.track(message) == [expected]


def shown(message: ReceivedMessage) -> tuple[Any, ...]:
    return message.queue, message.queue_offset, message.body, message.tags, message.keys


def lags(progress: Any) -> list[tuple[int, int, int, int]]:
    return [
        (each.queue.queue_id, each.broker_offset, each.consumer_offset, each.lag)
        for each in progress.queues
    ]
