"""Heartbeats: brokers know the members before they need them, also after losing a connection."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

from orbitmq.client.messages import Message
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.session.heartbeats import PAUSE_MS, Heartbeats
from orbitmq.client.settings import ClientSettings
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing.manual_clock import ManualClock
from support.client.scripted_broker import scripted_broker
from support.common.waiting import until
from support.remoting.peers import run


def test_a_broker_is_told_at_once_on_every_new_connection() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker, Producer(broker.address, group="g") as producer:
            await producer.send(Message("T", b"1"))
            for _ in range(2):
                await producer.session.announce()
            (first,) = broker.groups.values()
            assert len(broker.heartbeats_at) == 1
            first.close("as in a restart")
            await until(lambda: not producer.session.client.connections)
            await producer.send(Message("T", b"2"))
            await until(lambda: broker.groups["g"] is not first)
            assert len(broker.heartbeats_at) == 2

    run(scenario)


def test_a_broker_that_did_not_hear_it_is_told_again_but_not_by_everybody_who_comes() -> None:
    async def scenario() -> None:
        clock = ManualClock(1)
        async with scripted_broker() as broker:
            session = ClientSession(ClientSettings(name_servers=broker.address), clock)
            async with Producer(session, group="g") as producer:
                broker.heartbeat_code = ResponseCode.SYSTEM_BUSY
                await producer.queues("T")
                for _ in range(3):
                    await session.announce()
                assert len(broker.heartbeats_at) == 1, "it is left alone for a while"
                broker.heartbeat_code = ResponseCode.SUCCESS
                clock.advance_ms(PAUSE_MS)
                await session.announce()
                assert "g" in broker.groups
                assert len(broker.heartbeats_at) == 2
            await session.close()

    run(scenario)


def test_who_joins_while_a_heartbeat_is_under_way_is_told_of_by_another_one() -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            session = ClientSession(ClientSettings(name_servers=broker.address))
            async with Producer(session, group="a") as first:
                await first.queues("T")
                beat = asyncio.create_task(session.announce())
                await asyncio.sleep(0)
                async with Producer(session, group="b"):
                    await session.announce()
                    assert set(broker.groups) == {"a", "b"}
                await beat
            await session.close()

    run(scenario)


class Here:
    """A session as heartbeats see it: one member and one broker; `try_ask` is the broker's reply."""

    def __init__(self) -> None:
        self.members: list[Member] = [Member("a")]
        self.clock = ManualClock(1)
        self.client_id = "c"
        self.client = self
        self.heartbeats = Heartbeats(cast("ClientSession", self))
        self.sent = 0

    def broker_addresses(self) -> list[str]:
        return ["broker"]

    def connection_to(self, _address: str) -> None: ...

    async def try_ask(self, *_: object) -> bool:
        self.sent += 1
        if self.sent == 1:
            self.members.append(Member("b"))
            self.announcing = asyncio.create_task(self.heartbeats.announce())
            await asyncio.sleep(
                0
            )  # it goes on in the pass of the loop in which this heartbeat ends
        return True


class Member(NamedTuple):
    producer_group: str

    def consumer_data(self) -> None: ...


def test_who_joins_in_the_moment_in_which_a_heartbeat_ends_does_not_hang() -> None:
    async def scenario() -> None:
        here = Here()
        await here.heartbeats.announce()
        await here.announcing
        assert here.sent == 2
        await here.heartbeats.close()

    run(scenario)
