"""Delays the reply to a write until the message is durable: flushed (SYNC_FLUSH), replicated
(SYNC_MASTER) and its topic config saved.

Knows store and topics, and nothing of requests. Invariant: a delayed reply is sent once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from orbitmq.broker.metadata.topics import Topics
from orbitmq.common.errors import Refusal, reason_of
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset


class Durability(NamedTuple):
    """Whether a write is durable; if not, why it cannot be acknowledged."""

    refusal: Refusal | None = None
    remark: str | None = None


DURABLE: Final = Durability()
_UNCONFIRMED: Final = Durability(
    Refusal.UNCONFIRMED,
    "the disk did not confirm the message in time; it is stored, and may become durable soon",
)

_REPLICA_UNCONFIRMED: Final = Durability(
    Refusal.REPLICA_UNCONFIRMED,
    "too few slaves confirmed the message within slaveTimeout; it is stored, and may be replicated"
    " soon",
)
_NO_REPLICA: Final = Durability(
    Refusal.NO_REPLICA, "the message is stored on this master only: no slave is in sync"
)

DelayedReply: TypeAlias = Callable[[Durability], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write whose messages are stored up to `end`."""

    end: LogOffset
    topic: str  # that consumers read
    waits: bool = True  # whether its sender wants to
    count: int = 1
    settled: Callable[[], object] | None = None  # called after the wait, or instead of it


class DurableReplies:
    """Decides when the reply to a write may be sent."""

    def __init__(self, store: MessageStore, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    def is_durable(self, write: Write) -> bool:
        """Return whether nothing has to be waited for."""
        return not self._has_to_wait(write) and self._topics.is_saved(write.topic)

    def reply_when_durable(self, write: Write, reply: DelayedReply) -> bool:
        """Return True if the reply may be sent now; otherwise `reply` is called later."""
        if self._has_to_wait(write):
            self._store.when_durable(
                write.end, lambda outcome: self._flushed(write, reply, outcome), write.count
            )
            return False
        if write.settled is not None:
            write.settled()
        if self._topics.is_saved(write.topic):
            return True
        self._reply_when_topic_is_saved(write.topic, DURABLE, reply)
        return False

    def _has_to_wait(self, write: Write) -> bool:
        return write.waits and self._store.waits

    def _flushed(self, write: Write, reply: DelayedReply, outcome: Outcome) -> None:
        if write.settled is not None:
            write.settled()
        self._reply_when_topic_is_saved(write.topic, durability(outcome, self._store), reply)

    def _reply_when_topic_is_saved(
        self, topic: str, durability: Durability, reply: DelayedReply
    ) -> None:
        """Reply; for a new topic, only after it is saved: if a restart forgot it, the message could
        not be read.
        """

        def saved(failure: Exception | None) -> None:
            if failure is None or durability is not DURABLE:
                reply(durability)
                return
            remark = (
                f"the message is stored, but its new topic[{topic}] could not be"
                f" saved: {reason_of(failure)}; the save is retried; create the topic again"
                " if the broker stops before it succeeds"
            )
            reply(Durability(Refusal.UNCONFIRMED, remark))

        if self._topics.is_saved(topic):
            reply(durability)
        else:
            self._topics.when_saved(saved)


def durability(outcome: Outcome, store: MessageStore) -> Durability:
    """Return what the outcome of a wait means for its writes."""
    found = _DURABILITIES.get(outcome)
    return found or Durability(Refusal.UNAVAILABLE, store.refusal)


_DURABILITIES: Final = {
    Outcome.DONE: DURABLE,
    Outcome.TIMED_OUT: _UNCONFIRMED,
    Outcome.REPLICA_TIMED_OUT: _REPLICA_UNCONFIRMED,
    Outcome.NO_REPLICA: _NO_REPLICA,
}
