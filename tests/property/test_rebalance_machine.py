"""Members of a group that come, leave, die and see different things for a while: once all see the
same, each queue has one of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.client.consumer.rebalance import Averagely, AveragelyByCircle, ConsistentHash, Strategy
from support.client.groups import TOPIC, Brokers, Member

STRATEGIES: list[Strategy] = [Averagely(), AveragelyByCircle(), ConsistentHash()]
brokers_of = st.sampled_from(["broker-a", "broker-b"])


class RebalanceMachine(RuleBasedStateMachine):
    """Real memberships, and a plain count of who is there."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.brokers = Brokers()
        self.members: list[Member] = []
        self.dead: list[str] = []
        self.made = 0
        self.strategy: Strategy = Averagely()

    @initialize(strategy=st.sampled_from(STRATEGIES))
    def choose(self, strategy: Strategy) -> None:
        self.strategy = strategy

    def chosen(self, data: Any) -> Member:
        found: Member = data.draw(st.sampled_from(self.members))
        return found

    def let_them_work(self) -> None:
        """Let everybody end what was begun."""

        async def wait() -> None:
            for _ in range(100):
                await asyncio.sleep(0)

        self.runner.run(wait())

    @precondition(lambda self: len(self.members) < 6)
    @rule()
    def join(self) -> None:
        self.made += 1
        member = Member(self.brokers, f"10.0.0.{self.made * 7 % 10}@{self.made}", self.strategy)
        self.runner.run(member.membership.start())
        self.members.append(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        member = self.chosen(data)
        self.members.remove(member)
        self.runner.run(member.membership.stop())
        assert not member.queues
        self.dead.append(member.client_id)  # to brokers that did not hear of it

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: Any) -> None:
        member = self.chosen(data)
        self.members.remove(member)
        assert member.membership._task is not None
        member.membership._task.cancel()
        self.let_them_work()
        self.dead.append(member.client_id)

    @rule(broker=brokers_of)
    def stop_broker(self, broker: str) -> None:
        self.brokers.away.add(broker)

    @rule(broker=brokers_of)
    def restart_broker(self, broker: str) -> None:
        self.brokers.away.discard(broker)
        self.brokers.known[broker].clear()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), broker=brokers_of)
    def cut_off(self, data: Any, broker: str) -> None:
        """A broker takes a member for gone whose heartbeats do not reach it."""
        member = self.chosen(data)
        self.brokers.cut.add((member.client_id, broker))
        self.brokers.known[broker].discard(member.client_id)

    @rule(broker=brokers_of, count=st.integers(0, 5))
    def change_queues(self, broker: str, count: int) -> None:
        self.brokers.queue_counts[broker] = count

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def notify_one(self, data: Any) -> None:
        self.chosen(data).membership.rebalance_soon()
        self.let_them_work()

    @rule()
    def settle(self) -> None:
        """Everything is there again, and everybody looks once."""
        self.brokers.away.clear()
        self.brokers.cut.clear()
        for known in self.brokers.known.values():
            known.difference_update(self.dead)
        for member in self.members:
            self.runner.run(member.session.heartbeat())
        for member in self.members:
            member.membership.rebalance_soon()
        self.let_them_work()
        owned = sorted(queue for member in self.members for queue in member.queues)
        assert owned == (sorted(self.brokers.route(TOPIC).read_queues) if self.members else [])

    @invariant()
    def whoever_consumes_knows_its_queues(self) -> None:
        for member in self.members:
            assert member.consumer.queues == member.membership.queues

    def teardown(self) -> None:
        self.settle()
        for member in self.members:
            self.runner.run(member.membership.stop())
        self.runner.close()


TestRebalance: Any = RebalanceMachine.TestCase
TestRebalance.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
