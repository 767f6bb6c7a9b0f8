"""Who is told of every message that is sent or consumed, beside the application: the trace, and whatever else watches.

Called on the loop, so they must not block; what they raise is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from orbitmq.client.messages import ReceivedMessage, SendResult
from orbitmq.client.outbox import Outgoing


class SendObserver(Protocol):
    """Is told what became of each message or batch that a producer sent."""

    def sent(self, outgoing: Outgoing, result: SendResult | Exception, cost_ms: int) -> None: ...


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
