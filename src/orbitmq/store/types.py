"""The names of the numbers that the store passes around, so that one is not taken for another."""

from __future__ import annotations

from typing import NamedTuple, NewType

LogOffset = NewType("LogOffset", int)  # a byte of the commit log, counted over all files
QueueOffset = NewType("QueueOffset", int)  # a message of a queue, counted from the first ever put
StoreTimeMs = NewType("StoreTimeMs", int)  # the broker's wall clock when a message was appended


class QueueKey(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int
