"""Pending timers reported to operators are those the broker would deliver, at bounded cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.admin.timer_topic import TimerTopic
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.store.types import QueueKey, QueueOffset
from support.broker.delay import DelayRoom, timer_settings

QUEUE = QueueKey(TIMER_TOPIC, 0)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[DelayRoom]:
    room = DelayRoom(tmp_path, timer_settings(timer_roll_window_slot=10))
    yield room
    room.stop()


def filled(topic: TimerTopic, room: DelayRoom) -> TimerTopic:
    offset = room.store.queues.min_offset(*QUEUE)
    while (
        result := room.store.reads.get(QUEUE, QueueOffset(offset), count_max=32)
    ).next_offset > offset:
        topic.add(result.records)
        offset = result.next_offset
    return topic


def pending(room: DelayRoom, limit: int | None = None) -> list[tuple[bytes, int]]:
    """Return the pending messages, with the time until they are due."""
    now_ms = room.clock.now_ms()
    topic = filled(TimerTopic(now_ms, limit, lambda record: True), room)
    if not topic.is_exact:
        topic.restart()
        assert filled(topic, room).is_exact
    return [(stored.body, due_ms - now_ms) for stored, due_ms in topic.found()]


def test_messages_that_share_an_id_are_told_apart_by_topic_and_second(room: DelayRoom) -> None:
    for body, topic, delay_ms in (
        (b"first", "T", 3_000),
        (b"second", "T", 5_000),
        (b"elsewhere", "U", 3_000),
    ):
        room.send(body, topic=topic, UNIQ_KEY="same", TIMER_DELAY_MS=str(delay_ms))
    assert pending(room) == [(b"first", 3_000), (b"elsewhere", 3_000), (b"second", 5_000)]
    room.send(b"taker", UNIQ_KEY="same", TIMER_DELAY_MS="5000", TIMER_DEL_UNIQKEY="same")
    assert pending(room) == [(b"first", 3_000), (b"elsewhere", 3_000)]
    room.pass_ms(8_000)
    assert list(room.counts()) == [b"first"]
    assert pending(room) == []


def test_of_one_that_was_rolled_the_last_copy_is_told(room: DelayRoom) -> None:
    room.send(b"rolled", TIMER_DELAY_MS="47123")
    room.send(b"rolled and taken back", TIMER_DELAY_MS="47124")
    room.pass_ms(25_000)
    at_ms = str(room.clock.now_ms() + 22_124)
    room.send(b"taker", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY="T+rolled and taken back")
    assert len(room.stored(QUEUE)) > 4
    assert pending(room) == [(b"rolled", 22_123)]


@pytest.mark.parametrize("limit", [1, 5, 200, None])
def test_so_many_are_told_as_were_asked_for_although_most_of_the_first_were_taken_back(
    room: DelayRoom, limit: int | None
) -> None:
    due = {b"%03d" % number: 9_000 - 10 * number for number in range(600)}
    for body, delay_ms in due.items():
        room.send(body, TIMER_DELAY_MS=str(delay_ms))
    taken = sorted(due, key=due.__getitem__)[:250]
    for body in taken:
        room.send(b"taker", TIMER_DELAY_MS=str(due[body]), TIMER_DEL_UNIQKEY=body.decode())
    waiting = sorted(
        ((body, due_ms) for body, due_ms in due.items() if body not in taken),
        key=lambda each: each[1],
    )
    assert pending(room, limit) == waiting[:limit]


def test_no_more_messages_are_kept_than_were_asked_for_and_a_few(room: DelayRoom) -> None:
    for number in range(500):
        room.send(b"%d" % number, TIMER_DELAY_MS=str(9_000 - number))
    topic = filled(TimerTopic(room.clock.now_ms(), 5, lambda record: True), room)
    assert topic.is_exact
    assert [stored.body for stored, _ in topic.found()] == [
        b"%d" % number for number in range(499, 494, -1)
    ]
    assert len(topic._heap) == 105
