"""What is told of single messages: where one was found, and how far groups are with it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from orbitmq.client.messages import ReceivedMessage


class FoundMessage(NamedTuple):
    """A message, by which kind of id it was found, and everything that was tried."""

    message: ReceivedMessage
    found_by: str
    looked: tuple[str, ...]


class TrackState(Enum):
    """What became of a message in a group."""

    CONSUMED = "consumed"
    FILTERED = "passed over: the group does not want its tags"
    NOT_YET = "not consumed yet"
    UNKNOWN = "the group has no offset in its queue"


class MessageTrack(NamedTuple):
    """A group that consumes the topic of a message, and what became of the message there."""

    group: str
    is_online: bool
    state: TrackState
