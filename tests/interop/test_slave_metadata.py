"""A slave of ours takes over the tables of real masters of both lines, by Apache's requests at the
main port.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop import apache, subject
from interop.apache import Release, Server
from interop.frames import Request, ask
from orbitmq.broker.roles import slave_sync
from orbitmq.broker.roles.slave_sync import MasterKind
from orbitmq.common.topic_names import PREDEFINED_GROUPS
from orbitmq.testing.manual_clock import ManualClock
from support.broker.slave import Slave, slave
from support.common.waiting import until, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

TOPICS = [f"Mail{number}" for number in range(12)]
PAGES = {"splitMetadataSize": 5}  # of 5.x: its topics and groups take several pages
# Otherwise 5.5.0 creates a group again while it deletes it.
KEPT_DELETED = {"autoCreateSubscriptionGroup": "false"}


@pytest.fixture(scope="module")
def name_server(module_home: Path) -> Iterator[Server]:
    server = subject.name_server(module_home / "names")
    with apache.running(server):
        yield server


@pytest.fixture
def master(release: Release, name_server: Server, tmp_path: Path) -> Iterator[Server]:
    """A broker of a release, with topics, groups, messages and offsets."""
    settings = KEPT_DELETED | (PAGES if release.is_5 else {})
    broker = apache.broker(
        release, tmp_path / "master", [name_server.address], name="a", settings=settings
    )
    with apache.running(broker):
        wait_until(lambda: asked(broker, 28) is not None, "the broker serves")
        for topic in TOPICS:
            make_topic(broker, topic)
        for number in range(12):
            group = {"groupName": f"g{number}", "consumeEnable": True, "retryQueueNums": 2}
            assert ask(broker.address, Request(200, {}, json.dumps(group).encode())).code == 0
        yield broker


def asked(broker: Server, code: int, **fields: str) -> Any:
    """The JSON of an answer; None if it was refused."""
    answer = ask(broker.address, Request(code, fields))
    return answer.json() if answer.code == 0 else None


def make_topic(broker: Server, topic: str, queues: int = 3) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    assert ask(broker.address, Request(17, fields)).code == 0


def commit(broker: Server, group: str, topic: str, offset: int) -> None:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "1",
        "commitOffset": str(offset),
    }
    assert ask(broker.address, Request(15, fields)).code == 0


def send(broker: Server, topic: str, properties: str = "") -> None:
    fields = {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": "3",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01x\x02{properties}",
        "j": "0",
        "k": "false",
    }
    answer = ask(broker.address, Request(310, fields, b"hello"))
    assert answer.code == 0, answer


def all_topics(broker: Server) -> dict[str, Any]:
    table: dict[str, Any] = asked(broker, 21)["topicConfigTable"]
    return table


async def next_tables(follower: Slave, clock: ManualClock) -> None:
    """Run the tick that asks for everything again."""
    clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
    await follower.tick()


def test_a_slave_takes_over_the_tables_of_a_real_master(
    master: Server, release: Release, tmp_path: Path
) -> None:
    send(master, TOPICS[0])
    commit(master, "g1", TOPICS[0], 1)

    async def scenario() -> None:
        clock = ManualClock()
        async with slave(tmp_path / "slave", master.address, clock) as follower:
            await follower.tick()
            own = follower.components.metadata
            assert follower.sync.kind is MasterKind.STOCK
            theirs = all_topics(master)
            assert set(TOPICS) < set(theirs)
            for name, config in theirs.items():
                ours = own.topics.find(name)
                assert ours is not None, name
                assert ours.read_queue_nums == config["readQueueNums"]
            assert all(name in theirs or own.topics.is_system(name) for name in own.topics.table)
            version = asked(master, 21)["dataVersion"]
            assert own.topics.data_version.counter == version["counter"]
            assert own.topics.data_version.timestamp == version["timestamp"]
            groups = own.groups.table
            assert [groups[f"g{number}"].retry_queue_nums for number in range(12)] == [2] * 12
            assert own.offsets.of("g1", TOPICS[0]) == {1: 1}

            make_topic(master, TOPICS[1], queues=7)
            assert ask(master.address, Request(215, {"topic": TOPICS[2]})).code == 0
            assert ask(master.address, Request(207, {"groupName": "g3"})).code == 0
            commit(master, "g1", TOPICS[0], 5)
            await follower.tick()  # ten seconds are not over
            assert TOPICS[2] in own.topics.table
            await next_tables(follower, clock)
            changed = own.topics.find(TOPICS[1])
            assert changed is not None
            assert changed.read_queue_nums == 7
            assert TOPICS[2] not in own.topics.table
            assert follower.deleted == [TOPICS[2]]
            theirs = asked(master, 201)["subscriptionGroupTable"]
            assert set(own.groups.table) - set(theirs) <= set(PREDEFINED_GROUPS)
            assert set(theirs) <= set(own.groups.table)
            assert "g3" not in own.groups
            assert own.offsets.of("g1", TOPICS[0]) == {1: 5}

    asyncio.run(scenario())


def test_a_slave_takes_over_the_delivery_progress_of_a_real_master(
    master: Server, release: Release, tmp_path: Path
) -> None:
    send(master, TOPICS[0], "DELAY\x011\x02")

    async def scenario() -> None:
        clock = ManualClock()
        async with slave(tmp_path / "slave", master.address, clock) as follower:
            levels = follower.components.delay.levels
            await follower.tick()

            async def is_delivered() -> bool:
                await next_tables(follower, clock)
                return levels.content().offsets.get(1) == 1

            await until(is_delivered, "the progress of the first level")
            timed = follower.components.delay.timed
            assert timed is not None
            assert (timed.files.check.read_time_ms > 0) == release.is_5

    asyncio.run(scenario())


def test_modes_of_a_real_master_are_taken_over(
    apache_5: Release, name_server: Server, tmp_path: Path
) -> None:
    broker = apache.broker(apache_5, tmp_path / "master", [name_server.address], name="a")
    with apache.running(broker):
        wait_until(lambda: asked(broker, 28) is not None, "the broker serves")
        make_topic(broker, TOPICS[0])
        mode = {"topic": TOPICS[0], "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3}
        assert ask(broker.address, Request(401, {}, json.dumps(mode).encode())).code == 0

        async def scenario() -> None:
            async with slave(tmp_path / "slave", broker.address) as follower:
                await follower.tick()
                found = follower.components.metadata.modes.find(TOPICS[0], "g")
                assert found is not None
                assert (found.mode, found.pop_share_queue_num) == ("POP", 3)

        asyncio.run(scenario())


def test_a_real_master_that_is_gone_leaves_what_was_taken_over(
    master: Server, tmp_path: Path
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with slave(tmp_path / "slave", master.address, clock) as follower:
            await follower.tick()
            master.stop()
            clock.advance_ms(slave_sync.STOCK_TABLES_PERIOD_MS)
            await follower.sync.run_once()
            assert follower.sync.problem is not None
            assert "topics" in follower.sync.problem
            assert set(TOPICS) < set(follower.components.metadata.topics.table)
            await follower.sync.run_once()
            assert follower.sync.kind is MasterKind.UNKNOWN

    asyncio.run(scenario())
