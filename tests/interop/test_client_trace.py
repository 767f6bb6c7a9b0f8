"""The trace of the client library beside that of Java, with 5.5.0, 4.9.7 and ours: each reads what
the other wrote; `mqadmin` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop.apache import Release
from interop.broker_clients import admin
from interop.client_matrix_room import BESIDE_JAVA, cluster_of, tools_of
from interop.java_peer import JavaPeer, java_peer
from interop.programs import Admin
from orbitmq.client import trace_records
from orbitmq.client.consumer.push_consumer import ConsumeLater, ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage, TransactionState
from orbitmq.client.observers import SendObserver, TransactionEnd
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.client.trace import Trace
from orbitmq.client.trace_records import (
    Consumed,
    ConsumeStarted,
    MessageKind,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
)
from orbitmq.common.topic_names import TRACE_TOPIC
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from support.common.waiting import until, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]

FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


class Room(NamedTuple):
    """A broker of one release, or of ours, a traced Java client, and `mqadmin`."""

    is_5: bool
    name_server: str
    broker: str
    peer: JavaPeer
    admin: Admin


@pytest.fixture(scope="module", params=BESIDE_JAVA, ids="-".join)
def room(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Room]:
    broker, java = request.param
    home, release = module_home / "-".join(request.param), Release(java).fetch()
    settings = {
        "traceTopicEnable": "true",
        "transactionCheckInterval": 1000,
        "transactionTimeOut": 1000,
        "transactionCheckMax": 1000,
    }
    with cluster_of(broker, home, settings) as cluster:
        address = cluster.name_server.address
        cluster.make_topics({"Traced": 1, "Transactions": 1, "Java": 1})
        with (
            java_peer(release, home / "peer", address, is_traced=True) as peer,
            admin(tools_of(broker), home / "admin") as mqadmin,
        ):
            yield Room(release.is_5, address, cluster.broker.address, peer, mqadmin)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(main())


def read_trace(
    name_server: str, group: str, is_enough: Callable[[Sequence[ReceivedMessage]], bool]
) -> list[ReceivedMessage]:
    """Read the topic of traces from its beginning, until that is enough."""
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        consumer = PushConsumer(name_server, group, found.append, settings=FROM_FIRST)
        consumer.subscribe(TRACE_TOPIC)
        async with consumer:
            await until(lambda: is_enough(list(found)))

    run(scenario)
    return found


def records_of(messages: Sequence[ReceivedMessage]) -> list[TraceRecord]:
    return [
        record for message in messages for record in trace_records.decode(message.body.decode())
    ]


def test_what_a_java_client_writes_is_read_and_written_here_byte_by_byte(room: Room) -> None:
    peer = room.peer
    peer.do("consume", "java-consumers", "Java", until="consuming")
    sent = [
        peer.do("send", "java-producers", "Java", key, body, until="sent")
        for key, body in (("k1 k2", "x"), ("k3", "y" * 5000))
    ]
    ended = peer.do(
        "transact", "java-transactions", "Java", "t1", "COMMIT_MESSAGE", until="transacted"
    )
    for key in ("k1 k2", "k3", "t1"):
        peer.wait_for("consumed", key=key)

    def is_enough(messages: Sequence[ReceivedMessage]) -> bool:
        found = [(type(record), record.msg_id) for record in records_of(messages)]
        wanted = [(Published, event["id"]) for event in sent] + [
            (Consumed, event["id"]) for event in (*sent, ended)
        ]
        return {*wanted, (TransactionEnded, ended["id"])} <= set(found)

    messages = read_trace(room.name_server, "readers-of-java", is_enough)
    for message in messages:
        text = message.body.decode()
        assert "".join(map(trace_records.encode, trace_records.decode(text))) == text
        ids = {
            key for record in trace_records.decode(text) for key in trace_records.index_keys(record)
        }
        assert ids == set(message.keys)
    records = records_of(messages)
    published = {record.msg_id: record for record in records if isinstance(record, Published)}
    for event in sent:
        record = published[event["id"]]
        assert (record.group, record.topic, record.keys, record.tags) == (
            "java-producers",
            "Java",
            event["key"],
            "tag",
        )
        assert (record.store_host, record.offset_msg_id, record.is_success) == (
            room.broker,
            event["offsetId"],
            True,
        )
        assert record.kind is MessageKind.NORMAL
    ends = [
        record
        for record in records
        if isinstance(record, TransactionEnded) and not record.from_check
    ]
    assert [(end.msg_id, end.state, end.transaction_id) for end in ends] == [
        (ended["id"], TransactionState.COMMIT, ended["id"])
    ]
    begun = {record.request_id for record in records if isinstance(record, ConsumeStarted)}
    assert begun == {record.request_id for record in records if isinstance(record, Consumed)}


class Ends(SendObserver):
    """Keeps how transactions ended."""

    def __init__(self) -> None:
        self.from_checks: list[str] = []

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        if end.from_check:
            self.from_checks.append(end.msg_id)


class Done(NamedTuple):
    """The ids of what was sent here."""

    sent: str
    batch: set[str]
    transaction: str


async def do_all_that_is_traced(name_server: str) -> Done:
    received: list[ReceivedMessage] = []

    def listen(message: ReceivedMessage) -> None:
        received.append(message)
        if message.tags == "refused" and message.reconsume_times == 0:
            raise ConsumeLater(1)

    session = ClientSession(ClientSettings(name_servers=name_server))
    consumer = PushConsumer(session, "consumers", listen, settings=FROM_FIRST)
    consumer.subscribe("Traced")
    producer = Producer(session, group="producers")
    ledger = TransactionProducer(
        session,
        group="ledger",
        execute=lambda *_: TransactionState.UNKNOWN,
        check=lambda _: TransactionState.COMMIT,
    )
    ends = Ends()
    async with Trace(session) as trace:
        producer.observers.append(trace)
        ledger.observers += [trace, ends]
        consumer.observers.append(trace)
        async with producer, ledger, consumer:
            sent = await producer.send(
                Message("Traced", b"hello", tags="refused", keys=["k1", "k2"])
            )
            await producer.send_batch([Message("Traced", b"%d" % number) for number in range(3)])
            half = (await ledger.send_in_transaction(Message("Transactions", b"x", keys="t"))).sent
            await until(lambda: len(received) == 5 and half.msg_id in ends.from_checks)
    await session.close()
    assert trace.dropped_count == 0
    return Done(sent.msg_id, {message.msg_id for message in received} - {sent.msg_id}, half.msg_id)


@pytest.fixture(scope="module")
def done(room: Room) -> Done:
    async def main() -> Done:
        async with asyncio.timeout(60):
            return await do_all_that_is_traced(room.name_server)

    return asyncio.run(main())


def contexts_of(room: Room, done: Done, msg_id: str) -> list[dict[str, Any]]:
    """What the original's own decoder finds of a message in the bodies that were written here."""
    messages = read_trace(
        room.name_server,
        f"readers-of-{msg_id}",
        lambda found: any(done.transaction in each.keys for each in found),
    )
    wanted = [message for message in messages if msg_id in message.keys]
    return [
        context
        for message in wanted
        for context in decoded(room, message.body.decode())
        if context["id"] == msg_id
    ]


