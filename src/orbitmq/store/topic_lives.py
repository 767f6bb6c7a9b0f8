"""Which topics exist, and since which log offset: the commit log also has records of deleted
topics.

A topic that is deleted and created again has two lives. Only the records of the present one belong
to its queues, and both begin at queue offset 0, so recovery must know where the present one begins.
The owner of the topics implements this; the store persists nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LivesProof:
    """What a manifest states about topics: which existed when the log ended at `log_offset`, and
    where the life of each began. Of any other topic, no record before `log_offset` belongs to its
    present life.

    `is_last`: the store was stopped cleanly and nothing was written since, so every difference is
    of another time. The defaults stand for no manifest: nothing is proven.
    """

    beginnings: Mapping[str, int] = field(default_factory=dict)
    log_offset: int = 0
    is_last: bool = False

    def begin_of(self, topic: str) -> int:
        """Return the log offset before which no record belongs to the topic's present life."""
        return self.beginnings.get(topic, self.log_offset)


class TopicLives(Protocol):
    """The topics of one store."""

    def load(self) -> None:
        """Read the topics; called once, after the store is locked and before anything else
        is read.
        """
        ...

    def exists(self, topic: str) -> bool:
        """Whether the records of the topic belong to queues; True if unknown."""
        ...

    def begin_of(self, topic: str) -> int:
        """Return the log offset where the topic's present life begins; 0 if it is not known to have
        had another.
        """
        ...

    def beginnings(self) -> Mapping[str, int] | None:
        """Return all existing topics with the log offset of their beginning; None if unknown."""
        ...

    def begin_again(self, topic: str, log_offset: int) -> None:
        """Take it that a topic was deleted, and created again at a log offset, and log it."""
        ...

    def learn(self, proven: LivesProof, log_end: int) -> None:
        """Correct the loaded topics by what a manifest proves, and log it: a life begins where it
        did then, or later unless that is the last, and not after the end of the log.
        """
        ...


class AnyTopic:
    """For a store whose owner knows no topics: every topic with a record exists, from the first
    record on.
    """

    def load(self) -> None: ...

    def exists(self, topic: str) -> bool:
        return True

    def begin_of(self, topic: str) -> int:
        return 0

    def beginnings(self) -> Mapping[str, int] | None:
        return None

    def begin_again(self, topic: str, log_offset: int) -> None: ...

    def learn(self, proven: LivesProof, log_end: int) -> None: ...
