"""Distinct types for the store's numbers, so that they cannot be mixed up."""

from __future__ import annotations

from typing import NamedTuple, NewType

LogOffset = NewType("LogOffset", int)  # byte position in the commit log, across all files
QueueOffset = NewType("QueueOffset", int)  # message number in a queue, from its first message ever
StoreTimeMs = NewType("StoreTimeMs", int)  # the broker's wall clock at append


class QueueKey(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int