def decoded(room: Room, text: str) -> list[dict[str, Any]]:
    """What the original's own decoder reads."""
    before = len(room.peer.happened("decoded"))
    room.peer.do("decode", text.replace("\x01", "^").replace("\x02", "|"), until="decoded all")
    return [event["context"] for event in room.peer.happened("decoded")[before:]]


def test_the_original_reads_what_is_written_here(room: Room, done: Done) -> None:
    found = contexts_of(room, done, done.sent)
    assert [context["type"] for context in found].count("Pub") == 1
    (published,) = [context for context in found if context["type"] == "Pub"]
    expected = {
        "group": "producers",
        "topic": "Traced",
        "tags": "refused",
        "keys": "k1 k2",
        "host": room.broker,
        "size": 5,
    }
    assert expected.items() <= published.items()
    assert {
        "kind": "Normal_Msg",
        "success": True,
        "region": "DefaultRegion",
    }.items() <= published.items()
    before = [context for context in found if context["type"] == "SubBefore"]
    after = [context for context in found if context["type"] == "SubAfter"]
    assert {context["retries"] for context in before} == {0, 1}
    assert {(context["success"], context["code"]) for context in after} == {(False, 4), (True, 0)}
    assert sorted(context["request"] for context in before) == sorted(
        context["request"] for context in after
    )
    assert {context["group"] for context in before + after} == {"consumers"}


def test_the_original_reads_of_transactions(room: Room, done: Done) -> None:
    found = contexts_of(room, done, done.transaction)
    assert [context["kind"] for context in found if context["type"] == "Pub"] == ["Trans_Msg_Half"]
    ends = [context for context in found if context["type"] == "EndTransaction"]
    states = [(context["state"], context["fromCheck"]) for context in ends]
    assert states[0] == ("UNKNOW", False)
    assert set(states[1:]) == {("COMMIT_MESSAGE", True)}
    assert {(context["topic"], context["host"], context["kind"]) for context in ends} == {
        ("Transactions", room.broker, "Trans_msg_Commit")
    }


def test_releases_that_know_recalls_read_those_of_here(room: Room) -> None:
    record = Recalled(1_700_000_000_000, "region", "group", "topic", "ID", is_success=True)
    found = decoded(room, trace_records.encode(record))
    expected = {
        "type": "Recall",
        "time": record.time_ms,
        "region": "region",
        "group": "group",
        "topic": "topic",
        "id": "ID",
        "success": True,
    }
    assert [expected.items() <= context.items() for context in found] == (
        [True] if room.is_5 else []
    )


def test_mqadmin_shows_the_trace_of_a_message(room: Room, done: Done) -> None:
    wait_until(
        lambda: len(shown(room, done.sent)) >= 3, "mqadmin shows the trace"
    )  # an index needs its time
    kinds = [(words[0], words[1], words[-1]) for words in shown(room, done.sent)]
    assert sorted(kinds) == [
        ("Pub", "producers", "success"),
        ("Sub", "consumers", "failed"),
        ("Sub", "consumers", "success"),
    ]


def test_mqadmin_shows_the_trace_of_each_message_of_a_batch(room: Room, done: Done) -> None:
    if len(done.batch) == 1:
        pytest.skip("4.9 brokers give the messages of a batch one id")
    assert len(done.batch) == 3
    for msg_id in done.batch:
        wait_until(lambda msg_id=msg_id: len(shown(room, msg_id)) >= 2, f"mqadmin shows {msg_id}")  # type: ignore[misc]
        assert sorted(words[0] for words in shown(room, msg_id)) == ["Pub", "Sub"]


def shown(room: Room, msg_id: str) -> list[list[str]]:
    """The lines of `mqadmin queryMsgTraceById`, word by word, without its headings."""
    said = room.admin("queryMsgTraceById", "-n", room.name_server, "-i", msg_id)
    return [line.split() for line in said.splitlines() if line.startswith(("Pub", "Sub"))]
