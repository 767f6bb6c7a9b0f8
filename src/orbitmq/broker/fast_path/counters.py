# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: counts sends and ends of transactions per loop iteration, in C, and reports the sums to a
listener on request.

A message costs a few additions; an iteration costs one visit of each topic and queue that received
something. The listener's counters are Python objects: one call each covers all iterations since the
last collection. Knows nothing of requests or records.

Invariant: the counts of an iteration are reported once its messages are stored (`stored`), or never
(`failed`); latencies are reported when they are known (`settle`).
"""

from typing import Any

import cython

from orbitmq.common.topic_names import SCHEDULE_TOPIC
from orbitmq.message.message_type import MessageType
from orbitmq.protocol.codes import RequestCode, ResponseCode

SEND = cython.declare(object, RequestCode.SEND_MESSAGE_V2)
SEND_BATCH = cython.declare(object, RequestCode.SEND_BATCH_MESSAGE)
END_TRANSACTION = cython.declare(object, RequestCode.END_TRANSACTION)
NORMAL = cython.declare(object, MessageType.NORMAL)
FIFO = cython.declare(object, MessageType.FIFO)
SUCCESS = cython.declare(object, ResponseCode.SUCCESS)
TALLIES_MAX = 100_000


class SendTally:
    """Counts a topic's messages of one type: in this iteration, and since the last report."""

    def __init__(self, name: str, message_type: Any) -> None:
        self.name = name
        self.message_type = message_type
        self.count = self.size = self.puts = self.told_count = self.told_size = self.told_puts = 0


class FastQueue:
    """Counts the client puts into a queue: in this iteration, and, with their summed latency, since
    the last report.
    """

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.is_level = topic == SCHEDULE_TOPIC
        self.puts = self.size = self.told_puts = self.told_size = self.times = self.took_ms = 0


class IterationCounts:
    """The requests of one iteration by request code, one-way requests apart, and its puts by
    queue.
    """

    def __init__(self) -> None:
        self.sends = self.batches = self.ends = self.oneway_sends = self.oneway_batches = (
            self.oneway_ends
        ) = 0
        self.puts = 0
        self.begun_ms = 0
        self.queues: list[tuple[FastQueue, int]] = []


class SendCounters:
    """Counts sends and reports them to a listener. `iteration` has those of the current one."""

    def __init__(self, listener: Any) -> None:
        self._listener = listener
        self._tallies: dict[tuple[str, Any], SendTally] = {}
        self._deferred: dict[tuple[bytes, int, bool], tuple[SendTally, FastQueue]] = {}
        self._touched: list[SendTally] = []
        self._touched_queues: list[FastQueue] = []
        self._dirty: list[SendTally] = []
        self._dirty_queues: list[FastQueue] = []
        self._put_times: dict[int, int] = {}  # number of puts by latency
        self._answers: dict[
            tuple[Any, Any, bool, int], int
        ] = {}  # number of requests by codes, one-way or not, and latency
        self.iteration = IterationCounts()

    def tally(self, name: str, message_type: Any) -> SendTally:
        """Return the tally of a topic's messages of one type; callers may keep it."""
        tally = self._tallies.get((name, message_type))
        if tally is None:
            if len(self._tallies) >= TALLIES_MAX:
                self._tallies.clear()
            tally = self._tallies[name, message_type] = SendTally(name, message_type)
        return tally

    def deferred(
        self, topic: bytes, queue_id: int, message_type: Any
    ) -> tuple[SendTally, FastQueue]:
        """Return the counters of deferred messages of one type in a queue."""
        found = self._deferred.get((topic, queue_id, message_type))
        if found is None:
            name = topic.decode()
            found = self._deferred[topic, queue_id, message_type] = (
                self.tally(name, message_type),
                FastQueue(name, queue_id),
            )
        return found

    def stored(self) -> None:
        """Report that everything counted in this iteration is stored."""
        tally: SendTally
        queue: FastQueue
        for tally in self._touched:
            if tally.told_puts == 0:
                self._dirty.append(tally)
            tally.told_count += tally.count
            tally.told_size += tally.size
            tally.told_puts += tally.puts
            self.iteration.puts += tally.puts
            tally.count = tally.size = tally.puts = 0
        for queue in self._touched_queues:
            if queue.is_level:
                if queue.told_puts == 0 and queue.times == 0:
                    self._dirty_queues.append(queue)
                queue.told_puts += queue.puts
                queue.told_size += queue.size
            queue.size = 0
        self._touched.clear()

    def failed(self, response: Any, now_ms: cython.longlong) -> None:
        """Report that nothing counted in this iteration is stored; its requests get this response
        code.
        """
        tally: SendTally
        queue: FastQueue
        for tally in self._touched:
            tally.count = tally.size = tally.puts = 0
        for queue in self._touched_queues:
            queue.puts = queue.size = 0
        self._touched.clear()
        self._touched_queues.clear()
        self.iteration.puts = 0
        _note_answers(self, self.iteration, response, now_ms - self.iteration.begun_ms)
        self.iteration = IterationCounts()

    def settle(self, now_ms: cython.longlong) -> None:
        """Report that the iteration's stored messages are acknowledged now."""
        queue: FastQueue
        took_ms: cython.longlong = max(now_ms - self.iteration.begun_ms, 0)
        for queue in self._touched_queues:
            _note_queue(self, queue, queue.puts, took_ms)
            queue.puts = 0
        self._touched_queues.clear()
        _note_iteration(self, self.iteration, SUCCESS, took_ms)
        _clear(self.iteration)

    def put_off(self) -> IterationCounts:
        """Return the iteration, to be passed to `settle_late` when its messages are acknowledged,
        and begin another one.
        """
        queue: FastQueue
        iteration: IterationCounts = self.iteration
        for queue in self._touched_queues:
            iteration.queues.append((queue, queue.puts))
            queue.puts = 0
        self._touched_queues.clear()
        self.iteration = IterationCounts()
        return iteration

    def settle_late(
        self, iteration: IterationCounts, response: Any, now_ms: cython.longlong
    ) -> None:
        """Report that messages stored in an earlier iteration are acknowledged now, with this
        code.
        """
        took_ms: cython.longlong = max(now_ms - iteration.begun_ms, 0)
        for queue, puts in iteration.queues:
            _note_queue(self, queue, puts, took_ms)
        _note_iteration(self, iteration, response, took_ms)

    def collect(self) -> None:
        """Report everything counted since the last report to the listener."""
        tally: SendTally
        queue: FastQueue
        listener = self._listener
        dirty, self._dirty = self._dirty, []
        for tally in dirty:
            listener.stored(
                tally.name, tally.told_count, tally.told_size, tally.message_type, tally.told_puts
            )
            tally.told_count = tally.told_size = tally.told_puts = 0
        dirty_queues, self._dirty_queues = self._dirty_queues, []
        for queue in dirty_queues:
            if queue.times:
                listener.put_into_queue(queue.topic, queue.queue_id, queue.took_ms, queue.times)
            if queue.told_puts:
                listener.put_into_level(queue.queue_id, queue.told_puts, queue.told_size)
            queue.times = queue.took_ms = queue.told_puts = queue.told_size = 0
        put_times, self._put_times = self._put_times, {}
        for took_ms, puts in put_times.items():
            listener.put_took(took_ms, puts)
        answers, self._answers = self._answers, {}
        for (request, response, is_oneway, took_ms), times in answers.items():
            listener.answered(request, response, took_ms, is_oneway, times)


