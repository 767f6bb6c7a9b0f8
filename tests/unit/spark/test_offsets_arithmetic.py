"""Tests the arithmetic on offsets: planning, splitting and lost messages."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.offsets import (
    EARLIEST,
    QueueBounds,
    QueueName,
    QueueRange,
    advance,
    backlog,
    bundle,
    from_json,
    is_batch_due,
    losses,
    parse,
    parse_queues,
    ranges,
    split,
    to_json,
)

A, B, C = (QueueName("orders", "broker-a", number) for number in range(3))
NAMES = st.text(min_size=1, max_size=8)
QUEUES = st.builds(QueueName, NAMES, NAMES, st.integers(0, 9))
SIZES = st.integers(0, 10_000) | st.integers(0, 1 << 40)


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[dict[QueueName, int], dict[QueueName, int]]:
    """Generate start offsets and end offsets of queues."""
    start = draw(st.dictionaries(QUEUES, SIZES, max_size=12))
    return start, {queue: offset + draw(SIZES) for queue, offset in start.items()}


@st.composite
def some_ranges(draw: st.DrawFn) -> list[QueueRange]:
    start, latest = draw(backlogs())
    return ranges(start, latest)


# -- JSON


@given(st.dictionaries(QUEUES, st.integers(EARLIEST, (1 << 63) - 1), max_size=20))
def test_offsets_come_back_from_json_as_they_were(offsets: dict[QueueName, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


@given(
    st.lists(st.tuples(QUEUES, SIZES), unique_by=lambda pair: pair[0], max_size=10), st.randoms()
)
def test_equal_offsets_are_equal_texts_in_whatever_order_they_were_found(
    pairs: list[tuple[QueueName, int]], shuffle: object
) -> None:
    other = list(pairs)
    shuffle.shuffle(other)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(pairs))) == json.dumps(to_json(dict(other)))


def test_the_form_is_topic_broker_queue() -> None:
    assert to_json({B: 7, A: 23}) == {"orders": {"broker-a": {"0": 23, "1": 7}}}
    assert parse('{"orders":{"broker-a":{"0":-2,"1":-1,"2":5}}}', "startingOffsets", low=-2) == {
        A: -2,
        B: -1,
        C: 5,
    }
    assert parse_queues('{"orders":{"broker-a":[0,1]}}', "assign") == {A, B}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "the value is not an object"),
        ("{}", "it names no queue"),
        ('{"t":5}', "t is not an object"),
        ('{"t":{"b":[0]}}', "t/b is not an object"),
        ('{"t":{"b":{"x":0}}}', "'x' of t/b is not a queue id"),
        ('{"t":{"b":{"-1":0}}}', "'-1' of t/b is not a queue id"),
        ('{"t":{"b":{"0":"5"}}}', "t/b/0 has '5', which is not a whole number"),
        ('{"t":{"b":{"0":true}}}', "t/b/0 has True, which is not a whole number"),
        ('{"t":{"b":{"0":1.5}}}', "t/b/0 has 1.5, which is not a whole number"),
        ('{"t":{"b":{"0":99999999999999999999}}}', "which is not a whole number"),
        ('{"t":{"b":{"0":-3}}}', "t/b/0 has -3, which is below -2"),
    ],
)
def test_json_that_is_not_offsets_is_refused_with_the_place_and_the_form(
    text: str, why: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(text, "startingOffsets", low=-2)
    assert f"option startingOffsets={text!r}: " in str(refused.value)
    assert why in str(refused.value)
    assert str(refused.value).endswith('; expected JSON of the form {"topic":{"broker":{"0":23}}}')


@pytest.mark.parametrize(
    "text",
    ["{}", '{"t":{"b":{"0":1}}}', '{"t":{"b":[]}}', '{"t":{"b":[-1]}}', '{"t":{"b":[true]}}', "0"],
)
def test_json_that_is_not_a_list_of_queues_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option assign="):
        parse_queues(text, "assign")


# -- planning a batch


@given(backlogs(), st.none() | st.integers(1, 1 << 41))
def test_a_batch_never_passes_what_there_is_and_takes_the_whole_limit(
    queues: tuple[dict[QueueName, int], dict[QueueName, int]], limit: int | None
) -> None:
    start, latest = queues
    end = advance(start, latest, limit)
    assert end.keys() == start.keys()
    assert all(start[queue] <= end[queue] <= latest[queue] for queue in start)
    total = backlog(start, latest)
    assert backlog(start, end) == (total if limit is None else min(limit, total))


@given(backlogs(), st.integers(1, 1 << 41))
def test_every_queue_with_a_backlog_moves_when_the_limit_lets_each_have_one(
    queues: tuple[dict[QueueName, int], dict[QueueName, int]], limit: int
) -> None:
    start, latest = queues
    waiting = [queue for queue in start if latest[queue] > start[queue]]
    if limit >= len(waiting):
        end = advance(start, latest, limit)
        assert all(end[queue] > start[queue] for queue in waiting)


@given(backlogs(), st.integers(1, 1 << 41))
def test_a_longer_backlog_never_gets_less(
    queues: tuple[dict[QueueName, int], dict[QueueName, int]], limit: int
) -> None:
    start, latest = queues
    end = advance(start, latest, limit)
    shares = sorted((latest[queue] - start[queue], end[queue] - start[queue]) for queue in start)
    for (size, share), (longer, more) in pairwise(shares):
        assert share <= more + (0 if size < longer else 1)


def test_a_limit_is_shared_out_by_backlog() -> None:
    assert advance({A: 0, B: 0, C: 50}, {A: 900, B: 90, C: 60}, 100) == {A: 88, B: 9 + 1, C: 50 + 2}


def test_many_small_batches_read_everything() -> None:
    start, latest = {A: 0, B: 0, C: 0}, {A: 1_000_000, B: 3, C: 1}
    for _ in range(2):
        start = advance(start, latest, 2)
    for _ in range(3):
        start = advance(start, latest, 3)
    assert (start[B], start[C]) == (3, 1)


def test_queues_without_an_end_and_queues_that_end_too_early_stay() -> None:
    assert advance({A: 5, B: 9}, {B: 4}, None) == {A: 5, B: 9}


def test_a_batch_waits_for_enough_or_for_long_enough() -> None:
    assert is_batch_due(1, None, 0, 1_000)
    assert not is_batch_due(0, None, 5_000, 1_000)
    assert not is_batch_due(9, 10, 999, 1_000)
    assert is_batch_due(10, 10, 0, 1_000)
    assert is_batch_due(1, 10, 1_000, 1_000)
    assert not is_batch_due(0, 10, 9_000, 1_000)


# -- splitting it into tasks


def test_ranges_are_what_lies_between_and_a_queue_without_a_start_has_none() -> None:
    assert ranges({A: 3, B: 5, C: 9}, {A: 8, B: 5, QueueName("new", "broker-a", 0): 4}) == [
        QueueRange(A, 3, 8)
    ]


@given(
    some_ranges(),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 1 << 41),
    st.integers(1, 20_000),
)
def test_parts_cover_every_range_exactly_once_in_order(
    whole: list[QueueRange], parts_min: int | None, size_max: int | None, bundle_max: int
) -> None:
    total = sum(each.size for each in whole)
    if size_max is not None:
        size_max = max(size_max, total // 500)  # keeps the example small
    parts = split(whole, parts_min, size_max)
    bundled = bundle(parts, parts_min, bundle_max)
    for found in (parts, [each for group in bundled for each in group]):
        joined: list[QueueRange] = []
        for part in found:
            assert part.size > 0
            if joined and joined[-1].queue == part.queue and joined[-1].end == part.begin:
                joined[-1] = QueueRange(part.queue, joined[-1].begin, part.end)
            else:
                joined.append(part)
        assert joined == whole
    if size_max is not None:
        assert all(part.size <= size_max for part in parts)
    if parts_min is not None:
        assert len(bundled) >= min(parts_min, total)
    assert all(
        sum(each.size for each in group) <= bundle_max or len(group) == 1 for group in bundled
    )


def test_a_long_queue_is_split_more_than_a_short_one() -> None:
    parts = split([QueueRange(A, 0, 300), QueueRange(B, 0, 100)], 4, None)
    assert [(part.queue, part.begin, part.end) for part in parts] == [
        (A, 0, 100),
        (A, 100, 200),
        (A, 200, 300),
        (B, 0, 100),
    ]


def test_without_wishes_each_queue_is_one_part_and_small_ones_share_a_task() -> None:
    whole = [QueueRange(A, 0, 400), QueueRange(B, 0, 400), QueueRange(C, 0, 9_000)]
    assert split(whole, None, None) == whole
    assert bundle(whole, None, 1_000) == [(whole[0], whole[1]), (whole[2],)]
    assert bundle(whole, 3, 1_000) == [(whole[0],), (whole[1],), (whole[2],)]


# -- lost messages


def test_what_cannot_be_read_any_more_is_told_with_its_reason() -> None:
    found = losses({A: 5, B: 30, C: 7}, {A: QueueBounds(10, 20), B: QueueBounds(0, 12)}, gone=[C])
    assert [str(loss) for loss in found] == [
        "messages from 7 on of queue orders/broker-a/2 are lost: the queue no longer exists",
        (
            "messages 5 to 9 of queue orders/broker-a/0 are lost: the broker has deleted messages"
            " before 10"
        ),
        (
            "messages 12 to 29 of queue orders/broker-a/1 are lost: the queue now ends at 12: the"
            " broker crashed or the topic was recreated"
        ),
    ]


@given(backlogs())
def test_nothing_is_lost_between_the_ends_of_a_queue(
    queues: tuple[dict[QueueName, int], dict[QueueName, int]],
) -> None:
    start, latest = queues
    assert (
        losses(
            start, {queue: QueueBounds(offset, latest[queue]) for queue, offset in start.items()}
        )
        == []
    )
    assert (
        losses(
            latest, {queue: QueueBounds(offset, latest[queue]) for queue, offset in start.items()}
        )
        == []
    )
