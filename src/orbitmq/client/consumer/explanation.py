"""Reports why each queue of a consumer progresses or not, and why a consumer has no queues."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.protocol.bodies.clients import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """The state of one queue. Unknown offsets are None; `behind` is the number of unfinished
    messages.
    """

    queue: MessageQueue
    why: str
    next_offset: int | None
    committed_offset: int | None
    broker_end: int | None
    cached_count: int
    last_read_s_ago: float
    last_finished_s_ago: float | None

    @property
    def behind(self) -> int | None:
        """The number of messages not yet finished, if known."""
        if self.broker_end is None or self.committed_offset is None:
            return None
        return max(self.broker_end - self.committed_offset, 0)

    def __str__(self) -> str:
        behind = "unknown" if self.behind is None else str(self.behind)
        return (
            f"{self.queue.topic}/{self.queue.broker_name}/{self.queue.queue_id}: {self.why}"
            f" (behind: {behind}, cached: {self.cached_count})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReport:
    """The state of a consumer; `notes` cover what does not concern a single queue."""

    group: str
    client_id: str
    queues: tuple[QueueReport, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"group {self.group}, client {self.client_id}, {len(self.queues)} queues"]
        return "\n".join(
            [
                *lines,
                *(f"  {queue}" for queue in self.queues),
                *(f"  note: {note}" for note in self.notes),
            ]
        )
