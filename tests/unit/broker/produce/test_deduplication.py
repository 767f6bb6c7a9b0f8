"""The window of unique keys: what it knows, for how long, how much, and what of a log it learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.processors.plugin_hooks import Hooks
from orbitmq.broker.produce.deduplication import DedupWindow, First
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol.codes import RequestCode
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs
from orbitmq.testing.manual_clock import ManualClock
from support.store.logs import HOST
from support.store.stores import opened_store

WINDOW_MS = 1000


def first(number: int, stored_ms: int) -> First:
    return First(
        LogOffset(number), LogOffset(number + 1), 0, QueueOffset(number), StoreTimeMs(stored_ms)
    )


def test_a_key_is_known_in_its_topic_for_as_long_as_the_window() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    window.remember("T", "K", first(1, 5000))
    assert window.find("T", "K", 6000) == first(1, 5000)
    assert window.find("T", "K", 6001) is None
    assert window.find("U", "K", 5000) is None
    window.remember("T", "K", first(2, 6001))
    assert window.find("T", "K", 7000) == first(2, 6001)


def test_what_is_over_goes_with_the_next_that_comes() -> None:
    window = DedupWindow(WINDOW_MS, 10)
    for number in range(5):
        window.remember("T", f"K{number}", first(number, 5000 + number))
    window.remember("T", "late", first(9, 7000))
    assert len(window) == 1


def test_when_there_are_too_many_the_oldest_goes_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = DedupWindow(WINDOW_MS, 3)
    for number in range(6):
        window.remember("T", f"K{number}", first(number, 5000))
    assert [window.find("T", f"K{number}", 5000) is not None for number in range(6)] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert caplog.text.count("dedup_window_full keys=3 window_ms=1000") == 1
    window.remember("T", "later", first(7, 7000))
    for number in range(6):
        window.remember("T", f"L{number}", first(number, 7000))
    assert caplog.text.count("dedup_window_full") == 2, "there was room in between"


class Log:
    """A store whose records are looked at once it has some."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store: MessageStore = opened_store(folder, clock=self.clock)

    def put(
        self,
        key: str | None,
        topic: str = "T",
        *,
        sys_flag: int = 0,
        prepared_offset: int = 0,
        **names: str,
    ) -> int:
        texts = properties.write({**names, "UNIQ_KEY": key}).encode()
        message = MessageRecord(
            topic.encode(),
            b"x" * 300,
            born_host=HOST,
            born_time_ms=1,
            queue_id=1,
            sys_flag=sys_flag,
            prepared_offset=prepared_offset,
            properties=texts,
        )
        return self.store.put(message).offset

    def learned(self, window_ms: int = WINDOW_MS) -> DedupWindow:
        window = DedupWindow(window_ms, 1000)
        window.learn(self.store.log, self.clock.now_ms(), lambda record: record.property("handle"))
        return window


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.store.close()


def test_the_tail_of_the_log_is_learned_over_as_many_files_as_the_window_has(log: Log) -> None:
    offsets = {}
    for number in range(60):  # of which a file holds some ten
        offsets[f"K{number}"] = log.put(f"K{number}")
        log.clock.advance_ms(50)
    window, now_ms = log.learned(), log.clock.now_ms()
    found = {
        key: known.offset for key in offsets if (known := window.find("T", key, now_ms)) is not None
    }
    assert found == {f"K{number}": offsets[f"K{number}"] for number in range(40, 60)}
    assert len(log.learned(10**9)) == 60


def test_the_first_of_a_key_counts(log: Log) -> None:
    offset = log.put("K")
    log.put("K")
    known = log.learned().find("T", "K", log.clock.now_ms())
    assert known is not None
    assert known.offset == offset


def test_what_waits_is_known_by_the_topic_and_queue_that_it_is_for(log: Log) -> None:
    for number, topic in enumerate(
        ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC")
    ):
        log.put(f"K{number}", topic, REAL_TOPIC="T", REAL_QID="3", handle=f"H{number}")
    window, now_ms = log.learned(), log.clock.now_ms()
    found = [window.find("T", f"K{number}", now_ms) for number in range(3)]
    assert [(known.queue_id, known.recall_handle) for known in found if known is not None] == [
        (3, "H0"),
        (3, "H1"),
        (3, "H2"),
    ]


def test_copies_that_the_broker_made_are_not_what_a_producer_sent(log: Log) -> None:
    log.put("came due", REAL_TOPIC="T")
    log.put("committed", sys_flag=TransactionType.COMMIT, prepared_offset=7)
    log.put("sent back", "SCHEDULE_TOPIC_XXXX", REAL_TOPIC="%RETRY%g", REAL_QID="0")
    log.put("retry", "%RETRY%g")
    log.put("dead", "%DLQ%g")
    log.put(None)
    assert len(log.learned()) == 0


def test_copies_of_half_messages_that_are_older_than_the_window_are_not_learned(log: Log) -> None:
    log.put(
        "asked about",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        REAL_TOPIC="T",
        REAL_QID="3",
        TRAN_PREPARED_QUEUE_OFFSET="1",
    )
    log.put(
        "resumed",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        REAL_TOPIC="T",
        REAL_QID="3",
        TRANSACTION_CHECK_TIMES="0",
    )
    assert len(log.learned()) == 0


def test_of_half_messages_the_last_of_a_key_counts(log: Log) -> None:
    offsets = [
        log.put("K", "RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="T", REAL_QID="3") for _ in range(2)
    ]
    known = log.learned().find("T", "K", log.clock.now_ms())
    assert known is not None
    assert known.offset == offsets[1]


def test_a_log_without_records_has_nothing_to_learn(log: Log) -> None:
    assert len(log.learned()) == 0


def test_the_compiled_path_leaves_sends_alone_only_where_there_is_a_window() -> None:
    hooks = Hooks(lambda: 0)

    def is_direct(_code: int) -> bool:
        return True

    assert hooks.unheard(is_direct) is is_direct
    heard = hooks.unheard(is_direct, hears_sends=True)
    sends = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    assert [heard(code) for code in (*sends, RequestCode.PULL_MESSAGE)] == [
        False,
        False,
        False,
        True,
    ]
