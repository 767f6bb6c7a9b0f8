"""Observers: called for every message that is sent or consumed; the trace is one.

They are called on the loop, so they must not block. Their exceptions are logged and otherwise
ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from orbitmq.client.messages import ReceivedMessage, SendResult, TransactionState
from orbitmq.client.producer.outbox import OutgoingMessage

T = TypeVar("T")

log = logging.getLogger(__name__)


class TransactionEnd(NamedTuple):
    """The outcome of a transaction as sent to a broker; `from_check` if the broker asked for it."""

    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    region: str | None
    broker_address: str
    transaction_id: str | None
    state: TransactionState
    from_check: bool
    is_traced: bool = True  # False if the broker turned tracing off


class Recall(NamedTuple):
    """An attempt to recall a scheduled message, and whether the broker accepted it."""

    topic: str
    msg_id: str
    region: str | None
    is_success: bool


class SendObserver:
    """Observes a producer group; override the methods of interest."""

    def sent(
        self, group: str, outgoing: OutgoingMessage, result: SendResult | Exception, cost_ms: int
    ) -> None:
        """Called after each send of a message or batch."""

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        """Called for each transaction outcome sent; more than once if the broker checks again."""

    def recalled(self, group: str, recall: Recall) -> None:
        """Called after each recall of a scheduled message."""


def notify(observers: Iterable[T], what: Callable[[T], None]) -> None:
    """Call `what` with each observer."""
    for observer in observers:
        try:
            what(observer)
        except Exception:
            log.exception("observer_failed observer=%r", observer)


class ConsumeOutcome(IntEnum):
    """How a listener call ended; the numbers are those of trace records."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4  # the listener asked for redelivery


class ConsumeObserver(Protocol):
    """Observes the messages of a consumer group before and after its listener runs."""

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None: ...

    def consumed(
        self, group: str, messages: Sequence[ReceivedMessage], outcome: ConsumeOutcome, cost_ms: int
    ) -> None: ...
