"""Kernel: which offset the next message of each queue gets, with a way back for a batch that the disk did not take.

Knows no files: whoever makes the table says how to find the next offset of a queue that was not written to yet. Topics are bytes, as
messages carry them.
Invariant: offsets are given without a gap; those given since the last `keep` can be taken back, all of them or none.
"""

from collections.abc import Callable, Iterator

import cython

from orbitmq.store.types import QueueKey, QueueOffset

NextOffset = Callable[[bytes, int], int]


class _Queue:
    """The next offset of one queue, and what it was when the batch began."""

    __slots__ = ("kept_offset", "next_offset")

    def __init__(self, offset: cython.longlong) -> None:
        self.next_offset = self.kept_offset = offset


class QueueOffsets:
    """The next offset of every queue; without anybody to ask, a queue that nobody wrote to is at 0."""

    __slots__ = ("_changed", "_find", "_queues")

    def __init__(self, find: NextOffset | None = None) -> None:
        self._find = find
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        self._changed: list[_Queue] = []  # by the batch that is open

    def __iter__(self) -> Iterator[tuple[QueueKey, QueueOffset]]:
        """Every queue that has given an offset, and the one it gives next."""
        for (topic, queue_id), offset in [(key, _next_offset(queue)) for key, queue in self._queues.items()]:
            if offset:
                yield QueueKey(topic.decode(), queue_id), QueueOffset(offset)

    def take(self, topic: bytes, queue_id: cython.int, count: cython.longlong = 1) -> cython.longlong:
        """The next offset of the queue; the one after it is `count` further."""
        key: tuple[bytes, int] = (topic, queue_id)
        queue: _Queue | None = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(0 if self._find is None else self._find(topic, queue_id))
        offset: cython.longlong = queue.next_offset
        if offset == queue.kept_offset:
            self._changed.append(queue)
        queue.next_offset = offset + count
        return offset

    def peek(self, topic: bytes, queue_id: cython.int) -> QueueOffset:
        """The next offset of the queue, which stays the next."""
        queue: _Queue | None = self._queues.get((topic, queue_id))
        if queue is None:
            return QueueOffset(0 if self._find is None else self._find(topic, queue_id))
        return QueueOffset(queue.next_offset)

    def keep(self) -> None:
        """The batch is written: its offsets are given for good."""
        queue: _Queue
        for queue in self._changed:
            queue.kept_offset = queue.next_offset
        self._changed.clear()

    def undo(self) -> None:
        """The batch is not written: its offsets are given again."""
        queue: _Queue
        for queue in self._changed:
            queue.next_offset = queue.kept_offset
        self._changed.clear()

    def restore(self, queue: QueueKey, offset: QueueOffset) -> None:
        """Make `offset` the next of that queue: what recovery found, or what a master says."""
        assert not self._changed, "a batch is open"
        self._queues[queue.topic.encode(), queue.queue_id] = _Queue(offset)

    def forget(self, topic: str) -> None:
        """Drop the queues of a topic that was deleted: created again, it begins at 0."""
        assert not self._changed, "a batch is open"
        raw = topic.encode()
        for key in [key for key in self._queues if key[0] == raw]:
            del self._queues[key]

    def clear(self) -> None:
        """Drop everything, before recovery fills the table anew."""
        self._queues.clear()
        self._changed.clear()


@cython.cfunc
def _next_offset(queue: _Queue) -> cython.longlong:
    return queue.next_offset
