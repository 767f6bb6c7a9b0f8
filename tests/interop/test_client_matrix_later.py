"""The client library with 5.5.0, 4.9.7 and ours: messages that come again, that come later, or that
an expression chooses.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import replace

import pytest

from interop.client_matrix_room import FROM_FIRST, OURS, UNICODE, Room, bodies, fill, names, run
from orbitmq import (
    SQL92,
    ConsumeLater,
    Message,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RequestRefusedError,
)
from orbitmq.client.consumer import push_consumer
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX
from orbitmq.protocol.codes import ResponseCode
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]

only_5 = pytest.mark.parametrize("room", ["5.5.0", OURS], indirect=True)


def test_a_message_that_fails_comes_again_after_a_delay_and_goes_to_the_dead_letters_in_the_end(
    room: Room,
) -> None:
    topic = room.topic("Again")
    calls: dict[str, list[ReceivedMessage]] = defaultdict(list)

    def listener(message: ReceivedMessage) -> None:
        calls[message.body.decode()].append(message)
        if message.body == b"fails":
            raise ValueError("on purpose")
        if message.body == b"later" and len(calls["later"]) < 3:
            raise ConsumeLater(delay_level=2)

    async def scenario() -> None:
        consumer = room.consumer(topic, listener, settings=replace(FROM_FIRST, max_attempts=2))
        dead = DEAD_LETTER_PREFIX + consumer.group
        async with consumer, room.producer() as producer:
            result = await producer.send(Message(topic, b"fails", "tag", "key", {UNICODE: UNICODE}))
            await fill(producer, topic, "later", "taken")
            await until(lambda: len(calls["fails"]) == len(calls["later"]) == 3)
            (letter,) = await room.stored(dead, 1)
        assert len(calls["taken"]) == 1
        for body in ("fails", "later"):
            assert [message.reconsume_times for message in calls[body]] == [0, 1, 2]
            times_ms = [message.stored_at_ms for message in calls[body]]
            assert (
                times_ms[1] - times_ms[0] >= 1000 <= times_ms[2] - times_ms[1]
            )  # the delay of every level
        for message in calls["fails"]:
            assert (message.topic, message.msg_id, message.tags, message.keys) == (
                topic,
                result.msg_id,
                "tag",
                ("key",),
            )
            assert message.properties[UNICODE] == UNICODE
        assert (letter.body, letter.msg_id, letter.properties[UNICODE]) == (
            b"fails",
            result.msg_id,
            UNICODE,
        )

    run(scenario)


def test_in_order_a_message_that_failed_often_enough_lets_the_others_pass(room: Room) -> None:
    topic = room.topic("AgainInOrder", 1)
    calls: list[str] = []

    def listener(message: ReceivedMessage) -> None:
        calls.append(message.body.decode())
        if message.body == b"in order 001":
            raise ValueError("on purpose")

    async def scenario() -> None:
        settings = replace(FROM_FIRST, in_order=True, max_attempts=2, retry_pause_ms=50)
        consumer = room.consumer(topic, listener, settings=settings)
        async with consumer, room.producer() as producer:
            await fill(producer, topic, *names("in order", range(4)))
            await until(lambda: calls[-1:] == ["in order 003"])
            letters = await room.stored(DEAD_LETTER_PREFIX + consumer.group, 1)
        first, bad, *rest = names("in order", range(4))
        assert calls == [first, bad, bad, bad, *rest]
        assert bodies(letters) == [bad]

    run(scenario)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers look for overdue listeners often."""
    monkeypatch.setattr(push_consumer, "WATCH_PERIOD_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_message_whose_listener_does_not_come_back_comes_again_and_holds_nothing_up(
    room: Room,
) -> None:
    topic = room.topic("Overdue", 1)
    calls: list[ReceivedMessage] = []
    end = threading.Event()

    def listener(message: ReceivedMessage) -> None:
        calls.append(message)
        if message.body == b"slow" and message.reconsume_times == 0:
            end.wait()

    async def scenario() -> None:
        consumer = room.consumer(
            topic, listener, settings=replace(FROM_FIRST, consume_timeout_ms=500)
        )
        async with consumer, room.producer() as producer:
            await fill(producer, topic, "slow", "quick")
            await until(lambda: bodies(calls) == ["quick", "slow", "slow"])
            (queue,) = await producer.queues(topic)
            await until(lambda: consumer.committed_offsets(topic) == {queue: 2})
            end.set()
        assert [message.reconsume_times for message in calls if message.body == b"slow"] == [0, 1]

    try:
        run(scenario)
    finally:
        end.set()


