"""How long puts and gets took, as the fast path and the general one count it, by a clock that only a slow store moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hot_room import PULL, SEND, HotRoom, TwoRooms, request
from orbitmq.broker.figures import Figures
from orbitmq.common.errors import WriteFailed
from orbitmq.message.message_type import MessageType
from orbitmq.message.properties import write
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.testing.manual_clock import ManualClock

V2, PULLED = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
OWN = 4  # the pull brings its subscription


def slow(room: HotRoom, monkeypatch: pytest.MonkeyPatch, *, commit_ms: int = 0, get_ms: int = 0) -> None:
    """Let every commit of a room, and every look into a queue, take so long."""
    commit, get = room.store.commit, room.store.reads.get

    def slow_commit() -> None:
        room.clock.advance_ms(commit_ms)
        commit()

    def slow_get(*arguments: Any, **names: Any) -> Any:
        room.clock.advance_ms(get_ms)
        return get(*arguments, **names)

    monkeypatch.setattr(room.store, "commit", slow_commit)
    monkeypatch.setattr(room.store.reads, "get", slow_get)


def test_a_put_takes_as_long_as_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = TwoRooms(tmp_path)
    for room in rooms.both:
        slow(room, monkeypatch, commit_ms=7)
    for queue in ("0", "1", "0"):
        rooms.turn(request(V2, SEND | {"e": queue}))
    sums = rooms.hot.totals.sums
    assert (sums["took", 7], sums["queue", "T", 0], sums["queue took", "T", 0], sums["queue took", "T", 1]) == (3, 2, 14, 7)
    assert rooms.hot.general == []
    rooms.close()  # which compares them with those of the general path


def test_a_put_that_waits_for_the_disk_takes_until_the_disk_has_it(tmp_path: Path) -> None:
    rooms = TwoRooms(tmp_path, flush_mode=FlushMode.SYNC)
    for room in rooms.both:
        room.turn((0, request(V2, SEND)))
        room.clock.advance_ms(20)
        room.store.flushing.flush_log()
        assert len(room.answers()[0][0]) == 1
    assert rooms.hot.totals.sums["took", 20] == 1
    rooms.close()


def test_a_put_that_fails_is_counted_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = TwoRooms(tmp_path)

    def fails_in(room: HotRoom) -> None:
        def fail() -> None:
            room.clock.advance_ms(3)
            room.store.log.discard()
            raise WriteFailed("the disk is full")

        monkeypatch.setattr(room.store, "commit", fail)

    for room in rooms.both:
        fails_in(room)
    rooms.turn(request(V2, SEND))
    monkeypatch.undo()
    sums = rooms.hot.totals.sums
    assert (sums["failed", 3], sums["took", 3], sums["put", "T", MessageType.NORMAL]) == (1, 0, 0)
    rooms.close()


def test_a_get_takes_as_long_as_the_store_and_tells_how_far_behind_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = TwoRooms(tmp_path)
    rooms.turn(b"".join(request(V2, SEND, b"x", opaque=number) for number in range(3)))
    for room in rooms.both:
        room.clock.advance_ms(100)
        slow(room, monkeypatch, get_ms=5)
    for offset in ("0", "1"):
        rooms.turn(request(PULLED, PULL | {"sysFlag": str(OWN), "queueOffset": offset, "maxMsgNums": "1"}))
    sums = rooms.hot.totals.sums
    assert (sums["queue gets", "g", "T", 1], sums["get took", "g", "T", 1], sums["late", "g", "T", 1]) == (2, 10, 110)
    assert sums["behind", "g", "T", 1] == 2 * rooms.hot.store.log.end_offset // 3
    assert PULLED not in rooms.hot.general
    rooms.close()


@pytest.mark.parametrize(
    ("names", "topic", "kind"),
    [
        ({}, "T", MessageType.NORMAL),
        ({"__SHARDINGKEY": "s"}, "T", MessageType.FIFO),
        ({"DELAY": "1"}, "SCHEDULE_TOPIC_XXXX", MessageType.DELAY),
        ({"DELAY": "1", "__SHARDINGKEY": "s"}, "SCHEDULE_TOPIC_XXXX", MessageType.FIFO),
        ({"TIMER_DELIVER_MS": "1700000009000"}, "rmq_sys_wheel_timer", MessageType.DELAY),
        ({"TRAN_MSG": "true", "PGROUP": "p"}, "RMQ_SYS_TRANS_HALF_TOPIC", MessageType.TRANSACTION),
    ],
)
def test_messages_are_counted_by_their_type_where_they_are_stored(
    names: dict[str, str], topic: str, kind: MessageType, tmp_path: Path
) -> None:
    rooms = TwoRooms(tmp_path)
    for room in rooms.both:
        for each in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"):
            room.topics.for_send_back(each, 20, 6)
        room.loop.run()
    text = write({"UNIQ_KEY": "AC110001000018B4AAC2147F4BAF0000", **names})
    flag = "4" if kind is MessageType.TRANSACTION else "0"
    (answer,) = rooms.sent([request(V2, SEND | {"i": text, "f": flag}, b"x")])
    assert answer.code == ResponseCode.SUCCESS, answer
    counted = {key: count for key, count in rooms.hot.totals.sums.items() if key[0] == "put"}
    assert counted == {("put", topic, kind): 1}
    assert rooms.hot.general == []
    rooms.close()


def test_runtime_info_tells_how_long_puts_and_gets_took() -> None:
    figures = Figures(ManualClock(), "C", lambda _: False)
    figures.put_took(23, 99)
    figures.put_took(450)
    figures.pulled("g", "T", 0, 1, 100, 12)
    figures.tick(ManualClock().now_ms() + 61_000)
    info = figures.store.runtime_info(0)
    assert (info["putMessageEntireTimeMax"], info["getMessageEntireTimeMax"]) == ("450", "12")
    assert (info["putLatency99"], info["putLatency999"]) == ("24.00", "24.00")
    assert "[10~50ms]:99 " in info["putMessageDistributeTime"]
