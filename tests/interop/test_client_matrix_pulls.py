"""The client library with three clusters, the originals 5.5.0 and 4.9.7 and ours: consumers that
pull, and what operators see.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from interop.client_matrix_room import PULLS_FROM_FIRST, Room, bodies, fill, names, run
from interop.frames import Request, ask
from orbitmq import LitePullConsumer, Message, PullConsumer, PullStatus, ReceivedMessage, Trace
from orbitmq.client import trace_records
from orbitmq.client.trace_records import Consumed, ConsumeStarted, Published
from orbitmq.common.topic_names import TRACE_TOPIC
from support.client.pull_consumers import polled
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]


def test_a_lite_pull_consumer_shares_seeks_and_commits(room: Room) -> None:
    topic = room.topic("Lite")

    def member() -> LitePullConsumer:
        consumer = LitePullConsumer(
            room.client, "lite", settings=replace(PULLS_FROM_FIRST, auto_commit=False)
        )
        consumer.subscribe(topic)
        return consumer

    async def scenario() -> None:
        async with room.producer() as producer:
            await fill(producer, topic, *names("first", range(40)))
            async with member() as one:
                assert bodies(await polled(one, 40)) == names("first", range(40))
                await one.commit()
                for queue in one.assignment:
                    assert await one.committed(queue) == one.position(queue) == 10
                    await one.seek(queue, 7)
                assert len(await polled(one, 12)) == 12
                async with member() as two:
                    await until(lambda: len(one.assignment) == len(two.assignment) == 2)
                    await fill(producer, topic, *names("second", range(40)))
                    shares = [await polled(one, 20), await polled(two, 20)]
                    assert bodies([*shares[0], *shares[1]]) == names("second", range(40))
            async with member() as three:  # nothing was committed since
                assert bodies(await polled(three, 40)) == names("second", range(40))

    run(scenario)


def test_a_lite_pull_consumer_of_assigned_queues_goes_where_it_is_told(room: Room) -> None:
    topic = room.topic("Assigned")

    async def scenario() -> None:
        async with (
            room.producer() as producer,
            LitePullConsumer(room.client, "assigned", settings=PULLS_FROM_FIRST) as consumer,
        ):
            queues = await consumer.queues(topic)
            for text in names("assigned", range(40)):
                await producer.send(
                    Message(topic, text.encode(), tags=text[-1]), queue=queues[int(text[-1]) % 4]
                )
            mine = queues[1]
            await consumer.assign([mine])
            assert bodies(await polled(consumer, 3)) == names("assigned", (1, 5, 9))
            assert len(await polled(consumer, 9)) == 9
            await consumer.seek_to_end(mine)
            assert await consumer.poll(timeout_ms=300) == []
            await producer.send(Message(topic, b"new"), queue=mine)
            (new,) = await polled(consumer, 1)
            assert new.body == b"new"
            await consumer.seek_to_begin(mine)
            assert bodies(await polled(consumer, 1)) == ["assigned 001"]
            await consumer.seek_to_time(mine, new.stored_at_ms)
            assert bodies(await polled(consumer, 1)) == ["new"]
            await consumer.commit()
            assert await consumer.committed(mine) == consumer.position(mine) == new.queue_offset + 1
            await consumer.assign([queues[2]], "2")
            assert bodies(await polled(consumer, 4)) == names("assigned", (2, 12, 22, 32))

    run(scenario)


def test_a_pull_consumer_reads_and_keeps_offsets_as_it_is_told(room: Room) -> None:
    topic = room.topic("Pulled", 2)

    async def scenario() -> None:
        async with room.producer() as producer, PullConsumer(room.client, "pullers") as consumer:
            queue, other = await consumer.queues(topic)
            for text in names("pulled", range(10)):
                await producer.send(Message(topic, text.encode(), tags=text[-1]), queue=queue)

            async def are_all_queued() -> bool:
                return await consumer.max_offset(queue) >= 10

            await until(are_all_queued)  # originals answer before a message is in its queue
            found = await consumer.pull(queue, 2, count_max=3)
            assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
                PullStatus.FOUND,
                5,
                0,
                10,
            )
            assert bodies(found.messages) == names("pulled", (2, 3, 4))
            assert bodies((await consumer.pull(queue, 0, "3 || 7")).messages) == names(
                "pulled", (3, 7)
            )
            assert (await consumer.pull(queue, 10)).status is PullStatus.NO_NEW_MESSAGE
            wrong = await consumer.pull(queue, 99)
            assert (wrong.status, wrong.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)
            waiting = asyncio.create_task(consumer.pull(queue, 10, timeout_ms=20_000))
            await producer.send(Message(topic, b"new"), queue=queue)
            assert bodies((await waiting).messages) == ["new"]
            assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 11)
            time_ms = found.messages[1].stored_at_ms
            then = await consumer.pull(queue, await consumer.offset_at(queue, time_ms))
            assert then.messages[0].stored_at_ms == time_ms
            never = (
                0 if room.name == "4.9.7" else None
            )  # 4.9 says 0 while the whole queue is in memory
            assert await consumer.fetch_offset(queue) == never
            await consumer.update_offset(queue, 7)
            assert [await consumer.fetch_offset(each) for each in (queue, other)] == [7, never]

    run(scenario)


def test_operators_see_what_a_consumer_does(room: Room) -> None:
    topic = room.topic("Asked", 2)
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        consumer = room.consumer(topic, found.append)
        async with consumer, room.producer() as producer:
            result = await producer.send(Message(topic, b"body", keys="key"))
            await until(lambda: len(found) == 1)
            me, group, queue_id = consumer.session.client_id, consumer.group, result.queue.queue_id
            shown = await room.mqadmin("consumerConnection", "-g", group)
            assert re.search(rf"{me}\s+127\.0\.0\.1:\d+\s+PYTHON\s+V5_5_0", shown), shown
            shown = await room.mqadmin("consumerStatus", "-g", group)
            assert re.search(rf"{me}\s+V5_5_0\s+\d+/{re.escape(me)}", shown), shown
            shown = await room.mqadmin("consumerStatus", "-g", group, "-i", me, "-s", "true")  # 307
            assert re.search(rf"{topic}\s+broker-a\s+{queue_id}\s", shown), shown
            assert re.search(r"PROP_CONSUME_TYPE\s+: CONSUME_PASSIVELY", shown), shown
            assert "MainThread" in shown
            asked = Request(
                223, {"group": group, "topic": topic}
            )  # has the broker ask each member, by 221
            offsets = (
                await asyncio.to_thread(ask, room.cluster.broker.address, asked)
            ).body.decode()
            assert me in offsets
            assert re.search(rf'"queueId":{queue_id}\b[^{{}}]*\}}:1\b', offsets), offsets
            once_more = {
                "consumerGroup": group,
                "clientId": me,
                "msgId": result.offset_msg_id,
                "brokerName": "broker-a",
            }
            answer = await asyncio.to_thread(
                ask, room.cluster.broker.address, Request(309, once_more)
            )
            assert (answer.code, b"CR_SUCCESS" in answer.body) == (0, True), answer
            assert bodies(found) == ["body", "body"]

    run(scenario)


def test_a_trace_tells_of_what_was_sent_and_consumed(room: Room) -> None:
    topic = room.topic("Traced")
    found: list[ReceivedMessage] = []
    traces: list[ReceivedMessage] = []

    def told_of(msg_id: str) -> set[type]:
        records = [
            record for message in traces for record in trace_records.decode(message.body.decode())
        ]
        return {type(record) for record in records if record.msg_id == msg_id}

    async def scenario() -> None:
        async with (
            Trace(room.client) as trace,
            room.producer() as producer,
            room.consumer(topic, found.append) as consumer,
        ):
            producer.observers.append(trace)
            consumer.observers.append(trace)
            result = await producer.send(Message(topic, b"body"))
            await until(lambda: len(found) == 1)
        async with room.consumer(TRACE_TOPIC, traces.append):
            await until(lambda: told_of(result.msg_id) == {Published, ConsumeStarted, Consumed})

    run(scenario)
