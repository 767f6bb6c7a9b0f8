"""Long polling: which held pulls an arrival, a deadline or a disconnect ends, each of them once."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from orbitmq.broker.consume.pending_pulls import LongPollingConfig, PendingPull, PendingPulls
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.remoting.channel import Channel
from orbitmq.store.config import FILTER_STEP_WORK, FILTER_WORK_MAX
from orbitmq.store.reads import MessageFilter, TagsFilter
from orbitmq.store.types import QueueKey, QueueOffset
from support.remoting.channels import Peers

peers = Peers()
QUEUE, OTHER = QueueKey("T", 0), QueueKey("T", 1)
TAG_A, TAG_B = 65, 66


def pull(
    offset: int = 0,
    wanted: MessageFilter | None = None,
    suspend_ms: int = 15_000,
    channel: Channel | None = None,
    size: int = 100,
) -> PendingPull:
    return PendingPull(
        connection=channel or peers.connect(),
        request=None,
        size=size,
        offset=QueueOffset(offset),
        suspend_ms=suspend_ms,
        wanted=wanted,
        resume=lambda _pull: None,
    )


def record_with(properties: bytes) -> bytes:
    message, host = (
        MessageRecord(b"T", b"", born_host=bytes(8), born_time_ms=0, properties=properties),
        bytes(8),
    )
    record = bytearray(record_size(message, host))
    encode(message, record, 0, 0, 0, 0, host)
    return bytes(record)


def arrive(
    hold: PendingPulls, next_offset: int, tags_code: int | None = 0, queue: QueueKey = QUEUE
) -> list[PendingPull]:
    return list(hold.on_arrival(queue, QueueOffset(next_offset), tags_code))


def test_an_arrival_releases_the_pulls_of_its_queue_in_the_order_they_came() -> None:
    hold, first, second, other = PendingPulls(), pull(3), pull(3), pull(3)
    assert hold.hold(QUEUE, first, 0)
    assert hold.hold(QUEUE, second, 0)
    assert hold.hold(OTHER, other, 0)
    assert arrive(hold, 4) == [first, second]
    assert arrive(hold, 5) == []
    assert len(hold) == 1


def test_pulls_whose_requests_are_too_large_together_do_not_wait() -> None:
    hold = PendingPulls(LongPollingConfig(held_bytes_max=1000))
    sizes = {"large": 600, "too large": 401, "fits": 400}
    large, too_large, fits = (pull(3, size=size) for size in sizes.values())
    assert hold.hold(QUEUE, large, 0)
    assert not hold.hold(QUEUE, too_large, 0)
    assert hold.hold(QUEUE, fits, 0)
    hold.drop(large.connection)
    assert not hold.hold(QUEUE, pull(3, size=601), 0)
    assert hold.hold(QUEUE, pull(3, size=600), 0)


def test_a_message_before_the_offset_of_a_pull_leaves_it_held() -> None:
    hold, behind, ahead = PendingPulls(), pull(3), pull(7)
    hold.hold(QUEUE, behind, 0)
    hold.hold(QUEUE, ahead, 0)
    assert arrive(hold, 7) == [behind]
    assert arrive(hold, 8) == [ahead]


def test_a_pull_waits_for_a_tag_that_it_wants_or_one_that_is_lost() -> None:
    hold, wants_a, wants_all = (
        PendingPulls(),
        pull(wanted=TagsFilter(frozenset({TAG_A}))),
        pull(wanted=TagsFilter(None)),
    )
    hold.hold(QUEUE, wants_a, 0)
    hold.hold(QUEUE, wants_all, 0)
    assert arrive(hold, 1, TAG_B) == [wants_all]
    assert arrive(hold, 2, TAG_A) == [wants_a]
    hold.hold(QUEUE, again := pull(wanted=TagsFilter(frozenset({TAG_A}))), 0)
    assert arrive(hold, 3, None) == [again]


class _Entries(TagsFilter):
    """Wants the messages of one code, by looking at their entries."""

    def matches_entry(self, tags_code: int | None, unit: object) -> bool:
        return tags_code == TAG_B


def test_a_filter_that_looks_at_entries_is_asked() -> None:
    hold = PendingPulls()
    hold.hold(QUEUE, waiting := pull(wanted=_Entries(None)), 0)
    assert arrive(hold, 1, TAG_A) == []
    assert arrive(hold, 2, TAG_B) == [waiting]


class _Records(NamedTuple):
    """Wants the messages whose property `a` is 1, and counts how often it is asked."""

    asked: list[int]
    record_cost: int = 1
    tags_codes: frozenset[int] | None = None
    passes_bare_entries: bool = True

    def matches_entry(self, tags_code: int | None, unit: object) -> bool:
        return True

    def matches_record(self, record: RecordCursor) -> bool:
        self.asked.append(1)
        return record.property("a") == "1"


def test_a_message_is_read_once_for_all_pulls_that_filter_by_it() -> None:
    hold, asked, read = PendingPulls(), list[int](), list[int]()

    def record_of(_queue: QueueKey, offset: QueueOffset) -> bytes | None:
        read.append(offset)
        return record_with(b"a\x01%d\x02" % offset)

    waiting = [pull(wanted=_Records(asked)) for _ in range(100)]
    for each in waiting:
        hold.hold(QUEUE, each, 0)
    assert list(hold.on_arrival(QUEUE, QueueOffset(1), 0, record_of)) == []
    assert list(hold.on_arrival(QUEUE, QueueOffset(2), 0, record_of)) == waiting
    assert (read, len(asked)) == ([0, 1], 200)


def test_filters_get_bounded_work_for_one_message_and_the_rest_is_answered_by_the_next_check() -> (
    None
):
    hold, asked = PendingPulls(), list[int]()
    cost = FILTER_WORK_MAX // (10 * (FILTER_STEP_WORK + 4))
    waiting = [pull(wanted=_Records(asked, cost)) for _ in range(30)]
    for each in waiting:
        hold.hold(QUEUE, each, 0)
    assert (
        list(hold.on_arrival(QUEUE, QueueOffset(1), 0, lambda *_: record_with(b"a\x011\x02")))
        == waiting[:10]
    )
    assert len(asked) == 10
    assert hold.expire(hold.config.check_ms) == waiting[10:]


def test_a_pull_is_released_at_its_deadline_not_before_and_once() -> None:
    hold = PendingPulls()
    hold.hold(QUEUE, waiting := pull(suspend_ms=12_345), 1000)
    for now_ms in (1000, 6000, 11_000, 13_344):
        assert hold.expire(now_ms) == []
    assert hold.next_ms == 13_345
    assert hold.expire(13_345) == [waiting]
    assert hold.expire(99_999) == []
    assert len(hold) == 0
    assert PendingPulls().next_ms is None


def test_a_pull_is_answered_once_when_arrival_and_deadline_race() -> None:
    hold = PendingPulls()
    hold.hold(QUEUE, first := pull(suspend_ms=100), 0)
    assert arrive(hold, 1) == [first]
    assert hold.expire(100) == []
    hold.hold(QUEUE, second := pull(suspend_ms=100), 100)
    assert hold.expire(200) == [second]
    assert arrive(hold, 1) == []


def test_a_pull_that_is_passed_over_by_messages_for_others_is_answered_when_it_is_looked_at_next() -> (
    None
):
    hold = PendingPulls()
    hold.hold(QUEUE, passed := pull(3, TagsFilter(frozenset({TAG_A}))), 0)
    hold.hold(QUEUE, not_passed := pull(9, TagsFilter(frozenset({TAG_A}))), 0)
    assert hold.expire(5000) == []
    assert arrive(hold, 4, TAG_B) == []
    assert hold.expire(9999) == []
    assert hold.next_ms == 10_000
    assert hold.expire(10_000) == [passed]
    assert hold.expire(15_000) == [not_passed]


def test_without_long_polling_a_pull_waits_for_a_second() -> None:
    hold = PendingPulls(LongPollingConfig(long_polling=False))
    hold.hold(QUEUE, waiting := pull(suspend_ms=15_000), 0)
    assert hold.expire(999) == []
    assert hold.expire(1000) == [waiting]


@pytest.mark.parametrize("suspend_ms", [0, -5])
def test_a_pull_that_has_no_time_is_due_at_once(suspend_ms: int) -> None:
    hold = PendingPulls()
    hold.hold(QUEUE, waiting := pull(suspend_ms=suspend_ms), 7)
    assert hold.next_ms == 7
    assert hold.expire(7) == [waiting]


def test_a_pull_beyond_the_limit_is_turned_away_until_one_leaves() -> None:
    hold = PendingPulls(LongPollingConfig(held_pulls_max=1))
    first, second = pull(), pull()
    assert hold.hold(QUEUE, first, 0)
    assert not hold.hold(QUEUE, second, 0)
    assert arrive(hold, 1) == [first]
    assert hold.hold(QUEUE, second, 0)


def test_a_disconnect_drops_the_pulls_of_its_connection_and_no_others() -> None:
    hold, gone, here = PendingPulls(), peers.connect(), peers.connect()
    hold.hold(QUEUE, pull(channel=gone), 0)
    hold.hold(OTHER, pull(channel=gone), 0)
    hold.hold(QUEUE, stays := pull(channel=here), 0)
    hold.drop(gone)
    hold.drop(gone)
    assert len(hold) == 1
    assert arrive(hold, 1) == [stays]
    assert arrive(hold, 1, queue=OTHER) == []
    assert hold.expire(99_999) == []


def test_pulls_that_come_and_go_leave_nothing_behind() -> None:
    hold = PendingPulls()
    for now_ms in range(10_000):
        hold.hold(QUEUE, pull(), now_ms)
        arrive(hold, 1)
        hold.expire(now_ms)
    assert (len(hold), hold._by_queue, hold._by_connection) == (0, {}, {})
    assert len(hold._by_due_ms) <= LongPollingConfig().check_ms + 1


def test_a_crowd_is_woken_in_parts_and_each_pull_once() -> None:
    hold, waiting = PendingPulls(wakes_max=10), [pull() for _ in range(35)]
    assert all(hold.hold(QUEUE, each, 0) for each in waiting)
    woken = [arrive(hold, 1)]
    while hold.has_more_to_wake:
        woken.append(list(hold.wake_more()))
    assert [each for part in woken for each in part] == waiting
    assert max(map(len, woken)) == 10
    assert len(hold) == 0


def test_what_arrives_while_a_crowd_is_woken_wakes_all_that_are_left() -> None:
    hold = PendingPulls(wakes_max=2)
    a, b, c = (
        pull(wanted=TagsFilter(frozenset({TAG_A}))),
        pull(wanted=TagsFilter(frozenset({TAG_B}))),
        pull(offset=1),
    )
    assert all(hold.hold(QUEUE, each, 0) for each in (a, b, c))
    assert arrive(hold, 1, TAG_A) == [a]
    late = pull(offset=2)
    assert hold.hold(QUEUE, late, 0)
    assert arrive(hold, 2, TAG_A) == [], "it has its turn when all have been looked at"
    woken: list[PendingPull] = []
    while hold.has_more_to_wake:
        woken += hold.wake_more()
    assert woken == [b, c], "b as if the message might be for it; the late one has seen both"
    assert len(hold) == 1


def test_pulls_that_leave_while_their_crowd_is_woken_leave_once() -> None:
    hold, gone = PendingPulls(wakes_max=1), peers.connect()
    first, dropped, due, last = pull(), pull(channel=gone), pull(suspend_ms=5), pull()
    assert all(hold.hold(QUEUE, each, 0) for each in (first, dropped, due, last))
    assert arrive(hold, 1) == [first]
    assert hold.drop(gone)
    assert hold.expire(10) == [due]
    woken: list[PendingPull] = []
    while hold.has_more_to_wake:
        woken += hold.wake_more()
    assert woken == [last]
    assert len(hold) == 0


def test_a_crowd_whose_time_is_over_is_released_in_parts() -> None:
    hold, waiting = PendingPulls(wakes_max=10), [pull(suspend_ms=7) for _ in range(35)]
    assert all(hold.hold(QUEUE, each, 0) for each in waiting)
    parts = []
    while hold.next_ms is not None:
        parts.append(hold.expire(7))
    assert [len(part) for part in parts] == [10, 10, 10, 5]
    assert {each for part in parts for each in part} == set(waiting)
