"""The trace without coroutines."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.blocking.client import BlockingClient, OwnCluster
from orbitmq.client import trace as of_trace
from orbitmq.client.messages import ReceivedMessage, SendResult
from orbitmq.client.observers import Outcome, Recall, SendObserver, TransactionEnd
from orbitmq.client.outbox import Outgoing
from orbitmq.client.trace import TraceSettings


class Trace(BlockingClient[of_trace.Trace], SendObserver):
    """`with Trace(cluster) as trace: producer.observers.append(trace); consumer.observers.append(trace)`.

    Clients tell it on the thread of the loop, which it shares with them; so it hands on what it is told, and waits for nothing.
    """

    def __init__(self, cluster: OwnCluster = "", *, settings: TraceSettings | None = None) -> None:
        super().__init__(of_trace.Trace(cluster, settings=settings))

    @property
    def dropped_count(self) -> int:
        """Records that did not fit, or could not be sent."""
        return self._behind.dropped_count

    def sent(self, group: str, outgoing: Outgoing, result: SendResult | Exception, cost_ms: int) -> None:
        self._behind.sent(group, outgoing, result, cost_ms)

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        self._behind.transaction_ended(group, end)

    def recalled(self, group: str, recall: Recall) -> None:
        self._behind.recalled(group, recall)

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        self._behind.consuming(group, messages)

    def consumed(self, group: str, messages: Sequence[ReceivedMessage], outcome: Outcome, cost_ms: int) -> None:
        self._behind.consumed(group, messages, outcome, cost_ms)
