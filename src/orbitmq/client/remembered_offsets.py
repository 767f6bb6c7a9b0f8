"""Offsets by queue, as a consumer remembers them. Pure."""

from __future__ import annotations

from orbitmq.protocol.bodies.clients import MessageQueue


class RememberedOffsets:
    """See above; they go back only when that is meant."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        known = self._offsets.get(queue)
        if known is None or may_go_back or offset > known:
            self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