def test_a_pull_consumer_sends_back_what_it_wants_again(room: Room) -> None:
    topic = room.topic("SentBack", 1)
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        async with (
            room.producer() as producer,
            PullConsumer(room.client, f"consumers-of-{topic}") as consumer,
        ):
            await fill(producer, topic, "again")
            (queue,) = await consumer.queues(topic)
            (message,) = (await consumer.pull(queue, 0, timeout_ms=10_000)).messages
            await consumer.send_back(message)
            await consumer.update_offset(queue, 1)
        async with room.consumer(topic, found.append):  # in its group, which would share with it
            await until(lambda: bool(found))
        assert (found[0].body, found[0].topic, found[0].reconsume_times, found[0].msg_id) == (
            b"again",
            topic,
            1,
            message.msg_id,
        )

    run(scenario)


def test_a_delayed_message_comes_after_the_delay_of_its_level(room: Room) -> None:
    topic = room.topic("Level")
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        async with room.consumer(topic, found.append), room.producer() as producer:
            await producer.send(Message(topic, b"later", "tag", "key", {"a": "b"}, delay_level=5))
            await fill(producer, topic, "now")
            await until(lambda: len(found) == 2)
        assert [message.body for message in found] == [b"now", b"later"]
        later = found[1]
        assert later.stored_at_ms - later.born_at_ms >= 1000
        assert (later.topic, later.tags, later.keys, later.properties["a"]) == (
            topic,
            "tag",
            ("key",),
            "b",
        )

    run(scenario)


def test_an_expression_chooses_by_properties_and_tags(room: Room) -> None:
    topic = room.topic("Sql")
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        consumer = PushConsumer(room.client, "consumers-by-sql", found.append, settings=FROM_FIRST)
        consumer.subscribe(
            topic, "(size BETWEEN 3 AND 5 AND color IN ('red', 'größe')) OR TAGS = 'last'", SQL92
        )
        async with consumer, room.producer() as producer:
            for number in range(8):
                for color in ("red", "größe", "blue"):
                    text = f"{color} {number}"
                    await producer.send(
                        Message(
                            topic,
                            text.encode(),
                            "t",
                            properties={"size": str(number), "color": color},
                        )
                    )
            await fill(producer, topic, "no properties")
            for queue in await producer.queues(topic):
                await producer.send(Message(topic, b"last", "last"), queue=queue)
            await until(lambda: bodies(found).count("last") == 4)
        assert bodies(found) == sorted(
            [f"{color} {number}" for color in ("red", "größe") for number in (3, 4, 5)]
            + ["last"] * 4
        )

    run(scenario)


def test_a_wrong_expression_is_said_to_be_wrong(room: Room) -> None:
    topic = room.topic("BadSql", 1)

    async def scenario() -> None:
        async with PullConsumer(room.client, "pullers-by-sql") as puller:
            (queue,) = await puller.queues(topic)
            with pytest.raises(
                RequestRefusedError,
                match=r"refuses the SQL92 expression 'size > > 3' of topic BadSql",
            ) as refused:
                await puller.pull(queue, 0, "size > > 3", kind=SQL92)
        assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        consumer = PushConsumer(room.client, "consumers-by-bad-sql", lambda _: None)
        consumer.subscribe(topic, "size > > 3", SQL92)
        with pytest.raises(RequestRefusedError, match="size > > 3"):
            await consumer.start()
        await consumer.close()

    run(scenario)


@only_5
@pytest.mark.parametrize("kind", ["delay_ms", "deliver_at_ms"])
def test_a_message_comes_at_the_time_that_its_producer_said(room: Room, kind: str) -> None:
    topic = room.topic(f"At-{kind}")
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        async with room.consumer(topic, found.append), room.producer() as producer:
            at_ms = time.time_ns() // 1_000_000 + 3_000
            later = (
                Message(topic, b"later", deliver_at_ms=at_ms)
                if kind == "deliver_at_ms"
                else Message(topic, b"later", delay_ms=3_000)
            )
            result = await producer.send(later)
            assert result.recall_handle is not None
            await fill(producer, topic, "now")
            await until(lambda: len(found) == 2)
        assert [message.body for message in found] == [b"now", b"later"]
        assert found[1].stored_at_ms >= at_ms - 1000  # the wheel turns once a second

    run(scenario)
