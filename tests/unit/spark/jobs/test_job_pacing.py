"""Tests the rate limit: all rows come out in order, and never faster than the rate."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.jobs.resend import split_rate
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.rate_limit import limit_rate, rows_per_portion


class Time:
    """A clock that advances only by sleeping or slow consumers."""

    def __init__(self) -> None:
        self.s = 100.0

    def now(self) -> float:
        return self.s

    def sleep(self, seconds: float) -> None:
        self.s += seconds


def batches(sizes: list[int]) -> Iterator[pa.RecordBatch]:
    first = 0
    for size in sizes:
        yield pa.record_batch({"n": pa.array(range(first, first + size), pa.int64())})
        first += size


@given(
    sizes=st.lists(st.integers(0, 60), max_size=8),
    rate=st.integers(1, 400),
    delays=st.lists(st.floats(0, 3), min_size=1, max_size=5),
)
def test_no_second_has_more_rows_than_the_rate_and_one_portion_however_slowly_they_are_taken(
    sizes: list[int], rate: int, delays: list[float]
) -> None:
    time = Time()
    taken: list[tuple[float, int]] = []
    numbers: list[int] = []
    for place, batch in enumerate(
        limit_rate(batches(sizes), rate, now_s=time.now, sleep=time.sleep)
    ):
        taken.append((time.s, batch.num_rows))
        numbers += batch.column(0).to_pylist()
        time.s += delays[place % len(delays)] if place % 3 == 0 else 0.0
    assert numbers == list(range(sum(sizes)))
    for at_s, _ in taken:
        assert sum(
            rows for other_s, rows in taken if at_s <= other_s < at_s + 1 - 1e-6
        ) <= rate + rows_per_portion(rate)


def test_rows_come_at_the_rate_when_they_are_taken_at_once() -> None:
    time = Time()
    assert (
        sum(
            batch.num_rows
            for batch in limit_rate(batches([1000]), 50, now_s=time.now, sleep=time.sleep)
        )
        == 1000
    )
    assert time.s == pytest.approx(100 + (1000 - rows_per_portion(50)) / 50)


def test_without_a_rate_batches_stay_as_they_are() -> None:
    found = [batch.num_rows for batch in limit_rate(batches([3, 0, 70_000]), None)]
    assert found == [3, 0, 70_000]


@given(rate=st.integers(1, 10_000_000), parallelism=st.integers(1, 64))
def test_tasks_together_never_pass_the_rate_and_none_is_left_without_any(
    rate: int, parallelism: int
) -> None:
    tasks, of_each = split_rate(rate, parallelism)
    assert of_each is not None
    assert 1 <= tasks <= parallelism
    assert of_each >= 1
    assert rate - tasks < tasks * of_each <= rate


def test_a_small_rate_is_one_task_and_none_is_as_many_as_there_are_cores() -> None:
    assert split_rate(500, 8) == (1, 500)
    assert split_rate(None, 8) == (8, None)
    assert split_rate(None, 0) == (1, None)


def test_batches_of_a_sink_are_no_larger_than_what_goes_at_a_time() -> None:
    options = {"nameServer": "127.0.0.1:9876", "topic": "t"}
    assert SinkOptions.of({**options, "maxMessagesPerSecond": "50"}).batch_messages == 5
    assert (
        SinkOptions.of({**options, "maxMessagesPerSecond": "500000"}).batch_messages
        == SinkOptions.of(options).batch_messages
    )
    assert SinkOptions.of(options).rate_max is None
    with pytest.raises(
        ConfigurationError,
        match="option maxMessagesPerSecond='0': must be a whole number of at least 1",
    ):
        SinkOptions.of({**options, "maxMessagesPerSecond": "0"})
