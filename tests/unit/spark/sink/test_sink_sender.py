"""Tests replies to rows: stored but not flushed, busy, and refused. Also tests delayed rows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from orbitmq.common.errors import OrbitError, SendFailedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.sender import SendStats
from orbitmq.spark.sink.task_sender import send_rows
from support.client.scripted_broker import ScriptedBroker, scripted_broker
from support.common.waiting import until


def sent(
    batch: pa.RecordBatch, code: int | None, *then: int, **options: str
) -> tuple[SendStats, ScriptedBroker]:
    """Send rows one by one to a broker that replies with the given codes from its second, third …
    message on.
    """

    async def scenario() -> tuple[SendStats, ScriptedBroker]:
        async with asyncio.timeout(60), scripted_broker() as broker:
            broker.answer_code = code
            parsed = SinkOptions.of(
                {"nameServer": broker.address, "topic": "T", "batchMessages": "1", **options}
            )
            sending = asyncio.create_task(
                asyncio.to_thread(send_rows, parsed, [batch], "of partition 0")
            )
            for number, other in enumerate(then, 1):
                await until(
                    lambda number=number: len(broker.sent) >= number or sending.done()  # type: ignore[misc, arg-type]
                )
                broker.answer_code = other
            return (await sending).sent, broker

    return asyncio.run(scenario())


ROW = pa.record_batch({"body": ["x"]})


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
def test_messages_that_are_stored_less_safely_than_asked_for_are_counted(code: int) -> None:
    done, _ = sent(pa.record_batch({"body": ["x", "y"]}), code)
    assert done == SendStats(messages=2, requests=2, unsafe=2)


def test_a_broker_that_is_busy_gets_it_again_until_it_is_not() -> None:
    busy = [ResponseCode.SYSTEM_BUSY] * 4
    done, broker = sent(ROW, *busy, ResponseCode.SUCCESS)
    assert done.messages == 1
    assert done.tries_more >= 1
    assert len(broker.sent) >= 5


@pytest.mark.parametrize(
    "code", [ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL]
)
def test_what_a_broker_refuses_is_told_at_once(code: int) -> None:
    with pytest.raises(OrbitError, match=r"message to topic T.*: scripted"):
        sent(ROW, code, retryTimeout="1h", requestTimeout="1h")


def test_a_broker_that_says_nothing_is_told() -> None:
    with pytest.raises(
        SendFailedError,
        match=(
            r"a message to topic T was not sent within 200 ms: broker-a: .* did not respond to"
            r" request 310"
        ),
    ):
        sent(ROW, None, requestTimeout="200ms", retryTimeout="0ms")


def test_rows_that_come_later_say_when() -> None:
    batch = pa.record_batch(
        {
            "body": ["level", "time", "now"],
            "delayLevel": pa.array([3, None, 0], pa.int32()),
            "deliverTimestamp": pa.array(
                [None, datetime(2030, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")
            ),
        }
    )
    _, broker = sent(batch, ResponseCode.SUCCESS)
    later = {message.body: message.properties for message in broker.sent}
    assert later[b"level"]["DELAY"] == "3"
    assert later[b"time"]["TIMER_DELIVER_MS"] == "1893456000000"
    assert not {"DELAY", "TIMER_DELIVER_MS"} & later[b"now"].keys()


def test_a_row_that_says_twice_when_it_comes_is_named() -> None:
    moment = pa.array([datetime(2030, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    with pytest.raises(
        OrbitError,
        match="row 0 of partition 0 cannot be sent: it has both a delayLevel and a"
        " deliverTimestamp",
    ):
        sent(
            pa.record_batch({"body": ["x"], "delayLevel": [1], "deliverTimestamp": moment}),
            ResponseCode.SUCCESS,
        )


def test_counts_of_tasks_add_up() -> None:
    one, other = SendStats(3, 1, 0, 2), SendStats(4, 2, 1, 0)
    assert SendStats.of_all([one, other]) == SendStats(7, 3, 1, 2)
    assert SendStats.of_all([]) == SendStats()
    assert str(one) == "messages=3 requests=1 tries_more=0 unsafe=2"
