"""Delivery of messages that come later, when disks are full, logs were cut, clocks jump and tables
change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from orbitmq.broker.delay.levels.delivery import RETRY_MS
from orbitmq.common.errors import InvalidMessageError, StoreFullError
from orbitmq.common.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.message_type import MessageType
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.config import FlushMode
from orbitmq.store.log_batch import Appended
from support.broker.delay import DelayRoom, timer_settings
from support.store.logs import HOST


def delay_offsets(room: DelayRoom) -> dict[str, int]:
    text = (room.folder / "store/config/delayOffset.json").read_text()
    found: dict[str, int] = json.loads(re.sub(r"(\d+):", r'"\1":', text))["offsetTable"]
    return found


def bodies(room: DelayRoom) -> list[bytes]:
    return [each.body for each in room.delivered()]


def test_a_full_disk_holds_deliveries_up_and_none_is_lost_or_out_of_order(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path)
    for number in range(10):
        room.send(b"level %d" % number, DELAY="1")
        room.send(b"timed %d" % number, TIMER_DELAY_MS="1000")
    room.run()
    room.clock.advance_ms(1_500)
    room.disk.is_full = True
    assert room.later.levels.run(room.clock.now_ms()) == (room.clock.now_ms() + RETRY_MS, True)
    assert room.timer.run(room.clock.now_ms()) == room.clock.now_ms() + RETRY_MS
    assert bodies(room) == []
    room.disk.is_full = False
    room.pass_ms(5_000)
    assert sorted(bodies(room)) == sorted(
        b"%s %d" % (kind, number) for kind in (b"level", b"timed") for number in range(10)
    )
    assert [body for body in bodies(room) if body.startswith(b"level")] == [
        b"level %d" % number for number in range(10)
    ]
    room.stop()


def test_a_full_disk_while_the_wheel_takes_messages_in_loses_none(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path, timer_settings(mapped_file_size_timer_log=300))
    for number in range(20):
        room.send(b"%d" % number, TIMER_DELAY_MS="3000")
    room.disk.is_full = True
    room.run(3)
    room.save()
    room.clock.advance_ms(1_000)
    room.disk.is_full = False
    room.pass_ms(5_000)
    assert bodies(room) == [b"%d" % number for number in range(20)]
    room.stop()


def test_an_offset_behind_the_end_of_its_queue_goes_on_at_the_end(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path)
    room.send(b"first", DELAY="1")
    room.pass_ms(2_000)
    room.stop()
    file = tmp_path / "store/config/delayOffset.json"
    file.write_text(file.read_text().replace("1:1", "1:100"))
    room.start()
    room.send(b"second", DELAY="1")
    room.pass_ms(2_000)
    assert bodies(room) == [b"first", b"second"]
    room.stop()
    assert delay_offsets(room) == {"1": 2}


def test_messages_whose_records_are_deleted_are_passed_over(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path, commit_log_file_size=4096)
    for number in range(30):
        room.send(b"%02d" % number, DELAY="2", filler="x" * 400)
    room.send(b"timed", TIMER_DELAY_MS="5000")
    files = room.store.log.files
    while len(files.files) > 2:
        files.flush()
        assert files.delete_oldest()
    room.store.queues.correct_min(room.store.log.min_offset)
    room.pass_ms(6_000)
    assert bodies(room)[-1] == b"timed"
    assert 0 < len(bodies(room)) < 31
    assert bodies(room)[:-1] == sorted(bodies(room)[:-1])
    room.stop()
    assert delay_offsets(room) == {"2": 30}


def test_a_clock_that_goes_back_delays_a_level_by_its_delay_at_most(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path)
    for number in range(100):
        room.send(b"%02d" % number, DELAY="1")
    room.clock.set_wall_ms(room.clock.now_ms() - 86_400_000)
    room.run()
    assert bodies(room) == []
    room.pass_ms(1_000)
    assert bodies(room) == [b"%02d" % number for number in range(100)]
    room.stop()


def test_levels_that_are_configured_no_more_are_delivered_at_the_time_that_was_said(
    tmp_path: Path,
) -> None:
    room = DelayRoom(tmp_path)
    room.send(b"old", DELAY="3")
    room.stop()
    room._store_settings = {"delay_levels_ms": (1_000,)}
    room.settings.message_delay_level = "1s"
    room.start()
    room.send(b"new", DELAY="3")
    room.pass_ms(1_000)
    assert bodies(room) == [b"new"]
    room.pass_ms(8_999)
    assert bodies(room) == [b"new"]
    room.pass_ms(1)
    assert bodies(room) == [b"new", b"old"]
    room.stop()


def test_many_messages_of_one_moment_are_delivered_over_several_turns_in_their_order(
    tmp_path: Path,
) -> None:
    room = DelayRoom(tmp_path)
    for number in range(1_500):
        room.send(b"%04d" % number, DELAY="1")
        room.send(b"t%04d" % number, TIMER_DELAY_MS="2000")
    room.run()
    room.clock.advance_ms(3_000)
    room.later.levels.run(room.clock.now_ms())
    assert 0 < len(bodies(room)) < 1_500
    room.run()
    assert [body for body in bodies(room) if body[:1] != b"t"] == [
        b"%04d" % number for number in range(1_500)
    ]
    assert [body for body in bodies(room) if body[:1] == b"t"] == [
        b"t%04d" % number for number in range(1_500)
    ]
    room.stop()


def test_with_sync_flush_a_recall_that_is_not_on_disk_yet_counts(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path, flush_mode=FlushMode.SYNC)
    room.send(b"wanted", TIMER_DELAY_MS="5000")
    room.send(b"unwanted", TIMER_DELAY_MS="5000")
    room.store.flush()
    room.run()
    due_ms = room.clock.now_ms() + 5_000
    slot_ms = (due_ms - 1) // 1000 * 1000
    room.clock.advance_ms(slot_ms - room.clock.now_ms())
    room.disk.stalled.clear()
    room.send(b"unwanted", TIMER_DELIVER_MS=str(slot_ms + 1), TIMER_DEL_UNIQKEY="unwanted")
    room.clock.advance_ms(1_000)
    for _ in range(3):
        room.timer.run(room.clock.now_ms())
    assert (
        bodies(room) == []
    )  # the recall may still come: nothing of the second is delivered before
    room.disk.stalled.set()
    room.store.flush()
    room.run()
    room.store.flush()
    assert bodies(room) == [b"wanted"]
    room.stop()


@pytest.mark.parametrize("key", ["wanted", "T+wanted", "Mine+wanted"])
def test_nobody_takes_messages_back_by_sending_to_another_topic(tmp_path: Path, key: str) -> None:
    room = DelayRoom(tmp_path)
    at_ms = str(room.clock.now_ms() + 5_000)
    room.send(b"wanted", TIMER_DELIVER_MS=at_ms)
    room.send(b"taker", topic="Mine", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY=key)
    room.clock.advance_ms(4_500)
    room.run()
    room.send(b"late taker", topic="Mine", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY=key)
    room.pass_ms(2_000)
    assert bodies(room) == [b"wanted"]
    room.stop()


@pytest.mark.parametrize("key", ["unwanted", "T+unwanted"])
def test_who_sends_to_the_topic_of_a_message_takes_it_back_by_its_id_with_or_without_the_topic(
    tmp_path: Path, key: str
) -> None:
    room = DelayRoom(tmp_path)
    at_ms = str(room.clock.now_ms() + 5_000)
    room.send(b"unwanted", TIMER_DELIVER_MS=at_ms)
    room.send(b"taker", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY=key)
    room.pass_ms(7_000)
    assert bodies(room) == []
    room.stop()


def test_a_message_that_somebody_sent_to_the_timer_topic_by_himself_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room = DelayRoom(tmp_path)
    for names in (
        {},
        {"TIMER_OUT_MS": "x"},
        {"TIMER_OUT_MS": "1"},
        {"TIMER_OUT_MS": "1", "REAL_TOPIC": "T", "REAL_QID": "-1"},
    ):
        room.own.put(
            MessageRecord(
                TIMER_TOPIC.encode(),
                b"stray",
                born_host=HOST,
                born_time_ms=1,
                properties=properties.encode(names),
            )
        )
    room.own.put(MessageRecord(SCHEDULE_TOPIC.encode(), b"stray", born_host=HOST, born_time_ms=1))
    room.send(b"good", TIMER_DELAY_MS="1500")
    room.send(b"good too", DELAY="1")
    room.pass_ms(3_000)
    assert sorted(bodies(room)) == [b"good", b"good too"]
    assert "timed_message_dropped" in caplog.text
    assert "delayed_message_dropped" in caplog.text
    room.stop()


def test_the_timer_stands_still_while_it_is_told_to(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path)
    room.settings.timer_stop_enqueue = True
    room.send(b"x", TIMER_DELAY_MS="1000")
    room.pass_ms(3_000)
    assert room.timer.behind == 1
    room.settings.timer_stop_enqueue, room.settings.timer_stop_dequeue = False, True
    room.pass_ms(3_000)
    assert (room.timer.behind, bodies(room)) == (0, [])
    room.settings.timer_stop_dequeue = False
    room.pass_ms(1_000)
    assert bodies(room) == [b"x"]
    room.stop()


@pytest.mark.parametrize("names", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}])
def test_a_store_that_fails_between_copies_that_are_stored_one_by_one_brings_none_twice(
    tmp_path: Path, names: dict[str, str]
) -> None:
    room = DelayRoom(tmp_path)
    for number in range(5):
        room.send(b"%d" % number, **names)
    room.run()
    room.clock.advance_ms(2_000)
    put, stored = room.own.put, list[bytes]()

    def put_some(*messages: MessageRecord, message_type: MessageType) -> Sequence[Appended]:
        if len(messages) > 1 or messages[0].body == b"1":
            raise InvalidMessageError("one of them can never be stored")
        if len(stored) == 2:
            raise StoreFullError("no more")
        stored.append(bytes(messages[0].body))
        return put(*messages, message_type=message_type)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room.own, "put", put_some)
        room.run(1)
    assert stored == bodies(room) == [b"0", b"2"]
    room.kill(forgets=False)
    room.start()
    room.pass_ms(1_000)
    assert bodies(room) == [b"0", b"2", b"3", b"4"]
    room.stop()


def test_figures_tell_what_waits(tmp_path: Path) -> None:
    room = DelayRoom(tmp_path)
    for _ in range(3):
        room.send(b"x", TIMER_DELAY_MS="5000")
    room.send(b"y", DELAY="4")
    room.run()
    told = room.later.runtime_info()
    assert (
        told["scheduleMessageOffset_4"],
        told["timerCongestNum"],
        told["timerOffsetBehind"],
    ) == ("0,1", "3", "0")
    assert dict(room.later.waiting()) == {"T": 3}
    room.pass_ms(31_000)
    told = room.later.runtime_info()
    assert (
        told["scheduleMessageOffset_4"],
        told["timerCongestNum"],
        dict(room.later.waiting()),
    ) == ("1,1", "0", {"T": 0})
    room.stop()
