"""Latencies of puts and gets as the fast path and the general path count them; only the store
advances the clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbitmq.common.errors import WriteFailedError
from orbitmq.message.message_type import MessageType
from orbitmq.message.properties import write
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.testing.manual_clock import ManualClock
from support.broker.listeners import stats_recorder
from support.broker.two_paths import PULL, SEND, PathRoom, TwoRooms, request

V2, PULLED = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
OWN = 4  # the flag of a pull that carries its subscription


def slow(
    room: PathRoom, monkeypatch: pytest.MonkeyPatch, *, commit_ms: int = 0, get_ms: int = 0
) -> None:
    """Make every commit and every read of a queue take this long."""
    commit, get = room.store.commit, room.store.reads.get

    def slow_commit() -> None:
        room.clock.advance_ms(commit_ms)
        commit()

    def slow_get(*arguments: Any, **names: Any) -> Any:
        room.clock.advance_ms(get_ms)
        return get(*arguments, **names)

    monkeypatch.setattr(room.store, "commit", slow_commit)
    monkeypatch.setattr(room.store.reads, "get", slow_get)


def test_put_latency_includes_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = TwoRooms(tmp_path)
    for room in rooms.both:
        slow(room, monkeypatch, commit_ms=7)
    for queue in ("0", "1", "0"):
        rooms.turn(request(V2, SEND | {"e": queue}))
    sums = rooms.fast.totals.sums
    assert (
        sums["took", 7],
        sums["queue", "T", 0],
        sums["queue took", "T", 0],
        sums["queue took", "T", 1],
    ) == (3, 2, 14, 7)
    assert rooms.fast.general == []
    rooms.close()  # compares the counts of both paths


def test_put_latency_with_sync_flush_lasts_until_the_message_is_durable(tmp_path: Path) -> None:
    rooms = TwoRooms(tmp_path, flush_mode=FlushMode.SYNC)
    for room in rooms.both:
        room.turn((0, request(V2, SEND)))
        room.clock.advance_ms(20)
        room.store.flushing.flush_log()
        assert len(room.answers()[0][0]) == 1
    assert rooms.fast.totals.sums["took", 20] == 1
    rooms.close()


def test_a_failed_put_is_counted_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = TwoRooms(tmp_path)

    def fails_in(room: PathRoom) -> None:
        def fail() -> None:
            room.clock.advance_ms(3)
            room.store.log.discard()
            raise WriteFailedError("the disk is full")

        monkeypatch.setattr(room.store, "commit", fail)

    for room in rooms.both:
        fails_in(room)
    rooms.turn(request(V2, SEND))
    monkeypatch.undo()
    sums = rooms.fast.totals.sums
    assert (sums["failed", 3], sums["took", 3], sums["put", "T", MessageType.NORMAL]) == (1, 0, 0)
    rooms.close()


def test_get_latency_includes_the_store_and_the_lag_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = TwoRooms(tmp_path)
    rooms.turn(b"".join(request(V2, SEND, b"x", opaque=number) for number in range(3)))
    for room in rooms.both:
        room.clock.advance_ms(100)
        slow(room, monkeypatch, get_ms=5)
    for offset in ("0", "1"):
        rooms.turn(
            request(PULLED, PULL | {"sysFlag": str(OWN), "queueOffset": offset, "maxMsgNums": "1"})
        )
    sums = rooms.fast.totals.sums
    assert (
        sums["queue gets", "g", "T", 1],
        sums["get took", "g", "T", 1],
        sums["late", "g", "T", 1],
    ) == (2, 10, 110)
    assert sums["behind", "g", "T", 1] == 2 * rooms.fast.store.log.end_offset // 3
    assert PULLED not in rooms.fast.general
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
def test_messages_are_counted_by_type_under_the_topic_that_stores_them(
    names: dict[str, str], topic: str, kind: MessageType, tmp_path: Path
) -> None:
    rooms = TwoRooms(tmp_path)
    for room in rooms.both:
        for each in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"):
            room.topics.for_send_back(each, 20, 6)
        room.loop.run()
    text = write({"UNIQ_KEY": "AC110001000018B4AAC2147F4BAF0000", **names})
    flag = "4" if kind is MessageType.TRANSACTION else "0"
    (reply,) = rooms.sent([request(V2, SEND | {"i": text, "f": flag}, b"x")])
    assert reply.code == ResponseCode.SUCCESS, reply
    counted = {key: count for key, count in rooms.fast.totals.sums.items() if key[0] == "put"}
    assert counted == {("put", topic, kind): 1}
    assert rooms.fast.general == []
    rooms.close()


def test_runtime_info_contains_put_and_get_latencies() -> None:
    figures = stats_recorder(ManualClock())
    figures.put_took(23, 99)
    figures.put_took(450)
    figures.pulled("g", "T", 0, 1, 100, 12)
    figures.tick(ManualClock().now_ms() + 61_000)
    info = figures.store.runtime_info(0)
    assert (info["putMessageEntireTimeMax"], info["getMessageEntireTimeMax"]) == ("450", "12")
    assert (info["putLatency99"], info["putLatency999"]) == ("24.00", "24.00")
    assert "[10~50ms]:99 " in info["putMessageDistributeTime"]
