"""The blocking message trace."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.blocking.client import BlockingClient, OwnCluster
from orbitmq.client import trace as of_trace
from orbitmq.client.messages import ReceivedMessage, SendResult
from orbitmq.client.observers import ConsumeOutcome, Recall, SendObserver, TransactionEnd
from orbitmq.client.producer.outbox import OutgoingMessage
from orbitmq.client.trace import TraceSettings


class Trace(BlockingClient[of_trace.Trace], SendObserver):
    """Publishes trace records of the producers and consumers that it observes.

    `with Trace(cluster) as trace: producer.observers.append(trace);
    consumer.observers.append(trace)`.

    Clients call it on the loop's thread, which it shares with them; it forwards the calls and never
    blocks.
    """

    def __init__(self, cluster: OwnCluster = "", *, settings: TraceSettings | None = None) -> None:
        super().__init__(of_trace.Trace(cluster, settings=settings))

    @property
    def dropped_count(self) -> int:
        """The number of records that did not fit the buffer or could not be sent."""
        return self._wrapped.dropped_count

    def sent(
        self, group: str, outgoing: OutgoingMessage, result: SendResult | Exception, cost_ms: int
    ) -> None:
        self._wrapped.sent(group, outgoing, result, cost_ms)

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        self._wrapped.transaction_ended(group, end)

    def recalled(self, group: str, recall: Recall) -> None:
        self._wrapped.recalled(group, recall)

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        self._wrapped.consuming(group, messages)

    def consumed(
        self, group: str, messages: Sequence[ReceivedMessage], outcome: ConsumeOutcome, cost_ms: int
    ) -> None:
        self._wrapped.consumed(group, messages, outcome, cost_ms)
