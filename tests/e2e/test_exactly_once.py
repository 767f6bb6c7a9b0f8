"""Batches that are delivered exactly once: what is staged is seen when its batch is committed, and
once, whatever is repeated.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.blocking import Admin
from orbitmq.client.messages import TransactionState
from orbitmq.client.producer.checkable_producer import CheckableProducer, HalfPlace
from orbitmq.common.errors import InvalidMessageError, RemoteUnavailableError
from orbitmq.spark.failures import DataLossError
from orbitmq.spark.sink.staged_messages import decode_staged, encode_staged, iter_staged
from orbitmq.spark.sink.task_sender import send_rows
from orbitmq.spark.sink.transaction_log import KEPT_MAX, BatchState
from orbitmq.testing import LocalCluster
from support.common.waiting import wait_until
from support.spark.exactly_once import Query
from support.spark.messages import messages_in

EAGER = {"transactionTimeOut": "1", "transactionCheckInterval": "100"}


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def query(mq: LocalCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    topic = request.node.name[:100]
    mq.create_topic(topic, 2)
    return Query(mq.name_server, topic, tmp_path / "log")


def test_rows_are_seen_when_their_batch_is_committed_and_not_before(query: Query) -> None:
    parts = [query.stage(0, range(40)), query.stage(0, range(40, 50))]
    assert query.delivered() == {}
    assert query.decision(0).commit(parts) == "delivered"
    assert query.delivered() == Counter(range(50))
    assert query.log.state(0) is BatchState.DONE
    assert query.open_halves() == 0


def test_a_batch_that_is_run_again_is_delivered_once_and_leaves_nothing_behind(
    query: Query,
) -> None:
    query.decision(0).commit([query.stage(0, range(10))])
    assert query.decision(0).commit([query.stage(0, range(10))]) == "delivered before"
    query.decision(1).commit([query.stage(1, range(10, 20))])
    assert query.decision(0).commit([query.stage(0, range(10))]) == "delivered before"
    assert (query.delivered(), query.open_halves()) == (Counter(range(20)), 0)


def test_a_batch_that_was_decided_is_finished_with_what_was_decided(query: Query) -> None:
    first = query.stage(0, range(10))
    query.log.decide(0, decode_staged([first]))
    assert query.decision(0).commit([query.stage(0, range(100, 110))]) == "finished"
    assert (query.delivered(), query.open_halves()) == (Counter(range(10)), 0)


def test_two_drivers_of_one_query_deliver_what_the_first_has_decided(query: Query) -> None:
    mine, theirs = query.stage(0, range(10)), query.stage(0, range(10))
    query.log.decide(0, decode_staged([theirs]))
    with pytest.raises(FileExistsError):
        query.log.decide(0, decode_staged([mine]))
    query.decision(0).commit([mine])
    assert query.delivered() == Counter(range(10))


def test_an_aborted_batch_delivers_nothing_unless_it_was_decided(query: Query) -> None:
    assert query.decision(0).abort([query.stage(0, range(10))]) == "rolled back"
    assert query.open_halves() == 0
    decided = query.stage(0, range(10))
    query.log.decide(0, decode_staged([decided]))
    assert query.decision(0).abort([decided]).startswith("decided")
    assert (query.delivered(), query.open_halves()) == ({}, 10)
    query.decision(0).commit([query.stage(0, range(10))])
    assert query.delivered() == Counter(range(10))


def test_rows_of_a_sharding_key_come_in_their_order(query: Query) -> None:
    parts = [query.stage(0, range(100), "one"), query.stage(0, range(100, 200), "two")]
    query.decision(0).commit(parts)
    numbers = [int(message.body) for message in messages_in(query.name_server, query.topic)]
    assert [number for number in numbers if number < 100] == list(range(100))
    assert [number for number in numbers if number >= 100] == list(range(100, 200))


def test_a_batch_without_rows_leaves_no_record(query: Query) -> None:
    assert query.decision(0).commit([]) == "nothing"
    assert query.log.state(0) is BatchState.OPEN


def test_rows_that_come_later_are_refused(query: Query) -> None:
    batch = pa.record_batch({"body": ["x"], "delayLevel": pa.array([3], pa.int32())})
    with pytest.raises(
        InvalidMessageError,
        match="row 0 of partition 0 cannot be sent: a transactional message cannot be delayed",
    ):
        send_rows(query.options, [batch], "of partition 0", "query/0")


def test_files_of_old_batches_are_deleted(query: Query) -> None:
    staged = decode_staged([encode_staged(list(iter_staged(decode_staged([query.stage(0, [1])]))))])
    for batch in range(KEPT_MAX + 5):
        query.log.decide(batch, staged)
        query.log.finish(batch)
    assert len(list(Path(str(query.log)).iterdir())) == 2 * KEPT_MAX
    assert query.log.state(0) is BatchState.DONE


def test_brokers_that_ask_are_told_that_leftovers_are_not_wanted_and_nothing_else(
    tmp_path: Path,
) -> None:
    with LocalCluster(topics={"T": 2}, broker={**EAGER, "transactionCheckMax": "1000000"}) as mq:
        query = Query(mq.name_server, "T", tmp_path / "log")
        query.stage(0, range(100, 105))  # by a task that died
        wanted = query.stage(0, range(5))
        wait_until(lambda: _checks_of(query) > 0)
        assert (query.open_halves(), query.delivered()) == (10, {})
        query.decision(0).commit([wanted])
        wait_until(lambda: query.open_halves() == 0)
        assert query.delivered() == Counter(range(5))


def test_a_driver_may_be_away_for_longer_than_brokers_ask(tmp_path: Path) -> None:
    with LocalCluster(topics={"T": 2}, broker={**EAGER, "transactionCheckMax": "2"}) as mq:
        query = Query(mq.name_server, "T", tmp_path / "log")
        staged = query.stage(0, range(5))
        query.log.decide(0, decode_staged([staged]))
        wait_until(lambda: query.open_halves() == 0)
        assert query.delivered() == {}, "the broker gave up"
        assert query.decision(0).commit([]) == "finished"
        assert query.delivered() == Counter(range(5))


def test_a_message_that_somebody_rolled_back_is_told_and_not_passed_over(query: Query) -> None:
    staged = query.stage(0, range(3))
    query.log.decide(0, decode_staged([staged]))
    with Admin(query.name_server) as admin:
        half = next(
            half
            for halves in admin.transactions.open().found.values()
            for half in halves
            if half.half.topic == query.topic
        )
        admin.transactions.resolve(half, TransactionState.ROLLBACK)
    with pytest.raises(
        DataLossError,
        match=(
            f"message {half.unique_key} was staged .* not in topic {query.topic}: it was"
            " rolled back"
        ),
    ):
        query.decision(0).commit([])
    (Path(str(query.log)) / "0.parquet").unlink()
    query.decision(0).commit([query.stage(0, range(3))])
    assert query.delivered().keys() == set(range(3)), (
        "sent anew as a whole, as the error says that it would be"
    )


def test_a_decision_that_was_taken_away_leaves_nothing_done(query: Query) -> None:
    query.decision(0).commit([query.stage(0, range(3))])
    (Path(str(query.log)) / "0.parquet").unlink()
    query.log.decide(0, decode_staged([query.stage(0, range(3, 6))]))
    assert query.log.state(0) is BatchState.DECIDED


def test_an_end_whose_answer_is_lost_is_told_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = query.stage(0, range(50))
    end, ends = CheckableProducer.end, itertools.count()

    async def end_in_vain(
        self: CheckableProducer, half: HalfPlace, state: TransactionState, timeout_ms: int
    ) -> None:
        await end(self, half, state, timeout_ms)
        if next(ends) == 20:
            raise RemoteUnavailableError("the answer was lost")

    monkeypatch.setattr(CheckableProducer, "end", end_in_vain)
    query.decision(0).commit([staged])
    assert next(ends) == 50, "it was looked up"
    assert query.delivered() == Counter(range(50))


def test_a_broker_that_dies_under_commits_gets_the_rest_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalCluster(topics={"T": 2}) as mq:
        query = Query(mq.name_server, "T", tmp_path / "log", requestTimeout="1s")
        staged = query.stage(0, range(50))
        end, ends = CheckableProducer.end, itertools.count()

        async def end_and_die(
            self: CheckableProducer, half: HalfPlace, state: TransactionState, timeout_ms: int
        ) -> None:
            if next(ends) == 20:
                await asyncio.to_thread(mq.stop_broker)
                await asyncio.to_thread(mq.restart)
            await end(self, half, state, timeout_ms)

        monkeypatch.setattr(CheckableProducer, "end", end_and_die)
        query.decision(0).commit([staged])
        assert query.delivered() == Counter(range(50))


def _checks_of(query: Query) -> int:
    with Admin(query.name_server) as admin:
        return min(
            (
                half.half.checks
                for halves in admin.transactions.open().found.values()
                for half in halves
            ),
            default=0,
        )


class Crash(Exception):
    """The driver dies here."""


POINTS = st.sampled_from(
    [
        "while staging",
        "before the decision",
        "after the decision",
        "among the ends",
        "before it is noted",
        "after it",
    ]
)
_numbers = itertools.count()


@given(crashes=st.lists(st.tuples(POINTS, st.integers(0, 9)), max_size=5))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_driver_that_dies_anywhere_any_number_of_times_delivers_every_batch_once(
    mq: LocalCluster, tmp_path: Path, crashes: list[tuple[str, int]]
) -> None:
    topic = f"crashes-{next(_numbers)}"
    mq.create_topic(topic, 2)
    query = Query(mq.name_server, topic, tmp_path / topic)
    waiting = list(crashes)
    for batch in range(3):
        rows = range(batch * 10, batch * 10 + 10)
        while waiting:  # every batch but the last dies as often as is wanted
            try:
                _run(query, batch, rows, *waiting.pop(0))
            except Crash:
                continue
            break
        _run(query, batch, rows, None, 0)
    assert query.delivered() == Counter(range(30))


def _run(query: Query, batch: int, rows: range, point: str | None, count: int) -> None:
    """Run a batch as far as that point."""
    with pytest.MonkeyPatch.context() as patch:
        if point == "among the ends":
            end, ends = CheckableProducer.end, itertools.count()

            async def end_some(
                self: CheckableProducer, half: HalfPlace, state: TransactionState, timeout_ms: int
            ) -> None:
                if next(ends) >= count:
                    raise Crash
                await end(self, half, state, timeout_ms)

            patch.setattr(CheckableProducer, "end", end_some)
        for name, where in (("before the decision", "decide"), ("before it is noted", "finish")):
            if point == name:
                patch.setattr(type(query.log), where, _crash)
        parts = [query.stage(batch, rows[:5])]
        if point == "while staging":
            raise Crash
        parts.append(query.stage(batch, rows[5:]))
        if point == "after the decision":
            decide = type(query.log).decide

            def decide_and_die(*args: object) -> None:
                decide(*args)  # type: ignore[arg-type]
                raise Crash

            patch.setattr(type(query.log), "decide", decide_and_die)
        query.decision(batch).commit(parts)
    if point == "after it":
        raise Crash


def _crash(*_: object) -> None:
    raise Crash
