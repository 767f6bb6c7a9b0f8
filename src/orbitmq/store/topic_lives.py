"""Which topics exist, and since which offset of the log: the commit log also has the records of topics that were deleted.

A topic that is deleted and created again has two lives. Only the records of the present one belong to its queues, and both begin at queue
offset 0, so recovery has to know where the present one begins. The owner of the topics implements this; the store keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class TopicLives(Protocol):
    """The topics of one store."""

    def load(self) -> None:
        """Read them; called once, when the store is locked and before anything else of it is read."""
        ...

    def exists(self, topic: str) -> bool:
        """Whether the records of the topic belong to queues; True where that cannot be told."""
        ...

    def begin_of(self, topic: str) -> int:
        """The log offset at which the present life of the topic begins; 0 when it is not known to have had another one."""
        ...

    def knows_begin(self, topic: str) -> bool:
        """Whether `begin_of` was recorded when the present life began, and is no default."""
        ...

    def beginnings(self) -> Mapping[str, int] | None:
        """All topics that exist, with where their lives begin; None when it cannot be told which do."""
        ...


class AnyTopic:
    """For a store whose owner knows of no topics: every one of which there is a record exists, from the first record on."""

    def load(self) -> None: ...

    def exists(self, topic: str) -> bool:
        return True

    def begin_of(self, topic: str) -> int:
        return 0

    def knows_begin(self, topic: str) -> bool:
        return False

    def beginnings(self) -> Mapping[str, int] | None:
        return None
