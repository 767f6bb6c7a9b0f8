"""What queues and index lose with the log, topics that keep messages for less time, and what is
kept until it is consumed.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.store.quarantine import BadBytes
from orbitmq.store.queue_retention import NO_RULES
from orbitmq.store.queues import Queues
from orbitmq.store.retention import FIRST_ROUND_MS, Retention
from orbitmq.store.types import LogOffset, QueueKey
from support.store.logs import NOW_MS
from support.store.retention import HOUR_MS, LOG_FILE_SIZE, PER_LOG_FILE, SmallStore

LONG_MS = 10 * 60_000  # sixty rounds
ALWAYS = tuple(range(24))


# -- queues and index


def test_queues_index_and_quarantine_forget_what_the_log_has_no_more(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=LONG_MS)
    store.put_files(3)
    store.put("Other")
    store.quarantine.add(BadBytes(LogOffset(10), LogOffset(20), "test"))
    store.quarantine.add(
        BadBytes(LogOffset(3 * LOG_FILE_SIZE), LogOffset(3 * LOG_FILE_SIZE + 1), "test")
    )
    index_files = len(store.index.files)
    store.run(LONG_MS + 10_000)
    assert store.names() == [3]
    assert (store.min_offset(), store.queue_files()) == (3 * PER_LOG_FILE, [2])
    assert (store.min_offset("Other"), store.queue_files("Other")) == (0, [0])
    assert [bad.offset for bad in store.quarantine] == [3 * LOG_FILE_SIZE]
    assert len(store.index.files) < index_files
    assert [path.name for path in sorted((tmp_path / "index").iterdir())] == [
        file.path.name for file in store.index.files
    ]
    assert store.index.files[0].header.end_offset >= store.log.min_offset


def test_many_queues_are_cleaned_a_few_at_a_time(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0, clean_queues_max=7)
    for number in range(60):
        store.put(queue_id=number)
    store.put()
    store.put(queue_id=1)
    store.clock.advance_ms(FIRST_ROUND_MS)
    store.tick()
    store.clock.advance_ms(FIRST_ROUND_MS)
    ticks, moved = 0, 0
    while True:
        store.tick()
        if (
            now_moved := sum(queue.min_offset > 0 for queue in store.queues.plain.opened())
        ) > moved:
            assert now_moved - moved <= 7
            ticks, moved = ticks + 1, now_moved
        wait = store.retention.next_ms - store.clock.monotonic_ms()
        if moved >= 57:
            break
        store.clock.advance_ms(max(wait, 0))
    assert ticks >= 57 // 7


def test_a_queue_that_cannot_be_cleaned_is_passed_over_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    for _ in range(10):
        store.put("A")
        store.put("B")
    damaged = tmp_path / "consumequeue" / "A" / "0"
    store.restart()
    store.queues.close()
    store.queues = Queues(store.disk, tmp_path, file_size=store.config.queue_file_size)
    store.queues.load()
    store.retention = Retention(
        store.disk,
        store.config,
        store.log,
        store.queues,
        store.index,
        store.quarantine,
        rules=NO_RULES,
    )
    hidden = damaged / f"{store.config.queue_file_size:020}"
    hidden.rename(tmp_path / "hidden")
    store.run(FIRST_ROUND_MS + 5_000)
    assert "queue_not_cleaned topic=A" in caplog.text
    assert store.queue_files("B") == [2]
    (tmp_path / "hidden").rename(hidden)
    store.run(10_000)
    assert store.queue_files("A") == [2]


def test_an_index_file_that_cannot_be_deleted_is_tried_again(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(3)
    store.disk.fail("unlink", errno.EIO, after=3 + 2, times=1)  # the log's, the queue's, then this
    store.run(FIRST_ROUND_MS + 5_000)
    files = len(list((tmp_path / "index").iterdir()))
    assert files > len(store.index.files)
    store.run(10_000)
    assert len(list((tmp_path / "index").iterdir())) == len(store.index.files)


# -- topics that keep messages for less time


def test_a_topic_with_a_shorter_time_loses_the_beginning_of_its_queues(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, reserved_ms=24 * HOUR_MS)
    store.reserve = {"Short": HOUR_MS, "Long": 2 * 24 * HOUR_MS, "Off": -1, "rmq_sys_X": HOUR_MS}
    store.run(FIRST_ROUND_MS)
    for _ in range(10):
        for topic in ("Short", "Long", "Off", "rmq_sys_X", "Other"):
            store.put(topic)
        store.run(60_000)
    store.run(HOUR_MS - 5 * 60_000 - 1)
    assert [
        store.min_offset(topic) for topic in ("Short", "Long", "Off", "rmq_sys_X", "Other")
    ] == [5, 0, 0, 0, 0]
    assert (store.queue_files("Short"), store.queue_files("Other")) == ([1, 2], [0, 1, 2])
    store.run(1 + 10_000)
    assert store.min_offset("Short") == 6
    store.run(HOUR_MS)
    assert (store.min_offset("Short"), store.queue_files("Short")) == (10, [2])
    assert store.put("Short").queue_offset == 10
    assert store.names()[0] == 0, "the log keeps it for the others"


def test_a_shorter_time_holds_after_a_restart_from_the_first_tick_on(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, reserved_ms=24 * HOUR_MS)
    store.reserve = {"Topic": HOUR_MS}
    store.put()
    store.put()
    store.clock.advance_ms(HOUR_MS)
    store.put()
    store.tick()
    assert store.min_offset() == 2
    store.restart()
    assert store.min_offset() == 0
    store.tick()
    assert store.min_offset() == 2


def test_a_minimum_does_not_go_down_when_the_time_gets_longer_or_the_clock_jumps_back(
    tmp_path: Path,
) -> None:
    store = SmallStore(tmp_path, reserved_ms=24 * HOUR_MS)
    store.reserve = {"Topic": HOUR_MS}
    store.put()
    store.clock.advance_ms(HOUR_MS)
    store.put()
    store.run(FIRST_ROUND_MS)
    assert store.min_offset() == 1
    store.reserve = {"Topic": 3 * HOUR_MS}
    store.run(10_000)
    assert store.min_offset() == 1
    store.clock.set_wall_ms(NOW_MS - 24 * HOUR_MS)
    store.run(10_000)
    assert store.min_offset() == 1


# -- protection of what is not consumed


def test_expired_files_stay_until_every_group_has_consumed_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0, protect_unconsumed=True)
    store.put_files(1)
    store.put_files(2, "Slow", 3)
    slow = QueueKey("Slow", 3)
    store.consumed = {slow: 0}
    store.run(FIRST_ROUND_MS + 35_000)
    assert store.names()[0] == 1, (
        "the first file has nothing of the slow queue, and nobody wants the other"
    )
    assert caplog.text.count("expired_file_kept") == 1
    assert "unconsumed_topic=Slow queue=3" in caplog.text
    store.consumed[slow] = 1
    store.run(10_000)
    assert store.names()[0] == 1
    store.consumed[slow] = 2
    store.run(10_000)
    assert store.names()[0] == 2
    store.consumed[slow] = 7
    store.run(10_000)
    assert store.names() == [3]
    assert caplog.text.count("expired_file_kept") == 2


def test_unconsumed_files_go_when_the_disk_is_above_the_forced_level(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, reserved_ms=0, protect_unconsumed=True)
    store.consumed = {QueueKey("Topic", 0): 0}
    store.put_files(2)
    store.fill_disk(0.85)
    store.run(FIRST_ROUND_MS + 15_000)
    assert store.names() == [0, 1, 2]
    store.fill_disk(0.86)
    store.run(10_000)
    assert store.names() == [2]


def test_without_protection_nobody_is_asked(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.consumed = {QueueKey("Topic", 0): 0}
    store.put_files(2)
    store.run(FIRST_ROUND_MS + 1_000)
    assert store.names() == [2]


def test_a_shorter_time_of_a_topic_spares_what_is_not_consumed(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, reserved_ms=24 * HOUR_MS, protect_unconsumed=True)
    store.reserve = {"Topic": HOUR_MS}
    store.consumed = {QueueKey("Topic", 0): 1}
    for _ in range(3):
        store.put()
    store.run(2 * HOUR_MS)
    assert store.min_offset() == 1
    store.consumed = {QueueKey("Topic", 0): 3}
    store.run(10_000)
    assert store.min_offset() == 3


# -- queues that nobody needs


def test_queues_without_a_message_in_the_log_are_deleted_on_request(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=LONG_MS)
    store.put("Old", 1)
    store.put("rmq_sys_Old", 0)
    store.put("Kept", 0)
    store.put("Kept", 0)
    store.queues.plain.obtain("Empty", 0)
    store.run(LONG_MS + 10_000)
    assert store.names() == [1]
    store.retention.clean_unused_queues()
    store.run(1_000)
    assert set(store.queues.plain) == {
        QueueKey("rmq_sys_Old", 0),
        QueueKey("Kept", 0),
        QueueKey("Empty", 0),
    }
    assert not (tmp_path / "consumequeue" / "Old").exists()
    assert store.put("Old", 1).queue_offset == 0
    assert store.min_offset("Old", 1) == 0


def test_a_deleted_topic_begins_at_zero(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.put("Topic", 0)
    store.put("Topic", 1)
    store.put("Other")
    store.retention.queues.delete_topic("Topic")
    assert set(store.queues.plain) == {QueueKey("Other", 0)}
    assert store.put("Topic", 1).queue_offset == 0
    assert store.put("Other").queue_offset == 1
