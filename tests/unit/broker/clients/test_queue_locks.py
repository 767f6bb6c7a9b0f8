"""Queue locks: one holder for each queue of a group, for a minute at a time."""

from __future__ import annotations

import pytest

from orbitmq.broker.clients import queue_locks
from orbitmq.broker.clients.queue_locks import LOCK_MS_MAX, QueueLocks
from orbitmq.common.errors import RefusedError
from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.clients import MessageQueue

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


def test_a_client_gets_the_queues_that_nobody_holds() -> None:
    locks = QueueLocks()
    assert locks.lock("g", QUEUES[:3], "a", 0) == QUEUES[:3]
    assert locks.lock("g", QUEUES, "b", 0) == QUEUES[3:]
    assert locks.lock("g", QUEUES, "a", 0) == QUEUES[:3]
    assert [locks.holder("g", queue, 0) for queue in QUEUES] == ["a", "a", "a", "b"]


def test_groups_and_brokers_lock_apart() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES, "a", 0)
    assert locks.lock("h", QUEUES, "b", 0) == QUEUES
    assert (
        locks.lock("g", [queue._replace(broker_name="broker-b") for queue in QUEUES], "b", 0) != []
    )


def test_a_lock_is_over_a_minute_after_it_was_last_asked_for() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES[:1], "a", 0)
    locks.lock("g", QUEUES[:1], "a", 1000)
    assert locks.lock("g", QUEUES[:1], "b", 1000 + LOCK_MS_MAX) == []
    assert locks.is_locked("g", 1000 + LOCK_MS_MAX)
    assert not locks.is_locked("g", 1001 + LOCK_MS_MAX)
    assert locks.holder("g", QUEUES[0], 1001 + LOCK_MS_MAX) is None
    assert locks.lock("g", QUEUES[:1], "b", 1001 + LOCK_MS_MAX) == QUEUES[:1]
    assert locks.lock("g", QUEUES[:1], "a", 1001 + LOCK_MS_MAX) == []


def test_only_the_holder_can_unlock() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES, "a", 0)
    locks.unlock("g", QUEUES, "b")
    locks.unlock("gx", QUEUES, "a")
    assert locks.lock("g", QUEUES, "b", 0) == []
    locks.unlock("g", QUEUES[:2], "a")
    assert locks.lock("g", QUEUES, "b", 0) == QUEUES[:2]


def test_a_scan_forgets_what_is_over_and_nothing_else() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES[:2], "a", 0)
    locks.lock("g", QUEUES[2:], "a", 10)
    locks.lock("h", QUEUES, "a", 0)
    finish(locks.scan(LOCK_MS_MAX + 1))
    assert len(locks) == 2
    assert locks.lock("g", QUEUES, "b", LOCK_MS_MAX + 1) == QUEUES[:2]


def test_nothing_is_kept_of_groups_without_locks() -> None:
    locks = QueueLocks()
    assert locks.lock("g", [], "a", 0) == []
    locks.lock("g", QUEUES, "a", 0)
    locks.unlock("g", QUEUES, "a")
    assert (len(locks), locks._groups) == (0, {})
    assert not locks.is_locked("g", 0)


def test_a_connection_locks_so_many_queues_and_all_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_PER_CONNECTION_MAX", 3)
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 5)
    locks = QueueLocks()
    assert locks.lock("g", QUEUES[:3], "a", 0, connection=1) == QUEUES[:3]
    with pytest.raises(RefusedError, match="at most 3 queues"):
        locks.lock("g", QUEUES, "a", 0, connection=1)
    assert locks.lock("g", QUEUES[:3], "a", 1, connection=1) == QUEUES[:3], "asked for again"
    assert locks.lock("h", QUEUES[:2], "b", 1, connection=2) == QUEUES[:2]
    with pytest.raises(RefusedError, match="5 queues are locked"):
        locks.lock("i", QUEUES[:1], "c", 1, connection=3)
    assert len(locks) == 5
    locks.unlock("g", QUEUES[:1], "a")
    assert locks.lock("i", QUEUES[:1], "c", 1, connection=3) == QUEUES[:1]
    finish(locks.scan(LOCK_MS_MAX + 2))
    assert len(locks) == 0
    assert locks.lock("g", QUEUES[:3], "a", LOCK_MS_MAX + 2, connection=1) == QUEUES[:3]


def test_one_line_tells_of_all_queues_that_a_client_locked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    locks = QueueLocks()
    with caplog.at_level("INFO"):
        locks.lock("g", QUEUES, "a", 0)
        locks.lock("g", QUEUES, "a", 1)
    assert [record.getMessage() for record in caplog.records] == [
        "queue_locked group=g queue=T/0 client=a queues=4"
    ]
