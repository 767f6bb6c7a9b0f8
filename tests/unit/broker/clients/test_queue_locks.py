"""Queue locks: one holder for each queue of a group, for a minute at a time."""

from __future__ import annotations

import pytest

from orbitmq.broker.clients import queue_locks
from orbitmq.broker.clients.queue_locks import LOCK_MS_MAX, QueueLocks
from orbitmq.common.errors import RefusedError
from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.metadata_rows import LockKey, LockRow

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


# --- replication


def test_a_renewal_is_no_change_and_everything_else_is() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES[:1], "a", 0)
    number = locks.changes.number
    locks.lock("g", QUEUES[:1], "a", 1000)
    assert locks.changes.number == number
    locks.lock("g", QUEUES[:1], "b", 1001 + LOCK_MS_MAX)
    locks.unlock("g", QUEUES[:1], "b")
    locks.lock("g", QUEUES[:1], "a", 0)
    finish(locks.scan(1 + LOCK_MS_MAX))
    assert locks.changes.number == number + 4


def test_an_expired_lock_that_is_renewed_is_a_change() -> None:
    """A slave may have been sent the table without it meanwhile."""
    locks = QueueLocks()
    locks.lock("g", QUEUES[:1], "a", 0)
    number = locks.changes.number
    assert locks.row(LockKey("g", QUEUES[0]), 1 + LOCK_MS_MAX) is None
    locks.lock("g", QUEUES[:1], "a", 1 + LOCK_MS_MAX)
    assert locks.changes.number == number + 1


def test_locks_that_were_taken_over_live_as_long_as_the_master_confirms_them() -> None:
    locks, key = QueueLocks(), LockKey("g", QUEUES[0])
    locks.take_over([LockRow(key, "a", None)], [], 0)
    assert locks.lock("g", QUEUES[:1], "b", LOCK_MS_MAX) == []
    locks.confirm(50_000)
    assert locks.lock("g", QUEUES[:1], "b", 50_000 + LOCK_MS_MAX) == []
    assert locks.row(key, 50_000 + LOCK_MS_MAX) == LockRow(key, "a", None)
    assert locks.lock("g", QUEUES[:1], "b", 50_001 + LOCK_MS_MAX) == QUEUES[:1]


def test_a_holder_goes_on_with_a_lock_that_was_taken_over_and_nobody_else_does() -> None:
    locks = QueueLocks()
    rows = [LockRow(LockKey("g", queue), "a", "user") for queue in QUEUES]
    locks.take_over(rows, [], 0)
    assert len(locks) == 4
    assert locks.lock("g", QUEUES, "a", 10, "another") == []
    assert locks.lock("g", QUEUES, "a", 10, "user", "connection") == QUEUES
    locks.confirm(1_000_000)  # it counts no more for locks that were renewed here
    assert locks.holder("g", QUEUES[0], 11 + LOCK_MS_MAX) is None
    finish(locks.scan(11 + LOCK_MS_MAX))
    assert len(locks) == 0


def test_removed_locks_are_released() -> None:
    locks = QueueLocks()
    keys = [LockKey("g", queue) for queue in QUEUES]
    locks.take_over([LockRow(key, "a", None) for key in keys], [], 0)
    own = locks.changes.own_changes
    locks.take_over([LockRow(keys[0], "b", None)], [*keys[1:], LockKey("h", QUEUES[0])], 0)
    assert list(locks.keys) == keys[:1]
    assert locks.holder("g", QUEUES[0], 0) == "b"
    locks.take_over([], keys[:1], 0)
    assert len(locks) == 0
    assert locks.changes.own_changes == own
