"""The type of a message, as metrics label it, derived from its properties in the original's order.
Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from orbitmq.message import properties
from orbitmq.message.property_rules import DELAYING


class MessageType(Enum):
    """Message types; the values are their metric labels."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"


def message_type(found: Mapping[str, str]) -> MessageType:
    """Return the type of a message sent with these properties."""
    if found.get(properties.TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if properties.SHARDING_KEY in found:
        return MessageType.FIFO
    return MessageType.DELAY if any(name in found for name in DELAYING) else MessageType.NORMAL
