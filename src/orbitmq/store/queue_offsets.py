# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: assigns the next offset of each queue, with a rollback for a batch that could not be
written.

Knows no files: its owner provides the lookup of the next offset of a queue that was not written to
yet. Topics are bytes, as in messages. Invariant: offsets have no gap; those assigned since the last
`keep` can be rolled back, all or none.
"""

from collections.abc import Callable, Iterator

import cython

from orbitmq.store.types import QueueKey, QueueOffset

NextOffset = Callable[[bytes, int], int]


class _Queue:
    """The next offset of one queue, now and when the batch began."""

    def __init__(self, offset: cython.longlong) -> None:
        self.next_offset = self.kept_offset = offset


class QueueOffsets:
    """The next offset of every queue; without a lookup, unknown queues start at 0."""

    def __init__(self, find: NextOffset | None = None) -> None:
        self._find = find
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        self._changed: list[_Queue] = []  # by the open batch

    def __iter__(self) -> Iterator[tuple[QueueKey, QueueOffset]]:
        """Iterate over the queues that have assigned an offset, and their next one."""
        for (topic, queue_id), offset in [
            (key, _next_offset(queue)) for key, queue in self._queues.items()
        ]:
            if offset:
                yield QueueKey(topic.decode(), queue_id), QueueOffset(offset)

    def take(
        self, topic: bytes, queue_id: cython.int, count: cython.longlong = 1
    ) -> cython.longlong:
        """Assign the queue's next `count` offsets; return the first."""
        key: tuple[bytes, int] = (topic, queue_id)
        queue: _Queue | None = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(
                0 if self._find is None else self._find(topic, queue_id)
            )
        offset: cython.longlong = queue.next_offset
        if offset == queue.kept_offset:
            self._changed.append(queue)
        queue.next_offset = offset + count
        return offset

    def peek(self, topic: bytes, queue_id: cython.int) -> QueueOffset:
        """Return the queue's next offset without assigning it."""
        queue: _Queue | None = self._queues.get((topic, queue_id))
        if queue is None:
            return QueueOffset(0 if self._find is None else self._find(topic, queue_id))
        return QueueOffset(queue.next_offset)

    def keep(self) -> None:
        """Make the offsets of the batch final: it is written."""
        queue: _Queue
        for queue in self._changed:
            queue.kept_offset = queue.next_offset
        self._changed.clear()

    def undo(self) -> None:
        """Roll back the offsets of the batch: it was not written."""
        queue: _Queue
        for queue in self._changed:
            queue.next_offset = queue.kept_offset
        self._changed.clear()

    def restore(self, queue: QueueKey, offset: QueueOffset) -> None:
        """Set the queue's next offset, as found by recovery or sent by a master."""
        assert not self._changed, "a batch is open"
        self._queues[queue.topic.encode(), queue.queue_id] = _Queue(offset)

    def forget(self, topic: str) -> None:
        """Drop the queues of a deleted topic: created again, it begins at 0."""
        assert not self._changed, "a batch is open"
        raw = topic.encode()
        for key in [key for key in self._queues if key[0] == raw]:
            del self._queues[key]

    def clear(self) -> None:
        """Drop everything, before recovery rebuilds the table."""
        self._queues.clear()
        self._changed.clear()


@cython.cfunc
def _next_offset(queue: _Queue) -> cython.longlong:
    return queue.next_offset
