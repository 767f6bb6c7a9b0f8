"""Who is told of every message that is sent or consumed, beside the application: the trace, and whatever else watches.

Called on the loop, so they must not block; what they raise is logged and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from orbitmq.client.messages import ReceivedMessage, SendResult, TransactionState
from orbitmq.client.outbox import Outgoing

T = TypeVar("T")

log = logging.getLogger(__name__)


class TransactionEnd(NamedTuple):
    """What a producer told a broker of a transaction, by itself or asked by it (`from_check`)."""

    topic: str
    msg_id: str
    tags: str | None
    keys: str | None
    region: str | None
    broker_address: str
    transaction_id: str | None
    state: TransactionState
    from_check: bool
    is_traced: bool = True  # unless the broker wants no traces


class Recall(NamedTuple):
    """A message that a producer wanted back, and whether the broker will keep it."""

    topic: str
    msg_id: str
    region: str | None
    is_success: bool


class SendObserver:
    """Is told what became of all that a producer of a group did; whoever wants to know overrides what it wants."""

    def sent(self, group: str, outgoing: Outgoing, result: SendResult | Exception, cost_ms: int) -> None:
        """Of each message or batch."""

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        """Of each message of a transaction, once or more often."""

    def recalled(self, group: str, recall: Recall) -> None:
        """Of each message that was to come later, and is not wanted any more."""


def tell(observers: Iterable[T], what: Callable[[T], None]) -> None:
    """Tell all of them."""
    for observer in observers:
        try:
            what(observer)
        except Exception:
            log.exception("observer_failed observer=%r", observer)


class Outcome(IntEnum):
    """How a listener ended; the numbers are those of the trace."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4  # the listener wants it again


class ConsumeObserver(Protocol):
    """Is told of messages before a listener gets them, and how that ended."""

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None: ...

    def consumed(self, group: str, messages: Sequence[ReceivedMessage], outcome: Outcome, cost_ms: int) -> None: ...
