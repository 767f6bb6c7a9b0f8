"""Waiting requests against a dictionary: whatever happens in whatever order, each waiter leaves
exactly once.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.protocol.in_flight import InFlight, opaques

OWNERS = st.sampled_from(["a", "b", "c"])


class InFlightMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: InFlight[str] = InFlight()
        self.model: dict[int, tuple[str, int, str]] = {}
        self.numbers = opaques()
        self.now_ms = 0
        self.left: list[str] = []

    def leave(self, waiters: list[str]) -> None:
        assert not set(waiters) & set(self.left), "a waiter left twice"
        self.left += waiters

    @rule(owner=OWNERS, timeout_ms=st.integers(0, 50))
    def ask(self, owner: str, timeout_ms: int) -> None:
        opaque = next(self.numbers)
        self.waiting.add(opaque, owner, self.now_ms + timeout_ms, f"waiter {opaque}")
        self.model[opaque] = (owner, self.now_ms + timeout_ms, f"waiter {opaque}")

    @rule(opaque=st.integers(-1, 60), owner=OWNERS)
    def answer(self, opaque: int, owner: str) -> None:
        expected = (
            self.model.pop(opaque)[2]
            if opaque in self.model and self.model[opaque][0] == owner
            else None
        )
        assert self.waiting.take(opaque, owner) == expected
        self.leave([expected] if expected else [])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def answer_rightly(self, data: st.DataObject) -> None:
        opaque = data.draw(st.sampled_from(sorted(self.model)))
        self.answer(opaque, self.model[opaque][0])

    @rule(passed_ms=st.integers(0, 40))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        overdue = {
            opaque
            for opaque, (_, deadline_ms, _) in self.model.items()
            if deadline_ms <= self.now_ms
        }
        expired = self.waiting.expire(self.now_ms)
        assert sorted(expired) == sorted(self.model.pop(opaque)[2] for opaque in overdue)
        self.leave(expired)

    @rule(owner=OWNERS)
    def connection_dies(self, owner: str) -> None:
        lost = [opaque for opaque, (its, _, _) in sorted(self.model.items()) if its == owner]
        dropped = self.waiting.drop(owner)
        assert dropped == [self.model.pop(opaque)[2] for opaque in lost]
        self.leave(dropped)

    @invariant()
    def as_many_wait(self) -> None:
        assert len(self.waiting) == len(self.model)
        assert {
            opaque for opaques_of in self.waiting._by_owner.values() for opaque in opaques_of
        } == set(self.model)
        assert all(self.waiting._by_owner.values()), "an owner without requests is kept"


TestInFlight = InFlightMachine.TestCase
TestInFlight.settings = settings(deadline=None)
