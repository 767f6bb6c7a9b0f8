"""Queue locks against a dictionary: never two holders, whoever asks when; clients die or are cut
off, and the broker dies.

A client believes that it has a queue for a shorter time than its broker keeps the lock: so nobody
is in the middle of a queue that another gets. Only a broker that died, and with it all that it knew
of locks, may give away what somebody still believes to have, for that time.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.broker.clients import queue_locks
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.client.consumer import queue_lock_keeper
from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.clients import MessageQueue

LOCK_MS = 100
BELIEF_MS = LOCK_MS * queue_lock_keeper.LOCK_MS_MAX // queue_locks.LOCK_MS_MAX
NAMES = ("a", "b", "c")
GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from(NAMES)
ALL_QUEUES = [MessageQueue("T", "broker", queue_id) for queue_id in range(3)]
QUEUES = st.lists(st.sampled_from(ALL_QUEUES), unique=True)
Place = tuple[str, MessageQueue]


class QueueLocksMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.locks = QueueLocks(LOCK_MS)
        self.model: dict[Place, tuple[str, int]] = {}
        self.beliefs: dict[str, dict[Place, int]] = {
            name: {} for name in NAMES
        }  # when each client last heard that a queue is its own
        self.cut_off: set[str] = set()
        self.now_ms = 0
        self.forgot_ms = -BELIEF_MS - 1

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        client, until_ms = self.model.get((group, queue), ("", -1))
        return client if self.now_ms <= until_ms else None

    # -- what clients do

    @rule(group=GROUPS, queues=QUEUES, client=CLIENTS)
    def lock(self, group: str, queues: list[MessageQueue], client: str) -> None:
        if client in self.cut_off:
            return
        expected = [queue for queue in queues if self.holder(group, queue) in (None, client)]
        assert self.locks.lock(group, queues, client, self.now_ms) == expected
        self.model |= {(group, queue): (client, self.now_ms + LOCK_MS) for queue in expected}
        for queue in queues:
            self.beliefs[client].pop((group, queue), None)
        self.beliefs[client] |= {(group, queue): self.now_ms for queue in expected}

    @rule(group=GROUPS, queues=QUEUES, client=CLIENTS)
    def unlock(self, group: str, queues: list[MessageQueue], client: str) -> None:
        """A client that is cut off gives its queues up all the same, and its broker does not hear
        of it.
        """
        for queue in queues:
            self.beliefs[client].pop((group, queue), None)
        if client in self.cut_off:
            return
        self.locks.unlock(group, queues, client)
        for queue in queues:
            if self.holder(group, queue) == client:
                del self.model[group, queue]

    # -- what happens to them

    @rule(client=CLIENTS)
    def a_client_dies(self, client: str) -> None:
        """Its locks stay; one of its name comes back with the next step, as a process that is
        started again.
        """
        self.beliefs[client].clear()
        self.cut_off.discard(client)

    @rule(client=CLIENTS)
    def a_client_is_cut_off(self, client: str) -> None:
        self.cut_off.add(client)

    @rule(client=CLIENTS)
    def a_client_is_back(self, client: str) -> None:
        self.cut_off.discard(client)

    @rule()
    def the_broker_dies(self) -> None:
        self.locks = QueueLocks(LOCK_MS)
        self.model.clear()
        self.forgot_ms = self.now_ms

    @rule(passed_ms=st.integers(0, 120))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def scan(self) -> None:
        finish(self.locks.scan(self.now_ms))
        assert len(self.locks) == sum(self.holder(*key) is not None for key in self.model)

    # -- what must be so

    @invariant()
    def every_queue_has_the_holder_it_should(self) -> None:
        for group in ("g", "h"):
            holders = [self.holder(group, queue) for queue in ALL_QUEUES]
            assert [self.locks.holder(group, queue, self.now_ms) for queue in ALL_QUEUES] == holders
            assert self.locks.is_locked(group, self.now_ms) == any(holders)

    @invariant()
    def nobody_gets_what_another_still_believes_to_have(self) -> None:
        if self.now_ms - self.forgot_ms <= BELIEF_MS:
            return
        believed = [
            place
            for beliefs in self.beliefs.values()
            for place, heard_ms in beliefs.items()
            if self.now_ms - heard_ms < BELIEF_MS
        ]
        assert len(believed) == len(set(believed))


TestQueueLocks = QueueLocksMachine.TestCase
TestQueueLocks.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
