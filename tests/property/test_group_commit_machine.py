"""Those who wait for a flush against a plain list: each leaves once, in order, with the outcome
that a naive look gives.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.store.flush.group_commit import GroupCommit, Outcome


class GroupCommitMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tickets: GroupCommit[int] = GroupCommit()
        self.model: list[tuple[int, int, int]] = []  # end offset, deadline, waiter
        self.message_counts: dict[int, int] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.failed = False
        self.end = self.reached = self.now_ms = self.waiters = 0

    def leave(self, waiters: list[int], outcome: Outcome) -> None:
        assert waiters == sorted(waiters), "they leave in the order of their arrival"
        for waiter in waiters:
            assert waiter not in self.outcomes, "a waiter left twice"
            self.outcomes[waiter] = outcome

    @rule(size=st.integers(0, 10), timeout_ms=st.integers(0, 50))
    def append(self, size: int, timeout_ms: int) -> None:
        self.end += size
        self.waiters += 1
        self.message_counts[self.waiters] = size
        outcome = self.tickets.ticket(self.end, self.now_ms + timeout_ms, self.waiters, size)
        if self.end <= self.reached:
            assert outcome is Outcome.DONE
        elif self.failed:
            assert outcome is Outcome.FAILED
        else:
            assert outcome is None
            latest_ms = max((deadline_ms for _, deadline_ms, _ in self.model), default=0)
            self.model.append((self.end, max(self.now_ms + timeout_ms, latest_ms), self.waiters))
        if outcome:
            self.leave([self.waiters], outcome)

    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.reached = max(self.reached, offset)
        expected = [waiter for end, _, waiter in self.model if end <= self.reached]
        self.model = [each for each in self.model if each[0] > self.reached]
        found = self.tickets.reach(offset)
        assert found == expected
        self.leave(found, Outcome.DONE)

    @rule(passed_ms=st.integers(0, 40))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        expected = [
            (end, waiter) for end, deadline_ms, waiter in self.model if deadline_ms <= self.now_ms
        ]
        self.model = [each for each in self.model if each[1] > self.now_ms]
        found = self.tickets.expire(self.now_ms)
        assert found == expected
        self.leave([waiter for _, waiter in found], Outcome.TIMED_OUT)

    @rule()
    def the_store_turns_read_only(self) -> None:
        self.failed = True
        found = self.tickets.fail()
        assert found == [waiter for _, _, waiter in self.model]
        self.model.clear()
        self.leave(found, Outcome.FAILED)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        assert len(self.tickets) == len(self.model)
        assert self.tickets.message_count == sum(
            self.message_counts[waiter] for _, _, waiter in self.model
        )
        assert len(self.outcomes) + len(self.model) == self.waiters
        assert self.tickets.next_deadline_ms == min(
            (deadline_ms for _, deadline_ms, _ in self.model), default=None
        )


TestGroupCommit = GroupCommitMachine.TestCase
TestGroupCommit.settings = settings(deadline=None)
