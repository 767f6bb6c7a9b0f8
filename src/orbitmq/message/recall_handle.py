"""Recall handles: returned to the producer of a scheduled message, and used to recall it (RocketMQ
5.3 and later).

`v1 topic broker time id`, in URL-safe Base64. Does not know whether the message still exists.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from orbitmq.common.errors import InvalidMessageError

_VERSION: Final = "v1"
_SHOWN_MAX: Final = 100  # characters of an invalid handle shown in errors


class RecallHandle(NamedTuple):
    """The parts of a recall handle; `deliver_at_ms` is the delivery time, `msg_id` the producer's
    message id.
    """

    topic: str
    broker_name: str
    deliver_at_ms: int
    msg_id: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Return the parts of a handle; raise InvalidMessageError if `text` is not one."""
        try:
            version, topic, broker_name, time_text, msg_id = (
                urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(" ")
            )
            deliver_at_ms = int(time_text)
        except (binascii.Error, ValueError):
            version = ""
        if version != _VERSION:
            raise InvalidMessageError(
                f"{text[:_SHOWN_MAX]!r} is not a recall handle; use the one of the SendResult of a"
                " scheduled message"
            )
        return cls(topic, broker_name, deliver_at_ms, msg_id)

    def text(self) -> str:
        """Return the handle as producers receive it."""
        return urlsafe_b64encode(
            " ".join(
                (_VERSION, self.topic, self.broker_name, str(self.deliver_at_ms), self.msg_id)
            ).encode()
        ).decode()
