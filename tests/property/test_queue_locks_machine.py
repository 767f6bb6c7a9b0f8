"""Queue locks against a dictionary: never two holders, whoever asks when."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.protocol.bodies.clients import MessageQueue

LOCK_MS = 100
GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from(["a", "b", "c"])
ALL_QUEUES = [MessageQueue("T", "broker", queue_id) for queue_id in range(3)]
QUEUES = st.lists(st.sampled_from(ALL_QUEUES), unique=True)


class QueueLocksMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.locks = QueueLocks(LOCK_MS)
        self.model: dict[tuple[str, MessageQueue], tuple[str, int]] = {}
        self.now_ms = 0

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        client, until_ms = self.model.get((group, queue), ("", -1))
        return client if self.now_ms <= until_ms else None

    @rule(group=GROUPS, queues=QUEUES, client=CLIENTS)
    def lock(self, group: str, queues: list[MessageQueue], client: str) -> None:
        expected = [queue for queue in queues if self.holder(group, queue) in (None, client)]
        assert self.locks.lock(group, queues, client, self.now_ms) == expected
        self.model |= {(group, queue): (client, self.now_ms + LOCK_MS) for queue in expected}

    @rule(group=GROUPS, queues=QUEUES, client=CLIENTS)
    def unlock(self, group: str, queues: list[MessageQueue], client: str) -> None:
        self.locks.unlock(group, queues, client)
        for queue in queues:
            if self.holder(group, queue) == client:
                del self.model[group, queue]

    @rule(passed_ms=st.integers(0, 120))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def scan(self) -> None:
        self.locks.scan(self.now_ms)
        assert len(self.locks) == sum(self.holder(*key) is not None for key in self.model)

    @invariant()
    def every_queue_has_the_holder_it_should(self) -> None:
        for group in ("g", "h"):
            holders = [self.holder(group, queue) for queue in ALL_QUEUES]
            assert [self.locks.holder(group, queue, self.now_ms) for queue in ALL_QUEUES] == holders
            assert self.locks.is_locked(group, self.now_ms) == any(holders)


TestQueueLocks = QueueLocksMachine.TestCase
TestQueueLocks.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
