"""Positions in queues: the first message, the end, a time, or an offset."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from orbitmq.common.deprecation import renamed


class QueueEdge(Enum):
    """The first message or the end of a queue."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class AtStoreTime:
    """The first message stored at that time or later."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The message at that offset."""

    offset: int


Position = QueueEdge | AtStoreTime | AtOffset

__getattr__ = renamed(__name__, {"Edge": "QueueEdge", "AtTime": "AtStoreTime"})