@cython.cfunc
def count(
    counts: SendCounters, tally: SendTally, messages: cython.longlong, size: cython.longlong
) -> cython.int:
    """Count one put of this many messages into a topic."""
    if tally.puts == 0:
        counts._touched.append(tally)
    tally.puts += 1
    tally.count += messages
    tally.size += size
    return 0


@cython.cfunc
def pending_count(counts: SendCounters) -> cython.longlong:
    """Return the number of messages counted in this iteration that are not stored yet."""
    tally: SendTally
    messages: cython.longlong = 0
    for tally in counts._touched:
        messages += tally.count
    return messages


@cython.cfunc
def count_send(
    counts: SendCounters,
    tally: SendTally,
    queue: FastQueue,
    messages: cython.longlong,
    size: cython.longlong,
    is_batch: cython.bint,
    is_oneway: cython.bint,
) -> cython.int:
    """Count one send request of a client, and its put into a topic and a queue."""
    iteration: IterationCounts = counts.iteration
    count(counts, tally, messages, size)
    if queue.puts == 0:
        counts._touched_queues.append(queue)
    queue.puts += 1
    queue.size += size
    if is_batch:
        if is_oneway:
            iteration.oneway_batches += 1
        else:
            iteration.batches += 1
    elif is_oneway:
        iteration.oneway_sends += 1
    else:
        iteration.sends += 1
    return 0


@cython.cfunc
def _note_queue(
    counts: SendCounters, queue: FastQueue, puts: cython.longlong, took_ms: cython.longlong
) -> cython.int:
    if queue.times == 0 and queue.told_puts == 0:
        counts._dirty_queues.append(queue)
    queue.times += puts
    queue.took_ms += puts * took_ms
    return 0


@cython.cfunc
def _note_iteration(
    counts: SendCounters, iteration: IterationCounts, response: Any, took_ms: cython.longlong
) -> cython.int:
    if iteration.puts:
        counts._put_times[took_ms] = counts._put_times.get(took_ms, 0) + iteration.puts
    return _note_answers(counts, iteration, response, took_ms)


@cython.cfunc
def _note_answers(
    counts: SendCounters, iteration: IterationCounts, response: Any, took_ms: cython.longlong
) -> cython.int:
    if iteration.sends:
        _note(counts, SEND, response, False, took_ms, iteration.sends)
    if iteration.batches:
        _note(counts, SEND_BATCH, response, False, took_ms, iteration.batches)
    if iteration.ends:
        _note(counts, END_TRANSACTION, response, False, took_ms, iteration.ends)
    if iteration.oneway_sends:
        _note(counts, SEND, response, True, took_ms, iteration.oneway_sends)
    if iteration.oneway_batches:
        _note(counts, SEND_BATCH, response, True, took_ms, iteration.oneway_batches)
    if iteration.oneway_ends:
        _note(counts, END_TRANSACTION, response, True, took_ms, iteration.oneway_ends)
    return 0


@cython.cfunc
def _note(
    counts: SendCounters,
    request: Any,
    response: Any,
    is_oneway: cython.bint,
    took_ms: cython.longlong,
    times: cython.longlong,
) -> cython.int:
    key = (request, response, bool(is_oneway), took_ms)
    counts._answers[key] = counts._answers.get(key, 0) + times
    return 0


@cython.cfunc
def _clear(iteration: IterationCounts) -> cython.int:
    iteration.sends = iteration.batches = iteration.ends = iteration.oneway_sends = (
        iteration.oneway_batches
    ) = iteration.oneway_ends = iteration.puts = 0
    return 0
