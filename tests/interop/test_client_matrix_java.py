"""The client library beside Java clients, 5.5.0 and 4.9.8, in three clusters: each reads what the
other sent, and they share groups.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from interop.client_matrix_room import FROM_FIRST, JAVA_CLIENTS, UNICODE, Room, bodies, names, run
from interop.java_peer import JavaPeer
from interop.programs import Event
from orbitmq import Message, ProducerSettings, ReceivedMessage
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX
from orbitmq.message.flags import CompressionType
from support.common.waiting import until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.needs("java", "maven"),
    pytest.mark.timeout(180),
    pytest.mark.parametrize("java", JAVA_CLIENTS),
]

LARGE = f"{UNICODE} " * 2_000  # clients compress it
SHARDS = ("a", "zwei", UNICODE, "-")


def topic_of(room: Room, name: str, java: str) -> str:
    return room.topic(f"{name}-{java.replace('.', '-')}")


def in_java(peer: JavaPeer, topic: str) -> list[str]:
    return sorted(event["body"] for event in peer.happened("consumed", topic=topic))


async def told(peer: JavaPeer, *words: str, until: str) -> Event:
    return await asyncio.to_thread(lambda: peer.do(*words, until=until))


def test_a_java_consumer_reads_what_is_sent_here(room: Room, java: str) -> None:
    peer, topic = room.peer(java), topic_of(room, "ToJava", java)
    batch = [
        Message(topic, text.encode(), "in-batch", text, {"Nr": text})
        for text in names("batch", range(5))
    ]

    async def scenario() -> None:
        await told(peer, "consume", f"java-{topic}", topic, until="consuming")
        async with room.producer() as producer:
            result = await producer.send(
                Message(
                    topic, UNICODE.encode(), "größe", [*UNICODE.split(), "k"], {UNICODE: UNICODE}
                )
            )
            await producer.send_batch(batch)
        for compression in CompressionType:
            async with room.producer(ProducerSettings(compression=compression)) as producer:
                await producer.send(Message(topic, LARGE.encode(), keys=compression.name))
        await until(lambda: len(in_java(peer, topic)) == 9)
        assert in_java(peer, topic) == sorted(
            [UNICODE, LARGE, LARGE, LARGE, *names("batch", range(5))]
        )
        (event,) = peer.happened("consumed", topic=topic, body=UNICODE)
        properties = event["properties"]
        assert (event["id"], event["queue"], event["offset"]) == (
            result.msg_id,
            result.queue.queue_id,
            result.queue_offset,
        )
        assert (properties["TAGS"], properties["KEYS"], properties[UNICODE]) == (
            "größe",
            f"{UNICODE} k",
            UNICODE,
        )
        for text in names("batch", range(5)):
            (event,) = peer.happened("consumed", topic=topic, body=text)
            properties = event["properties"]
            assert (properties["TAGS"], properties["KEYS"], properties["Nr"]) == (
                "in-batch",
                text,
                text,
            )

    run(scenario)


def test_what_a_java_producer_sends_is_read_here(room: Room, java: str) -> None:
    peer, topic = room.peer(java), topic_of(room, "FromJava", java)
    found: list[ReceivedMessage] = []

    async def scenario() -> None:
        async with room.consumer(topic, found.append, "größe || tag"):
            for text in (UNICODE, LARGE):
                sent = await told(
                    peer,
                    "post",
                    "java",
                    topic,
                    "größe",
                    f"{UNICODE} k",
                    text,
                    UNICODE,
                    UNICODE,
                    "shard",
                    until="sent",
                )
            await told(
                peer,
                "post",
                "java",
                topic,
                "other",
                "k",
                "not wanted",
                "name",
                "value",
                "shard",
                until="sent",
            )
            await told(
                peer, "batch", "java", topic, "batch", *names("batch", range(5)), until="sent"
            )
            await until(lambda: len(found) == 7)
        assert bodies(found) == sorted([UNICODE, LARGE, *names("batch", range(5))])
        posted = [message for message in found if message.tags == "größe"]
        assert all(
            message.keys == (*UNICODE.split(), "k") and message.properties[UNICODE] == UNICODE
            for message in posted
        )
        assert posted[1].msg_id == sent["id"]
        assert posted[1].queue.queue_id == sent["queue"]
        assert sorted(message.keys[0] for message in found if message.tags == "tag") == [
            f"batch-{n}" for n in range(5)
        ]

    run(scenario)


def test_both_keep_messages_of_a_sharding_key_in_one_queue_and_in_order(
    room: Room, java: str
) -> None:
    peer, topic = room.peer(java), topic_of(room, "Sharded", java)
    found: list[ReceivedMessage] = []

    def of_shard(texts: Sequence[str], shard: str) -> list[str]:
        return [text for text in texts if text.startswith(f"{shard}/")]

    async def scenario() -> None:
        queues: dict[str, set[int]] = {shard: set() for shard in SHARDS}
        async with room.producer() as producer:
            for number in range(5):
                for shard in SHARDS:
                    text = f"{shard}/here {number}"
                    queues[shard].add(
                        (
                            await producer.send(Message(topic, text.encode(), sharding_key=shard))
                        ).queue.queue_id
                    )
        for number in range(5):
            for shard in SHARDS:
                text = f"{shard}/java {number}"
                queues[shard].add(
                    (
                        await told(
                            peer,
                            "post",
                            "java",
                            topic,
                            "tag",
                            "k",
                            text,
                            "n",
                            "v",
                            shard,
                            until="sent",
                        )
                    )["queue"]
                )
        assert all(len(used) == 1 for used in queues.values()), queues
        await told(peer, "consumeInOrder", f"java-{topic}", topic, until="consuming")
        async with room.consumer(topic, found.append, settings=replace(FROM_FIRST, in_order=True)):
            await until(
                lambda: (
                    len(found) == len(peer.happened("consumed", topic=topic)) == 10 * len(SHARDS)
                )
            )
        java_found = [event["body"] for event in peer.happened("consumed", topic=topic)]
        for shard in SHARDS:
            wanted = [f"{shard}/{who} {number}" for who in ("here", "java") for number in range(5)]
            assert of_shard([message.body.decode() for message in found], shard) == wanted
            assert of_shard(java_found, shard) == wanted

    run(scenario)


@pytest.mark.parametrize("in_order", [False, True], ids=["side by side", "in order"])
def test_what_a_java_consumer_fails_at_comes_again_and_is_a_dead_letter_in_the_end(
    room: Room, java: str, in_order: bool
) -> None:
    peer, topic = room.peer(java), f"Fails{in_order:d}-{java.replace('.', '-')}"
    room.topic(topic, 1)
    first, bad, *rest = names("fails", range(4))

    def seen() -> list[str]:
        return [event["body"] for event in peer.happened("consumed", topic=topic)]

    async def scenario() -> None:
        async with room.producer() as producer:
            for text in (first, bad, *rest):
                await producer.send(Message(topic, text.encode(), "tag", text, {UNICODE: UNICODE}))
        await told(
            peer,
            "failInOrder" if in_order else "fail",
            f"java-{topic}",
            topic,
            "2",
            bad,
            until="consuming",
        )
        (letter,) = await room.stored(f"{DEAD_LETTER_PREFIX}java-{topic}", 1)
        await until(lambda: len(seen()) >= 6)
        assert (sorted(seen()) if not in_order else seen()) == [first, bad, bad, bad, *rest]
        assert (letter.body.decode(), letter.tags, letter.keys, letter.properties[UNICODE]) == (
            bad,
            "tag",
            tuple(bad.split()),
            UNICODE,
        )
        assert letter.properties["RETRY_TOPIC"] == topic
        await told(peer, "leave", f"java-{topic}", until="left")

    run(scenario)


@pytest.mark.parametrize("in_order", [False, True], ids=["side by side", "in order"])
def test_a_group_of_both_shares_its_queues(room: Room, java: str, in_order: bool) -> None:
    peer, topic = room.peer(java), topic_of(room, f"Mixed{in_order:d}", java)
    group = f"consumers-of-{topic}"
    found: list[ReceivedMessage] = []

    def times() -> Counter[str]:
        return Counter([*bodies(list(found)), *in_java(peer, topic)])

    async def scenario() -> None:
        async with (
            room.producer() as producer,
            room.consumer(
                topic, found.append, settings=replace(FROM_FIRST, in_order=in_order)
            ) as mine,
        ):

            async def all_come_once(prefix: str, queue_count: int) -> None:
                await until(
                    lambda: (
                        len([queue for queue in mine.queues if queue.topic == topic]) == queue_count
                    )
                )
                for text in names(prefix, range(40)):
                    await producer.send(Message(topic, text.encode()))
                await until(lambda: set(names(prefix, range(40))) <= times().keys())
                assert {
                    text: count for text, count in times().items() if text.startswith(prefix)
                } == dict.fromkeys(names(prefix, range(40)), 1)

            await all_come_once("alone", 4)
            await told(
                peer, "consumeInOrder" if in_order else "consume", group, topic, until="consuming"
            )
            await all_come_once("both", 2)
            assert len([text for text in in_java(peer, topic) if text.startswith("both")]) == 20
            await told(peer, "leave", group, until="left")
            await all_come_once("again", 4)

    run(scenario)


def test_a_java_consumer_gets_what_its_expression_is_true_of(room: Room, java: str) -> None:
    peer, topic = room.peer(java), topic_of(room, "SqlInJava", java)
    expression = "(size BETWEEN 3 AND 5 AND color IN ('red', 'größe')) OR TAGS = 'last'"

    async def scenario() -> None:
        async with room.producer() as producer:
            await producer.send(Message(topic, b"old", properties={"size": "4", "color": "red"}))
            await told(peer, "consumeBySql", f"java-{topic}", topic, expression, until="consuming")
            for number in range(8):
                for color in ("red", "größe", "blue"):
                    await producer.send(
                        Message(
                            topic,
                            f"{color} {number}".encode(),
                            properties={"size": str(number), "color": color},
                        )
                    )
            for queue in await producer.queues(topic):
                await producer.send(Message(topic, b"last", "last"), queue=queue)
            await until(lambda: in_java(peer, topic).count("last") == 4)
        wanted = [f"{color} {number}" for color in ("red", "größe") for number in (3, 4, 5)]
        assert in_java(peer, topic) == sorted([*wanted, "old", *["last"] * 4])

    run(scenario)


def test_a_java_consumer_with_a_wrong_expression_hears_what_is_wrong(room: Room, java: str) -> None:
    peer, topic = room.peer(java), topic_of(room, "BadSqlInJava", java)

    async def scenario() -> None:
        event = await told(
            peer, "consumeBySql", f"java-{topic}", topic, "size > > 3", until="failed"
        )
        assert "column 8" in event["why"], event

    run(scenario)
