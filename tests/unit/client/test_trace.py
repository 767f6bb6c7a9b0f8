"""The trace: the records it publishes, and that it never slows down its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from orbitmq.client import trace_records
from orbitmq.client.consumer.push_consumer import ConsumeLater
from orbitmq.client.messages import (
    Message,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionState,
)
from orbitmq.client.observers import ConsumeOutcome, Recall, TransactionEnd
from orbitmq.client.producer.producer import Producer
from orbitmq.client.trace import Trace, TraceSettings
from orbitmq.client.trace_records import (
    Consumed,
    ConsumeStarted,
    MessageKind,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
)
from orbitmq.common.errors import SendFailedError
from orbitmq.common.topic_names import TRACE_TOPIC
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.message import hosts, properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue
from support.client.library import FROM_FIRST, consuming, run
from support.common.waiting import until

QUEUE = MessageQueue("T", "broker-a", 0)
HOST = hosts.pack("10.0.0.7", 10911)


async def written(cluster: EmbeddedCluster, count: int) -> list[ReceivedMessage]:
    """Return the messages of the trace topic once they contain that many records."""
    found: list[ReceivedMessage] = []
    async with consuming(cluster, found.append, (TRACE_TOPIC, "*"), group="readers"):
        await until(lambda: len(records_of(found)) >= count)
    return found


def records_of(messages: Sequence[ReceivedMessage]) -> list[TraceRecord]:
    return [
        record
        for message in list(messages)
        for record in trace_records.decode(message.body.decode())
    ]


def test_everything_that_happens_to_a_message_is_told_and_found_by_its_id_and_keys() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with (
            Trace(cluster.name_server_address) as trace,
            Producer(cluster.name_server_address, group="p") as producer,
        ):
            producer.observers.append(trace)
            received: list[ReceivedMessage] = []
            async with consuming(cluster, received.append, settings=FROM_FIRST) as consumer:
                consumer.observers.append(trace)
                result = await producer.send(Message("T", b"hello", tags="a", keys=["k", "l"]))
                await producer.send(Message("T", b"x" * 5000))
                await consumer.membership.rebalance()  # the topic exists now
                await until(lambda: len(received) == 2)
        messages = await written(cluster, 6)
        records = records_of(messages)
        published = [record for record in records if isinstance(record, Published)]
        first = next(record for record in published if record.msg_id == result.msg_id)
        assert first._replace(time_ms=0, cost_ms=0) == Published(
            time_ms=0,
            region="DefaultRegion",
            group="p",
            topic="T",
            msg_id=result.msg_id,
            tags="a",
            keys="k l",
            store_host=cluster.broker_address,
            body_size=5,
            cost_ms=0,
            kind=MessageKind.NORMAL,
            offset_msg_id=result.offset_msg_id,
            is_success=True,
        )
        assert first.time_ms == pytest.approx(received[0].born_at_ms, abs=10_000)
        assert published[1].body_size < 5000  # on the wire
        begun = {record.request_id for record in records if isinstance(record, ConsumeStarted)}
        ended = {record.request_id: record for record in records if isinstance(record, Consumed)}
        assert begun == set(ended)
        assert {(record.outcome, record.is_success, record.group) for record in ended.values()} == {
            (0, True, "g")
        }
        found = {key for message in messages for key in message.keys}
        assert found == {"k", "l", *(message.msg_id for message in received)}

    run(scenario, traceTopicEnable="true")


def test_messages_of_a_batch_are_told_one_by_one() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with (
            Trace(cluster.name_server_address) as trace,
            Producer(cluster.name_server_address) as producer,
        ):
            producer.observers.append(trace)
            (result,) = await producer.send_batch(
                [Message("T", b"x" * size, keys=f"k{size}") for size in (1, 2, 3)]
            )
        records = records_of(await written(cluster, 3))
        assert [
            (record.keys, record.body_size) for record in records if isinstance(record, Published)
        ] == [("k1", 1), ("k2", 2), ("k3", 3)]
        assert [
            record.offset_msg_id for record in records if isinstance(record, Published)
        ] == result.offset_msg_id.split(",")
        received: list[ReceivedMessage] = []
        async with consuming(cluster, received.append, group="others"):
            await until(lambda: len(received) == 3)
        assert [record.msg_id for record in records] == [message.msg_id for message in received]

    run(scenario, traceTopicEnable="true")


def test_a_broker_that_wants_no_trace_gets_none_and_the_trace_does_not_trace_itself() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        trace = Trace(cluster.name_server_address)
        async with trace, Producer(cluster.name_server_address) as producer:
            producer.observers.append(trace)
            await producer.send(Message(TRACE_TOPIC, b"not a record"))
            result = await producer.send(Message("T", b"x"))
            assert not result.is_traced
            received: list[ReceivedMessage] = []
            async with consuming(
                cluster, received.append, ("T", "*"), (TRACE_TOPIC, "*")
            ) as consumer:
                consumer.observers.append(trace)
                await producer.send(Message("T", b"y"))
                await until(lambda: len(received) == 3)
        await asyncio.sleep(0)
        assert [message.body for message in await written(cluster, 0)] in ([], [b"not a record"])

    run(scenario, traceTopicEnable="true", traceOn="false")


def message(offset: int, **texts: str) -> ReceivedMessage:
    stored = StoredMessage(
        "T", 0, offset, offset, 0, 0, 1, HOST, 2, HOST, 0, 0, b"x", 0, properties.encode(texts), 0
    )
    return ReceivedMessage.of(stored, "broker-a")


def waiting(trace: Trace) -> list[TraceRecord]:
    """Return the buffered records."""
    return [
        record for each in trace._pending for record in trace_records.decode(each.data.decode())
    ]


def test_what_a_message_was_is_told() -> None:
    async def main() -> None:
        trace, producer = Trace("127.0.0.1:9"), Producer("127.0.0.1:9")
        result = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "ID", offset_id(HOST, 1), QUEUE, 1)
        for each in (
            Message("T", b"x"),
            Message("T", b"x", delay_level=3),
            Message("T", b"x", delay_ms=5),
            Message("T", b"x", deliver_at_ms=5),
        ):
            trace.sent("g", producer.outbox.message(each), result, 3)
        trace.sent(
            "g", producer.outbox.message(Message("T", b"x"), {"TRAN_MSG": "true"}, 4), result, 3
        )
        trace.sent(
            "g",
            producer.outbox.message(Message("T", b"x")),
            SendFailedError("no broker accepted it"),
            3,
        )  # like Java clients: a failed send leaves no record
        found = [record for record in waiting(trace) if isinstance(record, Published)]
        delayed = [MessageKind.DELAYED] * 3
        assert [record.kind for record in found] == [MessageKind.NORMAL, *delayed, MessageKind.HALF]
        assert {(record.store_host, record.region, record.is_success) for record in found} == {
            ("10.0.0.7:10911", "DefaultRegion", False)
        }

    asyncio.run(main())


def test_transactions_and_recalls_are_told() -> None:
    async def main() -> None:
        trace = Trace("127.0.0.1:9")
        end = TransactionEnd(
            "T", "ID", "tag", None, None, "10.0.0.7:10911", "TX", TransactionState.ROLLBACK, True
        )
        trace.transaction_ended("g", end)
        trace.transaction_ended("g", end._replace(is_traced=False))
        trace.recalled("g", Recall("T", "ID", "somewhere", False))
        ended, recalled = waiting(trace)
        assert ended._replace(time_ms=0) == TransactionEnded(
            0,
            "DefaultRegion",
            "g",
            "T",
            "ID",
            "tag",
            None,
            "10.0.0.7:10911",
            MessageKind.TRANSACTION_END,
            "TX",
            TransactionState.ROLLBACK,
            True,
        )
        assert recalled._replace(time_ms=0) == Recalled(0, "somewhere", "g", "T", "ID", False)

    asyncio.run(main())


def test_the_two_records_of_a_call_belong_together_and_those_of_a_retry_do_not() -> None:
    async def main() -> None:
        trace = Trace("127.0.0.1:9")
        again = message(1)
        messages = [
            message(1),
            message(2, TRACE_ON="false"),
            message(3, KEYS="k", MSG_REGION="somewhere"),
        ]
        trace.consuming("g", messages)
        trace.consumed("g", messages[:1], ConsumeOutcome.FAILED, 7)
        trace.consumed("g", messages[1:], ConsumeOutcome.SUCCESS, 8)
        trace.consuming(
            "g", [ReceivedMessage.of(again.stored._replace(reconsume_times=1), "broker-a")]
        )
        first, third, failed, taken, retried = waiting(trace)
        assert isinstance(first, ConsumeStarted)
        assert isinstance(third, ConsumeStarted)
        assert isinstance(failed, Consumed)
        assert isinstance(taken, Consumed)
        assert isinstance(retried, ConsumeStarted)
        assert (first.request_id, third.request_id) == (failed.request_id, taken.request_id)
        assert len({first.request_id, third.request_id, retried.request_id}) == 3
        assert (failed.outcome, failed.is_success, failed.cost_ms) == (
            ConsumeOutcome.FAILED,
            False,
            7,
        )
        assert (taken.outcome, taken.is_success, taken.keys) == (ConsumeOutcome.SUCCESS, True, "k")
        assert (first.region, third.region, retried.retry_count) == (None, "somewhere", 1)

    asyncio.run(main())


def test_records_travel_in_messages_that_are_neither_too_many_nor_too_large() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        settings = TraceSettings(batch_count=4, batch_size=1_000, flush_ms=60_000)
        async with Trace(cluster.name_server_address, settings=settings) as trace:
            for number in range(9):
                trace.recalled("g", Recall("T", f"id-{number}", None, True))
            trace.recalled("g", Recall("T" * 800, "large-1", None, True))
            trace.recalled("g", Recall("T" * 800, "large-2", None, True))
            trace.recalled(
                "g", Recall("T" * 2000, "too-large", None, True)
            )  # it is sent anyway, on its own
            for number in range(3):
                trace.consuming(
                    "g", [message(number, KEYS=" ".join(f"{number}-{at:04}" for at in range(1200)))]
                )
        found = await written(cluster, 15)
        sizes = sorted(len(records_of([each])) for each in found)
        assert sum(sizes) == 15
        assert sizes[-1] == 4
        assert all(len(each.body) <= 1_000 or len(records_of([each])) == 1 for each in found)
        assert sum("too-large" in each.keys for each in found) == 1

    run(scenario, traceTopicEnable="true")


def test_what_does_not_fit_or_cannot_be_sent_is_dropped_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        settings = TraceSettings(waiting_max=5, batch_count=2, flush_ms=50, timeout_ms=200)
        async with Trace("127.0.0.1:9", settings=settings) as trace:
            for number in range(12):
                trace.recalled("g", Recall("T", f"id-{number}", None, True))
            assert trace.dropped_count == 7
            await until(lambda: trace.dropped_count > 7)
            await until(lambda: "trace_records_dropped" in caplog.text)
        assert trace.dropped_count == 12
        trace.recalled("g", Recall("T", "after the end", None, True))
        assert trace.dropped_count == 13
        assert "no name server answers" in caplog.text
        assert "in_all=12" in caplog.text

    asyncio.run(main())


def test_a_listener_that_wants_a_message_again_is_told_apart_from_one_that_took_it() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        def listen(_: ReceivedMessage) -> None:
            raise ConsumeLater

        async with (
            Trace(cluster.name_server_address) as trace,
            Producer(cluster.name_server_address) as producer,
        ):
            await producer.send(Message("T", b"x"))
            async with consuming(cluster, listen) as consumer:
                consumer.observers.append(trace)
                await producer.send(Message("T", b"y"))
                await until(lambda: any(isinstance(record, Consumed) for record in waiting(trace)))
                found = [record for record in waiting(trace) if isinstance(record, Consumed)]
        assert {(record.outcome, record.is_success) for record in found} == {
            (ConsumeOutcome.FAILED, False)
        }

    run(scenario, traceTopicEnable="true")
