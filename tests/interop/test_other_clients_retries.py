"""Messages that Apache's Go and C++ clients fail at, with the original brokers, 5.5.0 and 4.9.7,
and with ours: again, in order, dead.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from interop.client_matrix_room import Room
from interop.frames import Request, ask
from interop.other_clients import ADDON, CPP, GO, StartClient
from orbitmq import ReceivedMessage
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]

ATTEMPTS = 2  # after the first
ALWAYS = 1000


def group_of(room: Room, name: str, *, attempts: int = ATTEMPTS) -> str:
    """A group that gets a message again so often. Its retry topic is there: clients look for a new
    one twice a minute only.
    """
    settings = b'{"groupName":"%s","retryMaxTimes":%d,"retryQueueNums":1}' % (
        name.encode(),
        attempts,
    )
    assert ask(room.cluster.broker.address, Request(200, None, settings)).code == 0
    room.topic(RETRY_PREFIX + name, 1)
    return name


def letters(room: Room, group: str, count: int) -> list[ReceivedMessage]:
    async def main() -> list[ReceivedMessage]:
        async with asyncio.timeout(60):
            return await room.stored(DEAD_LETTER_PREFIX + group, count)

    return asyncio.run(main())


def test_a_message_that_fails_comes_again_until_it_is_dead(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic, group = room.topic(f"Fails-{language}"), group_of(room, f"failing-{language}")
    ids = {}
    with start_client(room.address) as peer:
        peer.consume(group, topic, failures={"never": ALWAYS, "third": 2}, attempts=ATTEMPTS)
        for key, count in (
            ("first", 1),
            ("third", 3),
            ("never", 3),
        ):  # one at a time: the C++ client lets fail all that came together
            ids[key] = peer.send(topic, key, tag="tag", properties={"color": "größe"})["id"]
            came = peer.wait_consumed(key, count)
            assert [event["times"] for event in came] == list(range(count))
            assert {(event["topic"], event["body"], event["tag"]) for event in came} == {
                (topic, f"body of {key}", "tag")
            }
            assert all(
                later["storedMs"] - earlier["storedMs"] >= 1000 for earlier, later in pairwise(came)
            )  # the delay of each level
        if (room.name, language) == ("5.5.0", CPP):
            # which loses it: the client does not say of which topic it was, and the broker fails by
            # that
            return
        (letter,) = letters(room, group, 1)
        assert {key: len(peer.consumed(key)) for key in ids} == {"first": 1, "third": 3, "never": 3}
    assert (letter.body, letter.keys, letter.msg_id) == (b"body of never", ("never",), ids["never"])
    assert (letter.tags, letter.properties["color"], letter.properties["RETRY_TOPIC"]) == (
        "tag",
        "größe",
        topic,
    )


@pytest.mark.needs("node")
@pytest.mark.parametrize("language", [ADDON], indirect=True)
def test_what_fails_at_the_newer_cpp_client_comes_again_until_it_is_dead(
    room: Room, start_client: StartClient
) -> None:
    topic, group = room.topic("FailsAtAddon"), group_of(room, "failing-addon")
    with start_client(room.address) as peer:
        peer.consume(group, topic, failures={"never": ALWAYS, "third": 2}, attempts=ATTEMPTS)
        for key, count in (
            ("first", 1),
            ("third", 3),
            ("never", 3),
        ):  # one at a time: it lets fail all that came together
            sent = peer.send(topic, key, tag="tag")
            assert {
                (event["topic"], event["body"], event["id"])
                for event in peer.wait_consumed(key, count)
            } == {(topic, f"body of {key}", sent["id"])}
        (letter,) = letters(room, group, 1)
        assert {key: len(peer.consumed(key)) for key in ("first", "third", "never")} == {
            "first": 1,
            "third": 3,
            "never": 3,
        }
    assert (letter.body, letter.keys, letter.tags, letter.msg_id) == (
        b"body of never",
        ("never",),
        "tag",
        sent["id"],
    )


def test_in_order_nothing_passes_a_message_that_failed(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic, group = room.topic(f"InOrder-{language}", 1), group_of(room, f"in-order-{language}")
    keys = [f"step-{number}" for number in range(6)]
    with start_client(room.address) as peer:
        for key in keys:
            peer.send(topic, key)
        peer.consume(group, topic, orderly=True, failures={"step-1": 2, "step-4": 1}, attempts=5)
        peer.wait_consumed(keys[-1])
        came = [event["key"] for event in peer.happened("consumed")]
    assert came == [
        "step-0",
        "step-1",
        "step-1",
        "step-1",
        "step-2",
        "step-3",
        "step-4",
        "step-4",
        "step-5",
    ]


@pytest.mark.needs("go")
@pytest.mark.parametrize("language", [GO], indirect=True)  # that for C++ tries for ever
def test_in_order_what_failed_too_often_is_dead_and_the_others_go_on(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic, group = (
        room.topic(f"DeadInOrder-{language}", 1),
        group_of(room, f"dead-in-order-{language}"),
    )
    with start_client(room.address) as peer:
        for key in ("before", "never", "after"):
            peer.send(topic, key)
        peer.consume(group, topic, orderly=True, failures={"never": ALWAYS}, attempts=1)
        peer.wait_consumed("after")
        came = [event["key"] for event in peer.happened("consumed")]
        (letter,) = letters(room, group, 1)
    assert came == [
        "before",
        "never",
        "never",
        "never",
        "after",
    ]  # the client counts one more than it is told
    assert letter.body == b"body of never"


def test_a_queue_goes_to_who_is_left_when_an_ordered_consumer_leaves(
    room: Room, start_client: StartClient, language: str
) -> None:
    topic, group = room.topic(f"Handover-{language}", 1), group_of(room, f"handover-{language}")
    with start_client(room.address) as first:
        first.consume(group, topic, orderly=True)
        first.send(topic, "one")
        first.wait_consumed("one")
        first.do("leave", "left", group=group)
        with start_client(room.address) as second:
            second.consume(group, topic, orderly=True)
            first.send(topic, "two")
            second.wait_consumed("two")
        assert not first.consumed("two")
