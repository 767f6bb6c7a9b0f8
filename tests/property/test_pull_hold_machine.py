"""Held pulls against a dictionary: whatever races with whatever, each pull leaves once, when it
should, and none is lost.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.broker.consume.pending_pulls import LongPollingConfig, PendingPull, PendingPulls
from orbitmq.store.reads import TagsFilter
from orbitmq.store.types import QueueKey, QueueOffset
from support.remoting.channels import Peers

CONFIG = LongPollingConfig(check_ms=50, held_pulls_max=6)
QUEUES = st.sampled_from([QueueKey("T", 0), QueueKey("T", 1)])
CODES = st.integers(1, 2)
PASSED_MS = st.sampled_from([1, 20, 50, 60])
CHANNELS = [Peers().connect() for _ in range(3)]


class Waiting:
    """What the model knows of a pull."""

    def __init__(self, queue: QueueKey, deadline_ms: int, looked_ms: int) -> None:
        self.queue = queue
        self.deadline_ms = deadline_ms
        self.looked_ms = looked_ms
        self.passed_over = False

    def due_ms(self) -> int:
        return min(self.deadline_ms, self.looked_ms + CONFIG.check_ms)


class PullHoldMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.hold = PendingPulls(CONFIG)
        self.model: dict[PendingPull, Waiting] = {}
        self.ends: dict[QueueKey, int] = {}
        self.left: set[PendingPull] = set()
        self.now_ms = 0

    def leave(self, pulls: list[PendingPull], expected: list[PendingPull]) -> None:
        assert set(pulls) == set(expected)
        assert len(pulls) == len(set(pulls)), "a pull was released twice"
        assert not self.left & set(pulls), "a pull left twice"
        self.left |= set(pulls)
        for pull in pulls:
            del self.model[pull]

    @rule(
        queue=QUEUES,
        ahead=st.integers(0, 1),
        suspend_ms=st.sampled_from([-1, 0, 40, 50, 130, 200]),
        channel=st.sampled_from(CHANNELS),
        code=st.none() | CODES,
    )
    def wait(
        self, queue: QueueKey, ahead: int, suspend_ms: int, channel: object, code: int | None
    ) -> None:
        offset = QueueOffset(self.ends.get(queue, 0) + ahead)
        wanted = None if code is None else TagsFilter(frozenset({code}))
        pull = PendingPull(
            connection=channel,
            request=None,
            size=100,
            offset=offset,
            suspend_ms=suspend_ms,
            wanted=wanted,
            resume=lambda _pull: None,
        )
        held = self.hold.hold(queue, pull, self.now_ms)
        assert held == (len(self.model) < CONFIG.held_pulls_max)
        if held:
            self.model[pull] = Waiting(queue, self.now_ms + max(suspend_ms, 0), self.now_ms)

    @rule(queue=QUEUES, tags_code=st.none() | CODES)
    def arrive(self, queue: QueueKey, tags_code: int | None) -> None:
        end = self.ends[queue] = self.ends.get(queue, 0) + 1
        released = []
        for pull, waiting in self.model.items():
            if waiting.queue == queue and end > pull.offset:
                codes = None if pull.wanted is None else pull.wanted.tags_codes
                if tags_code is None or codes is None or tags_code in codes:
                    released.append(pull)
                else:
                    waiting.passed_over = True
        woken = list(self.hold.on_arrival(queue, QueueOffset(end), tags_code))
        while self.hold.has_more_to_wake:
            woken += self.hold.wake_more()
        self.leave(woken, released)

    def expired(self) -> list[PendingPull]:
        """All that are due, however many are looked at in one go."""
        expired = self.hold.expire(self.now_ms)
        while self.hold.next_ms is not None and self.hold.next_ms <= self.now_ms:
            expired += self.hold.expire(self.now_ms)
        return expired

    @rule(passed_ms=PASSED_MS)
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        due = {
            pull: waiting for pull, waiting in self.model.items() if waiting.due_ms() <= self.now_ms
        }
        released = [
            pull
            for pull, waiting in due.items()
            if waiting.passed_over or waiting.deadline_ms <= self.now_ms
        ]
        self.leave(self.expired(), released)
        for pull in due.keys() - self.left:
            due[pull].looked_ms = self.now_ms

    @rule(passed_ms=PASSED_MS)
    def time_passes_unseen(self, passed_ms: int) -> None:
        """The loop was busy: what is due has to wait, and may be overtaken by anything."""
        self.now_ms += passed_ms

    @rule(channel=st.sampled_from(CHANNELS))
    def disconnect(self, channel: object) -> None:
        while not self.hold.drop(channel):
            pass
        gone = [pull for pull in self.model if pull.connection is channel]
        self.leave(gone, gone)

    @invariant()
    def those_who_wait_are_looked_at_in_time(self) -> None:
        assert len(self.hold) == len(self.model)
        assert self.hold.next_ms == min(
            (waiting.due_ms() for waiting in self.model.values()), default=None
        )

    def teardown(self) -> None:
        self.now_ms += 1000
        self.leave(self.expired(), list(self.model))
        assert len(self.hold) == 0
        assert self.hold.next_ms is None


class CrowdsMachine(PullHoldMachine):
    """The same, but three pulls are a crowd."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = PendingPulls(CONFIG, wakes_max=2)


TestPullHold = PullHoldMachine.TestCase
TestPullHold.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCrowds = CrowdsMachine.TestCase
TestCrowds.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
