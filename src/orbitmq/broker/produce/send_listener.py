"""The interface of statistics and metrics to everything that stores messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orbitmq.message.message_type import MessageType


class ReplyListener(Protocol):
    """Is notified of replies that leave after the loop iteration of their request."""

    def monotonic_ms(self) -> int: ...

    def answered(self, request: int, response: int, took_ms: int) -> None: ...


class SendListener(ReplyListener, Protocol):
    """Counts sends and their latencies.

    `collectors` are called before the figures are read: they hand over what they counted by
    themselves.
    """

    @property
    def collectors(self) -> list[Callable[[], object]]: ...

    def stored(
        self,
        topic: str,
        count: int,
        size: int,
        message_type: MessageType = MessageType.NORMAL,
        puts: int = 1,
    ) -> None:
        """Count messages stored in a topic, `size` bytes in all, by `puts` writes."""
        ...

    def put_took(self, latency_ms: int, puts: int = 1) -> None:
        """Count the latency of each of `puts` writes, until its reply could be sent."""
        ...

    def put_into_queue(self, topic: str, queue_id: int, took_ms: int, puts: int = 1) -> None:
        """Count the latency of `puts` writes to a queue, summed up."""
        ...

    def put_into_level(self, queue_id: int, count: int, size: int) -> None:
        """Count messages, `size` bytes in all, that are deferred by the delay level of a queue."""
        ...

    def put_failed(self, latency_ms: int, puts: int = 1) -> None:
        """Count writes that stored nothing."""
        ...

    def refused(self, cause: str, count: int = 1) -> None:
        """Count sends that were refused because of the broker's state."""
        ...

    def dead_letter(self, topic: str, group: str) -> None:
        """Count a message of a topic that became a dead letter of a group."""
        ...
