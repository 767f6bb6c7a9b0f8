"""Places in queues, as operators name them: the first message, the end, a time, or an offset."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Edge(Enum):
    """An end of a queue."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message that was stored at that time or later."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The message of that offset."""

    offset: int


Position = Edge | AtTime | AtOffset
