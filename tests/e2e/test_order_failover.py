"""Order when a member of a group fails: whoever takes its queues over begins where it was, when
nobody can be in the middle of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from orbitmq import ClientSettings, Message, Producer, PushConsumer, ReceivedMessage
from orbitmq.broker.clients.queue_locks import LOCK_MS_MAX
from orbitmq.testing import LocalCluster
from support.client.ordered_member import SETTINGS, Line, OrderedMember, check_order, of
from support.common.waiting import until

QUEUES = 4
COUNT = 400
COUNTS = dict.fromkeys(range(QUEUES), COUNT // QUEUES)
HELD = "another member of the group holds the lock of this queue"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(100):
            await scenario()

    asyncio.run(main())


async def fill(mq: LocalCluster) -> None:
    async with Producer(mq.name_server) as producer:
        queues = await producer.queues("T")
        for number in range(COUNT):
            await producer.send(Message("T", b"%d" % number), queue=queues[number % QUEUES])


class Members:
    """Those that consume here; what came to them, in that order, and whether two ever had the same
    queue.
    """

    def __init__(self, mq: LocalCluster) -> None:
        self._mq = mq
        self.lines: list[Line] = []
        self.overlaps: list[int] = []
        self._running: Counter[int] = Counter()

    def new(self, name: str) -> PushConsumer:
        settings = ClientSettings(name_servers=self._mq.name_server, instance_name=name)
        consumer = PushConsumer(
            settings, "g", self._listen, settings=replace(SETTINGS, retry_pause_ms=50)
        )
        consumer.subscribe("T")
        return consumer

    async def _listen(self, message: ReceivedMessage) -> None:
        line = of(message)
        self._running[line.queue_id] += 1
        if self._running[line.queue_id] > 1:
            self.overlaps.append(line.queue_id)
        await asyncio.sleep(0.002)
        self._running[line.queue_id] -= 1
        self.lines.append(line)


def all_came(lines: list[Line]) -> bool:
    return len({(line.queue_id, line.offset) for line in list(lines)}) == COUNT


def test_the_queues_of_a_member_whose_process_died_are_taken_over_when_its_locks_are_over() -> None:
    async def scenario() -> None:
        await fill(mq)
        first = OrderedMember(mq.name_server, "g", "T")
        await until(lambda: len(first.lines) > COUNT // 10)
        await asyncio.to_thread(first.kill)
        assert not all_came(first.lines)
        members = Members(mq)
        async with members.new("second") as second:
            await until(
                lambda: len([queue for queue in second.queues if queue.topic == "T"]) == QUEUES
            )
            whys = [
                queue.why for queue in (await second.explain()).queues if queue.queue.topic == "T"
            ]
            assert [why.startswith(HELD) for why in whys] == [True] * QUEUES, whys
            await asyncio.to_thread(mq.advance_ms, LOCK_MS_MAX - 1)
            assert members.lines == []
            await asyncio.to_thread(mq.advance_ms, 2_000)
            await until(lambda: all_came([*first.lines, *members.lines]))
        check_order([*first.lines, *members.lines], COUNTS)

    with LocalCluster(virtual_clock=True, topics={"T": QUEUES}) as mq:
        run(scenario)


def test_the_queues_of_a_member_that_leaves_are_taken_over_at_once() -> None:
    """Time stands still at the broker: no lock is ever over."""

    async def scenario() -> None:
        await fill(mq)
        members = Members(mq)
        async with members.new("second"):  # which has some from the start, and waits for the others
            async with members.new("first"):
                await until(lambda: len(members.lines) > COUNT // 10)
            await until(lambda: all_came(members.lines))
        check_order(members.lines, COUNTS)
        assert not members.overlaps

    with LocalCluster(virtual_clock=True, topics={"T": QUEUES}) as mq:
        run(scenario)


@pytest.mark.parametrize("reset", [True, False], ids=["connections break", "nothing arrives"])
def test_members_whose_connections_are_cut_again_and_again_keep_the_order(reset: bool) -> None:
    async def scenario() -> None:
        await fill(mq)
        members = Members(mq)
        async with members.new("first"), members.new("second"):
            for share in (10, 5, 2):
                await until(lambda share=share: len(members.lines) > COUNT // share)  # type: ignore[misc]
                await asyncio.to_thread(mq.partition, reset=reset)
                await asyncio.to_thread(mq.heal)
            await until(lambda: all_came(members.lines))
        check_order(members.lines, COUNTS)
        assert not members.overlaps

    with LocalCluster(partitions=True, topics={"T": QUEUES}) as mq:
        run(scenario)


def test_a_broker_that_dies_forgets_its_locks_and_who_had_them_asks_again_and_goes_on() -> None:
    async def scenario() -> None:
        await fill(mq)
        members = Members(mq)
        async with members.new("first"):
            for share in (10, 3):
                await until(lambda share=share: len(members.lines) > COUNT // share)  # type: ignore[misc]
                await asyncio.to_thread(mq.kill)
                await asyncio.to_thread(mq.restart)
            await until(lambda: all_came(members.lines))
        check_order(members.lines, COUNTS)
        assert not members.overlaps

    with LocalCluster(topics={"T": QUEUES}, broker={"flushDiskType": "SYNC_FLUSH"}) as mq:
        run(scenario)
