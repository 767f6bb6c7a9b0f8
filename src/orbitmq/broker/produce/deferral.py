"""Deferred messages: delayed messages and half messages, stored in a holding topic for now.

A rewriter knows one kind of them and turns a message into the record that is stored meanwhile.
Its quick form serves the fast path, which makes no message objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from orbitmq.message.record_write import MessageRecord


class Deferred(NamedTuple):
    """A deferred message as it is stored, hidden from consumers."""

    message: MessageRecord
    recall_handle: str | None = None  # with which its producer may recall it


class Holding(NamedTuple):
    """Where a deferred message is held, and how its record differs from an ordinary one."""

    topic: bytes
    queue_id: int
    more: bytes  # properties appended to its own
    recall_handle: bytes = b""


# The quick form of a rewriter: topic, queue id, unique key, and the level or the time in
# milliseconds. None sends the message to the general path.
QuickRewriter: TypeAlias = Callable[[str, int, str, int], Holding | None]


class MessageRewriter(Protocol):
    """Rewrites one kind of deferred messages for their holding topic."""

    def rewrite(self, message: MessageRecord, found: Mapping[str, str]) -> Deferred | None:
        """Return what is stored of a message with these properties.

        None if it is not of this kind; RefusedError if it may not be sent.
        """
