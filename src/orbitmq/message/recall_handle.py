"""Recall handles: what a producer is told of a message that comes later, and by which it takes it back (RocketMQ 5.3 and later).

`v1 topic broker time id`, in URL-safe Base64. Knows nothing of whether the message is still there.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from orbitmq.common.errors import MessageIllegal

_VERSION: Final = "v1"
_SHOWN_MAX: Final = 100  # characters of what is none, in errors


class RecallHandle(NamedTuple):
    """What a handle says; `deliver_at_ms` is when the message would come, and `msg_id` its producer's id of it."""

    topic: str
    broker_name: str
    deliver_at_ms: int
    msg_id: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """The parts of a handle; MessageIllegal when `text` is none."""
        try:
            version, topic, broker_name, time_text, msg_id = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(" ")
            deliver_at_ms = int(time_text)
        except (binascii.Error, ValueError):
            version = ""
        if version != _VERSION:
            raise MessageIllegal(f"{text[:_SHOWN_MAX]!r} is no recall handle; take the one of the SendResult of a message that comes later")
        return cls(topic, broker_name, deliver_at_ms, msg_id)

    def text(self) -> str:
        """The handle as producers get it."""
        return urlsafe_b64encode(" ".join((_VERSION, self.topic, self.broker_name, str(self.deliver_at_ms), self.msg_id)).encode()).decode()
