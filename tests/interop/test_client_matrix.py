"""The client library with three clusters, the originals 5.5.0 and 4.9.7 and ours: sending and
consuming is the same with each of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from interop.client_matrix_room import FROM_FIRST, UNICODE, Room, bodies, fill, names, run
from orbitmq import (
    ConsumeLater,
    Message,
    MessageModel,
    Producer,
    ProducerSettings,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from orbitmq.message.flags import CompressionType
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]


def test_sent_messages_are_where_the_results_say(room: Room) -> None:
    topic = room.topic("Sync")

    async def scenario() -> None:
        async with room.producer() as producer:
            results = [
                await producer.send(Message(topic, text.encode()))
                for text in names("sync", range(12))
            ]
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert Counter(result.queue.queue_id for result in results) == dict.fromkeys(range(4), 3)
        stored = {message.msg_id: message for message in await room.stored(topic, 12)}
        for result, text in zip(results, names("sync", range(12)), strict=True):
            message = stored.pop(result.msg_id)
            assert (message.body.decode(), message.queue, message.queue_offset) == (
                text,
                result.queue,
                result.queue_offset,
            )
            assert message.offset_msg_id == result.offset_msg_id
        assert not stored

    run(scenario)


def test_messages_sent_at_the_same_time_are_all_kept_once(room: Room) -> None:
    topic = room.topic("Concurrent")

    async def scenario() -> None:
        sent = names("concurrent", range(500))
        async with room.producer() as producer:
            await asyncio.gather(*(producer.send(Message(topic, text.encode())) for text in sent))
        assert bodies(await room.stored(topic, 500)) == sent

    run(scenario)


def test_messages_sent_one_way_arrive(room: Room) -> None:
    topic = room.topic("Oneway")

    async def scenario() -> None:
        sent = names("oneway", range(50))
        found: list[ReceivedMessage] = []
        async with room.consumer(topic, found.append), room.producer() as producer:
            for text in sent:
                await producer.send_oneway(Message(topic, text.encode()))
            await until(lambda: len(found) >= len(sent))
        assert bodies(found) == sent

    run(scenario)


def test_a_batch_is_split_by_its_size_and_keeps_its_order(room: Room) -> None:
    topic = room.topic("Batch")

    async def scenario() -> None:
        texts = names("batch", range(100))
        batch = [
            Message(topic, text.encode() * 250, f"t{at % 3}", text.split(), {"Nr": text})
            for at, text in enumerate(texts)
        ]
        async with room.producer(ProducerSettings(size_max=64 << 10)) as producer:
            queue, *_ = await producer.queues(topic)
            results = await producer.send_batch(batch, queue=queue)
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert len(results) == 4  # 2,250 bytes each and some for properties, in 65,536 at most
        stored = await room.stored(topic, 100)
        assert {message.queue for message in stored} == {queue}
        assert [message.msg_id for message in stored] == [
            msg_id for result in results for msg_id in result.msg_id.split(",")
        ]
        assert [
            (message.body, message.properties["Nr"], message.tags, list(message.keys))
            for message in stored
        ] == [
            (message.body, message.properties["Nr"], message.tags, message.keys)
            for message in batch
        ]

    run(scenario)


@pytest.mark.parametrize("compression", CompressionType, ids=lambda compression: compression.name)
def test_large_bodies_and_texts_of_all_languages_arrive_as_they_were(
    room: Room, compression: CompressionType
) -> None:
    topic = room.topic(f"Bodies{compression.name}")
    large = f"{compression.name} {UNICODE} " * 3_000
    tags = UNICODE.split()[0]
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        async with (
            room.consumer(topic, found.append, tags),
            room.producer(ProducerSettings(compression=compression)) as producer,
        ):
            result = await producer.send(
                Message(topic, large.encode(), tags, UNICODE.split(), {UNICODE: UNICODE})
            )
            await until(lambda: bool(found))
        (message,) = found
        assert (message.msg_id, message.body.decode()) == (result.msg_id, large)
        assert (message.tags, " ".join(message.keys), message.properties[UNICODE]) == (
            tags,
            UNICODE,
            UNICODE,
        )
        assert message.stored.size < len(message.body)

    run(scenario)


def test_a_consumer_of_some_tags_gets_these(room: Room) -> None:
    topic = room.topic("Tags")
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        async with room.consumer(topic, found.append, "Aa || last"), room.producer() as producer:
            for tags in (
                "Aa",
                "BB",
                None,
                "aa",
                "Aa",
            ):  # Aa and BB have one hash, by which brokers choose
                await producer.send(Message(topic, str(tags).encode(), tags=tags))
            for queue in await producer.queues(topic):
                await producer.send(Message(topic, b"last", tags="last"), queue=queue)
            await until(lambda: bodies(found).count("last") == 4)
        assert bodies(found) == ["Aa", "Aa", "last", "last", "last", "last"]

    run(scenario)


def test_messages_of_a_queue_come_in_order_and_one_that_fails_holds_up_its_own_queue_only(
    room: Room,
) -> None:
    topic = room.topic("InOrder")
    calls: dict[str, list[str]] = defaultdict(list)
    mended: list[str] = []

    def listener(message: ReceivedMessage) -> None:
        shard, _, number = message.body.decode().partition(" ")
        calls[shard].append(number)
        if (shard, number) == ("a", "005") and not mended:
            raise ConsumeLater

    async def scenario() -> None:
        settings = replace(FROM_FIRST, in_order=True, retry_pause_ms=50)
        async with room.consumer(topic, listener, settings=settings), room.producer() as producer:
            for number in range(25):
                for shard in "abcd":  # each has a queue of its own
                    await producer.send(
                        Message(topic, f"{shard} {number:03d}".encode(), sharding_key=shard)
                    )
            await until(
                lambda: all(len(calls[shard]) == 25 for shard in "bcd") and len(calls["a"]) > 8
            )
            assert set(calls["a"][5:]) == {"005"}
            mended.append("a")
            await until(lambda: calls["a"][-1] == "024")
        every = [f"{number:03d}" for number in range(25)]
        assert calls["a"] == [*every[:5], *["005"] * calls["a"].count("005"), *every[6:]]
        assert all(calls[shard] == every for shard in "bcd")

    run(scenario)


def test_each_member_of_a_broadcasting_group_gets_everything_and_goes_on_where_it_was(
    room: Room, tmp_path: Path
) -> None:
    topic = room.topic("Broadcast")
    settings = replace(FROM_FIRST, message_model=MessageModel.BROADCASTING, offsets_folder=tmp_path)
    found: dict[str, list[ReceivedMessage]] = defaultdict(list)

    def member(name: str) -> PushConsumer:
        own = replace(room.client, instance_name=name)
        consumer = PushConsumer(
            own, "broadcasting", lambda message: found[name].append(message), settings=settings
        )
        consumer.subscribe(topic)
        return consumer

    async def scenario() -> None:
        async with room.producer() as producer:
            async with member("one"), member("two"):
                await fill(producer, topic, *names("first", range(10)))
                await until(lambda: len(found["one"]) >= 10 <= len(found["two"]))
            await fill(producer, topic, *names("second", range(10)))
            async with member("one"):
                await until(lambda: len(found["one"]) >= 20)
        assert bodies(found["one"]) == [*names("first", range(10)), *names("second", range(10))]
        assert bodies(found["two"]) == names("first", range(10))

    run(scenario)


class Crowd:
    """Members of a group that come and go while messages are sent."""

    def __init__(self, room: Room, topic: str, producer: Producer) -> None:
        self._room = room
        self._topic = topic
        self._producer = producer
        self._members: dict[str, PushConsumer] = {}
        self._found: list[ReceivedMessage] = []
        self._sent_count = 0

    async def change(self, leaving: str | None = None, joining: str | None = None) -> None:
        """Let somebody come or go, with messages sent meanwhile; none of those is lost, and those
        sent afterwards come once.
        """
        meanwhile: list[str] = []
        sending = asyncio.create_task(self._send_on(meanwhile))
        if leaving is not None:
            await self._members.pop(leaving).close()
        if joining is not None:
            self._members[joining] = self._room.consumer(self._topic, self._found.append)
            await self._members[joining].start()
        await until(self._is_shared)
        sending.cancel()
        await asyncio.wait([sending])
        after = [await self._send() for _ in range(40)]
        await until(lambda: {*meanwhile, *after} <= set(bodies(list(self._found))))
        times = Counter(bodies(self._found))
        assert {text: times[text] for text in after} == dict.fromkeys(after, 1)

    async def _send_on(self, sent: list[str]) -> None:
        while True:
            sent.append(await self._send())

    async def _send(self) -> str:
        text, self._sent_count = f"{self._sent_count:05d}", self._sent_count + 1
        await self._producer.send(Message(self._topic, text.encode()))
        return text

    def _is_shared(self) -> bool:
        """Every queue has one member, and everybody some."""
        shares = [
            [queue.queue_id for queue in member.queues if queue.topic == self._topic]
            for member in self._members.values()
        ]
        return all(shares) and sorted(queue_id for share in shares for queue_id in share) == list(
            range(8)
        )

    async def close(self) -> None:
        for member in self._members.values():
            await member.close()


def test_members_that_join_and_leave_share_the_queues_and_no_message_is_lost(room: Room) -> None:
    topic = room.topic("Shared", 8)

    async def scenario() -> None:
        async with room.producer() as producer:
            crowd = Crowd(room, topic, producer)
            try:
                for name in ("one", "two", "three"):
                    await crowd.change(joining=name)
                await crowd.change(leaving="one", joining="four")
                await crowd.change(leaving="three")
                await crowd.change(leaving="two")
            finally:
                await crowd.close()

    run(scenario)


def test_offsets_that_are_reset_while_messages_are_consumed_count(room: Room) -> None:
    topic = room.topic("Reset", 1)
    found: list[ReceivedMessage] = []

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    async def scenario() -> None:
        async with room.consumer(topic, found.append), room.producer() as producer:
            await fill(producer, topic, *names("before", range(10)))
            for text in names("after", range(10)):
                last_ms = now_ms()
                await until(lambda last_ms=last_ms: now_ms() > last_ms)  # type: ignore[misc] # no two at the same time
                await fill(producer, topic, text)
            await until(lambda: len(found) == 20)
            (begin_ms,) = [
                message.stored_at_ms for message in found if message.body == b"after 000"
            ]
            printed = await room.mqadmin(
                "resetOffsetByTime", "-g", f"consumers-of-{topic}", "-t", topic, "-s", str(begin_ms)
            )
            assert "Exception" not in printed, printed
            if (
                room.name == "4.9.7"
            ):  # it tells the members at once; 5.5.0 does when it answers their next pull
                await until(lambda: len(found) == 30)
            await fill(producer, topic, "last")
            await until(lambda: "last" in bodies(found))
        assert bodies(found) == [
            *sorted(names("after", range(10)) * 2),
            *names("before", range(10)),
            "last",
        ]

    run(scenario)


def test_a_group_goes_on_where_it_was_after_its_members_or_its_broker_were_restarted(
    room: Room,
) -> None:
    topic = room.topic("Restarts")
    found: list[ReceivedMessage] = []
    parts = [names(prefix, range(10)) for prefix in ("a", "b", "c", "d")]

    def have(count: int) -> bool:
        return bodies(found) == [text for part in parts[:count] for text in part]

    async def scenario() -> None:
        async with room.producer() as producer:
            for count in (1, 2):
                async with room.consumer(topic, found.append):
                    await fill(producer, topic, *parts[count - 1])
                    await until(lambda count=count: have(count))  # type: ignore[misc, arg-type]
            async with room.consumer(topic, found.append):
                await asyncio.to_thread(room.restart_broker)
                await fill(producer, topic, *parts[2])
                await until(lambda: have(3))
            await fill(producer, topic, *parts[3])
            async with room.consumer(topic, found.append):
                await until(lambda: have(4))

    run(scenario, 150)
