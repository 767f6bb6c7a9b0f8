"""Tests writes while brokers fail: nothing is lost until the retry timeout, and then one sentence
says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from orbitmq.common.errors import SendFailedError
from orbitmq.spark.sink import sender
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.task_sender import send_rows
from orbitmq.testing import LocalCluster
from support.spark.messages import messages_in

PLACE = "of partition 0"


def options(mq: LocalCluster, **more: str) -> SinkOptions:
    return SinkOptions.of(
        {
            "nameServer": mq.name_server,
            "topic": "T",
            "batchMessages": "50",
            "requestTimeout": "3s",
            **more,
        }
    )


def numbered(count: int, first: int = 0, **columns: str) -> pa.RecordBatch:
    bodies = [str(number) for number in range(first, first + count)]
    return pa.record_batch(
        {"body": bodies, **{name: [value] * count for name, value in columns.items()}}
    )


def found(mq: LocalCluster) -> list[int]:
    return [int(message.body) for message in messages_in(mq.name_server, "T")]


@contextmanager
def once_sent_again(react: Callable[[], None]) -> Iterator[None]:
    """Run an action as soon as the sender notices that a broker fails."""
    is_time = threading.Event()

    class Waiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("sent_again"):
                is_time.set()

    def wait() -> None:
        if is_time.wait(60):
            react()

    handler, thread = Waiting(), threading.Thread(target=wait)
    sender.log.addHandler(handler)
    thread.start()
    try:
        yield
    finally:
        is_time.set()
        thread.join()
        sender.log.removeHandler(handler)


@pytest.mark.parametrize("columns", [{}, {"shardingKey": "key"}], ids=["anywhere", "one-queue"])
def test_nothing_is_lost_while_a_broker_is_away(columns: dict[str, str]) -> None:
    with LocalCluster(topics={"T": 4}) as mq:

        def batches() -> Iterator[pa.RecordBatch]:
            for part in range(4):
                if part == 2:
                    mq.stop_broker()
                yield numbered(500, 500 * part, **columns)

        with once_sent_again(mq.restart):
            done = send_rows(options(mq), batches(), PLACE).sent
        assert done.messages == 2_000
        assert done.tries_more >= 1
        numbers = found(mq)
        assert set(numbers) == set(range(2_000))
        if columns:
            assert list(dict.fromkeys(numbers)) == list(range(2_000))


def test_what_a_silent_network_swallows_is_sent_again() -> None:
    with LocalCluster(topics={"T": 4}, partitions=True) as mq:

        def batches() -> Iterator[pa.RecordBatch]:
            yield numbered(100)
            mq.partition()
            yield numbered(100, 100)

        with once_sent_again(mq.heal):
            done = send_rows(options(mq, requestTimeout="1s"), batches(), PLACE).sent
        assert done.messages == 200
        numbers = found(mq)
        assert set(numbers) == set(range(200))
        assert len(numbers) >= 200  # duplicates: the broker stored them, but its reply was lost


def test_another_broker_takes_what_one_cannot() -> None:
    with LocalCluster(brokers=2, topics={"T": 2}) as mq:
        kept = options(mq)
        send_rows(kept, [numbered(100)], PLACE)
        mq.stop_broker("broker-a")
        done = send_rows(kept, [numbered(1_000, 100)], PLACE).sent
        assert done.messages == 1_000
        mq.restart("broker-a")
        assert sorted(found(mq)) == list(range(1_100))


def test_a_broker_that_stays_away_is_told_with_topic_name_and_cause() -> None:
    with LocalCluster(topics={"T": 4}) as mq:
        kept = options(mq, retryTimeout="500ms")
        send_rows(kept, [numbered(100)], PLACE)
        mq.stop_broker()
        said = (
            r"a message to topic T was not sent: broker-a: cannot connect to 127.0.0.1:\d+:"
            r" Connection refused.*"
        )
        for batch in (numbered(100), numbered(1, shardingKey="k")):
            with pytest.raises(
                SendFailedError, match=said + r"; tried \d+ times in 0.5 s \(option retryTimeout\)$"
            ):
                send_rows(kept, [batch], PLACE)
