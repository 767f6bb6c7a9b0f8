"""The type of a message, as metrics label it: what its properties ask of the broker, in the original's order. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from orbitmq.message import properties

_DELAYED: Final = (
    properties.DELAY,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
)


class MessageType(Enum):
    """Types by the value of their label."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"


def message_type(found: Mapping[str, str]) -> MessageType:
    """The type of a message that is sent with these properties."""
    if found.get(properties.TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if properties.SHARDING_KEY in found:
        return MessageType.FIFO
    return MessageType.DELAY if any(name in found for name in _DELAYED) else MessageType.NORMAL
