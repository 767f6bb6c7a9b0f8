"""Transactions of the client library with the original brokers, 5.5.0 and 4.9.7, and with ours;
Java producers and consumers take part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from interop.apache import Release
from interop.client_matrix_room import BESIDE_JAVA, cluster_of
from interop.java_peer import JavaPeer, java_peer
from orbitmq.admin import Admin
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage, TransactionState
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.client.settings import ClientSettings
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]

TOPICS = ("ForJava", "FromJava", "AnsweredHere", "AnsweredThere", "Stuck")
WITHIN_S = 60.0


class Room(NamedTuple):
    """A broker, and a Java client beside it."""

    name_server: str
    peer: JavaPeer


@pytest.fixture(scope="module", params=BESIDE_JAVA, ids="-".join)
def room(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Room]:
    broker, java = request.param
    home = module_home / "-".join(request.param)
    asks_soon = {
        "transactionCheckInterval": 1000,
        "transactionTimeOut": 1000,
        "transactionCheckMax": 1000,
    }
    with cluster_of(broker, home, asks_soon) as cluster:
        cluster.make_topics(dict.fromkeys(TOPICS, 2))
        with java_peer(Release(java).fetch(), home / "peer", cluster.name_server.address) as peer:
            yield Room(cluster.name_server.address, peer)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            await scenario()

    asyncio.run(main())


class Ledger:
    """The application's own record of its transactions: how each ends, when it is told and when it
    is asked.
    """

    def __init__(self, **states: list[TransactionState]) -> None:
        self._states = states  # what to say first, then; the last one again and again
        self.asked: list[str] = []

    def _next(self, key: str) -> TransactionState:
        states = self._states[key]
        return states.pop(0) if len(states) > 1 else states[0]

    def execute(self, message: Message, argument: object) -> TransactionState:
        assert isinstance(message.keys, str)
        if argument == "fails":
            raise OSError("the database is not there")
        return self._next(message.keys)

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message.keys[0])
        return self._next(message.keys[0])


COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


def test_consumers_see_what_was_committed_and_nothing_else(room: Room) -> None:
    ledger = Ledger(
        committed=[COMMIT],
        rolled_back=[ROLLBACK],
        failed=[ROLLBACK],
        committed_later=[UNKNOWN, UNKNOWN, COMMIT],
        rolled_back_later=[UNKNOWN, ROLLBACK],
        large=[COMMIT],
    )
    room.peer.do("consume", "java-consumers", "ForJava", until="consuming")

    async def scenario() -> None:
        async with TransactionProducer(
            room.name_server, group="ledger", execute=ledger.execute, check=ledger.check
        ) as producer:
            for key, state in (
                ("committed", COMMIT),
                ("rolled_back", ROLLBACK),
                ("committed_later", UNKNOWN),
                ("rolled_back_later", UNKNOWN),
            ):
                result = await producer.send_in_transaction(
                    Message("ForJava", f"body of {key}".encode(), keys=key)
                )
                assert (result.state, result.problem) == (state, None)
            result = await producer.send_in_transaction(
                Message("ForJava", b"x", keys="failed"), "fails"
            )
            assert (result.state, str(result.problem)) == (UNKNOWN, "the database is not there")
            await producer.send_in_transaction(Message("ForJava", b"x" * 10_000, keys="large"))
            await until(
                lambda: {"committed_later", "rolled_back_later", "failed"} <= set(ledger.asked)
            )
            for key in ("committed", "committed_later", "large"):
                await asyncio.to_thread(room.peer.wait_for, "consumed", topic="ForJava", key=key)

    run(scenario)
    found = {
        event["key"]: event["body"] for event in room.peer.happened("consumed", topic="ForJava")
    }
    assert found == {
        "committed": "body of committed",
        "committed_later": "body of committed_later",
        "large": "x" * 10_000,
    }


def test_what_a_java_producer_committed_is_consumed_here(room: Room) -> None:
    async def scenario() -> None:
        found: list[ReceivedMessage] = []
        consumer = consuming(room, "FromJava", found)
        async with consumer:
            for key, state in (
                ("a", "COMMIT_MESSAGE"),
                ("b", "ROLLBACK_MESSAGE"),
                ("c", "COMMIT_MESSAGE"),
            ):
                await asyncio.to_thread(
                    room.peer.do,
                    "transact",
                    "java-producers",
                    "FromJava",
                    key,
                    state,
                    until="transacted",
                )
            await until(lambda: {message.keys[0] for message in found} == {"a", "c"})
        assert {message.body for message in found} == {b"body of a", b"body of c"}

    room.peer.order("check", "java-producers", "FromJava", "ROLLBACK_MESSAGE")
    run(scenario)


def test_a_producer_here_answers_for_a_java_producer_of_its_group(room: Room) -> None:
    ledger = Ledger(theirs=[COMMIT])
    room.peer.do("transact", "mixed-group", "AnsweredHere", "theirs", "UNKNOW", until="transacted")

    async def scenario() -> None:
        found: list[ReceivedMessage] = []
        producer = TransactionProducer(
            room.name_server,
            group="mixed-group",
            execute=ledger.execute,
            check=ledger.check,
            topics=["AnsweredHere"],
        )
        async with producer, consuming(room, "AnsweredHere", found):
            await until(lambda: [message.body for message in found] == [b"body of theirs"])

    run(scenario)
    assert set(ledger.asked) == {"theirs"}


def test_a_java_producer_answers_for_one_of_its_group_that_is_gone(room: Room) -> None:
    ledger = Ledger(ours=[UNKNOWN])

    async def scenario() -> None:
        async with TransactionProducer(
            room.name_server, group="mixed-group-2", execute=ledger.execute, check=ledger.check
        ) as producer:
            await producer.send_in_transaction(Message("AnsweredThere", b"mine", keys="ours"))
        await asyncio.to_thread(
            room.peer.do,
            "check",
            "mixed-group-2",
            "AnsweredThere",
            "COMMIT_MESSAGE",
            until="checking",
        )
        await asyncio.to_thread(room.peer.wait_for, "checked", key="ours")
        found: list[ReceivedMessage] = []
        async with consuming(room, "AnsweredThere", found):
            await until(lambda: [message.body for message in found] == [b"mine"])

    run(scenario)


def consuming(room: Room, topic: str, found: list[ReceivedMessage]) -> PushConsumer:
    settings = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(
        room.name_server, f"consumers-of-{topic}", found.append, settings=settings
    )
    consumer.subscribe(topic)
    return consumer


def test_an_operator_sees_what_is_open_and_ends_it(room: Room) -> None:
    ledger = Ledger(stuck=[UNKNOWN])

    async def scenario() -> None:
        found: list[ReceivedMessage] = []
        async with (
            TransactionProducer(
                room.name_server, group="stuck-group", execute=ledger.execute, check=ledger.check
            ) as producer,
            Admin(ClientSettings(name_servers=room.name_server, timeout_ms=15_000)) as admin,
        ):
            message_id = (
                await producer.send_in_transaction(Message("Stuck", b"stuck", keys="stuck"))
            ).sent.msg_id
            await until(lambda: bool(ledger.asked))
            half = await admin.transactions.find(message_id)
            assert (half.half.group, half.half.topic, half.stored.body) == (
                "stuck-group",
                "Stuck",
                b"stuck",
            )
            assert [each.client_id for each in await admin.transactions.producers(half)] == [
                producer.session.client_id
            ]
            await admin.transactions.resolve(half, COMMIT)
            async with consuming(room, "Stuck", found):
                await until(lambda: [message.body for message in found] == [b"stuck"])

    run(scenario)
