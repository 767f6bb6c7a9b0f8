# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: counts what turns do with sends and ends of transactions, in C, and tells a listener the sums when it asks for them.

Per message it costs a few additions, per turn one look at each topic and queue that got something; the listener's counters are Python's,
and hear of all turns since they were looked at last by one call for each. Knows nothing of requests or records.

Invariant: what is counted in a turn is told once it is stored (`stored`), or never (`failed`); how long it took when that is known
(`settle`).
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


class HotTally:
    """What a topic got of one type of messages: in this turn, and since it was told last."""

    __slots__ = ("count", "message_type", "name", "puts", "size", "told_count", "told_puts", "told_size")

    def __init__(self, name: str, message_type: Any) -> None:
        self.name = name
        self.message_type = message_type
        self.count = self.size = self.puts = self.told_count = self.told_size = self.told_puts = 0


class HotQueue:
    """The puts of clients that a queue got in this turn; and those since they were told last, with how long they took together."""

    __slots__ = ("is_level", "puts", "queue_id", "size", "times", "told_puts", "told_size", "took_ms", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.is_level = topic == SCHEDULE_TOPIC
        self.puts = self.size = self.told_puts = self.told_size = self.times = self.took_ms = 0


class HotTurn:
    """The requests of a turn by their code, those that are one-way apart, and its puts by their queues."""

    __slots__ = ("batches", "begun_ms", "ends", "oneway_batches", "oneway_ends", "oneway_sends", "puts", "queues", "sends")

    def __init__(self) -> None:
        self.sends = self.batches = self.ends = self.oneway_sends = self.oneway_batches = self.oneway_ends = 0
        self.puts = 0
        self.begun_ms = 0
        self.queues: list[tuple[HotQueue, int]] = []


class HotCounts:
    """See above. `turn` is the one that is under way."""

    __slots__ = (
        "_answers",
        "_dirty",
        "_dirty_queues",
        "_listener",
        "_put_times",
        "_tallies",
        "_touched",
        "_touched_queues",
        "_waiting",
        "turn",
    )

    def __init__(self, listener: Any) -> None:
        self._listener = listener
        self._tallies: dict[tuple[str, Any], HotTally] = {}
        self._waiting: dict[tuple[bytes, int, bool], tuple[HotTally, HotQueue]] = {}
        self._touched: list[HotTally] = []
        self._touched_queues: list[HotQueue] = []
        self._dirty: list[HotTally] = []
        self._dirty_queues: list[HotQueue] = []
        self._put_times: dict[int, int] = {}  # puts by how long they took
        self._answers: dict[tuple[Any, Any, bool, int], int] = {}  # requests by codes, one-way or not, and time
        self.turn = HotTurn()

    def tally(self, name: str, message_type: Any) -> HotTally:
        """What counts the messages of a type that come into a topic, to keep."""
        tally = self._tallies.get((name, message_type))
        if tally is None:
            if len(self._tallies) >= TALLIES_MAX:
                self._tallies.clear()
            tally = self._tallies[name, message_type] = HotTally(name, message_type)
        return tally

    def waiting(self, topic: bytes, queue_id: int, message_type: Any) -> tuple[HotTally, HotQueue]:
        """What counts the messages of a type that wait in a queue."""
        found = self._waiting.get((topic, queue_id, message_type))
        if found is None:
            name = topic.decode()
            found = self._waiting[topic, queue_id, message_type] = self.tally(name, message_type), HotQueue(name, queue_id)
        return found

    def stored(self) -> None:
        """What was counted in the turn is stored."""
        tally: HotTally
        queue: HotQueue
        for tally in self._touched:
            if tally.told_puts == 0:
                self._dirty.append(tally)
            tally.told_count += tally.count
            tally.told_size += tally.size
            tally.told_puts += tally.puts
            self.turn.puts += tally.puts
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
        """Nothing of what was counted in the turn is stored; who asked for it is answered with that code."""
        tally: HotTally
        queue: HotQueue
        for tally in self._touched:
            tally.count = tally.size = tally.puts = 0
        for queue in self._touched_queues:
            queue.puts = queue.size = 0
        self._touched.clear()
        self._touched_queues.clear()
        self.turn.puts = 0
        _note_answers(self, self.turn, response, now_ms - self.turn.begun_ms)
        self.turn = HotTurn()

    def settle(self, now_ms: cython.longlong) -> None:
        """What was stored in the turn is answered now."""
        queue: HotQueue
        took_ms: cython.longlong = max(now_ms - self.turn.begun_ms, 0)
        for queue in self._touched_queues:
            _note_queue(self, queue, queue.puts, took_ms)
            queue.puts = 0
        self._touched_queues.clear()
        _note_turn(self, self.turn, SUCCESS, took_ms)
        _clear(self.turn)

    def put_off(self) -> HotTurn:
        """The turn, to be settled by `settle_late` when what was stored in it is answered; another one begins."""
        queue: HotQueue
        turn: HotTurn = self.turn
        for queue in self._touched_queues:
            turn.queues.append((queue, queue.puts))
            queue.puts = 0
        self._touched_queues.clear()
        self.turn = HotTurn()
        return turn

    def settle_late(self, turn: HotTurn, response: Any, now_ms: cython.longlong) -> None:
        """What was stored in an earlier turn is answered now, with that code."""
        took_ms: cython.longlong = max(now_ms - turn.begun_ms, 0)
        for queue, puts in turn.queues:
            _note_queue(self, queue, puts, took_ms)
        _note_turn(self, turn, response, took_ms)

    def collect(self) -> None:
        """Tell the listener what was counted since it was told last."""
        tally: HotTally
        queue: HotQueue
        listener = self._listener
        dirty, self._dirty = self._dirty, []
        for tally in dirty:
            listener.stored(tally.name, tally.told_count, tally.told_size, tally.message_type, tally.told_puts)
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
def count(counts: HotCounts, tally: HotTally, messages: cython.longlong, size: cython.longlong) -> cython.int:
    """Count one put of so many messages into a topic."""
    if tally.puts == 0:
        counts._touched.append(tally)
    tally.puts += 1
    tally.count += messages
    tally.size += size
    return 0


@cython.cfunc
def pending_count(counts: HotCounts) -> cython.longlong:
    """How many messages were counted in the turn that are not stored yet."""
    tally: HotTally
    messages: cython.longlong = 0
    for tally in counts._touched:
        messages += tally.count
    return messages


@cython.cfunc
def count_send(
    counts: HotCounts,
    tally: HotTally,
    queue: HotQueue,
    messages: cython.longlong,
    size: cython.longlong,
    is_batch: cython.bint,
    is_oneway: cython.bint,
) -> cython.int:
    """Count one request of a client to send something, and its put into a topic and a queue."""
    turn: HotTurn = counts.turn
    count(counts, tally, messages, size)
    if queue.puts == 0:
        counts._touched_queues.append(queue)
    queue.puts += 1
    queue.size += size
    if is_batch:
        if is_oneway:
            turn.oneway_batches += 1
        else:
            turn.batches += 1
    elif is_oneway:
        turn.oneway_sends += 1
    else:
        turn.sends += 1
    return 0


@cython.cfunc
def _note_queue(counts: HotCounts, queue: HotQueue, puts: cython.longlong, took_ms: cython.longlong) -> cython.int:
    if queue.times == 0 and queue.told_puts == 0:
        counts._dirty_queues.append(queue)
    queue.times += puts
    queue.took_ms += puts * took_ms
    return 0


@cython.cfunc
def _note_turn(counts: HotCounts, turn: HotTurn, response: Any, took_ms: cython.longlong) -> cython.int:
    if turn.puts:
        counts._put_times[took_ms] = counts._put_times.get(took_ms, 0) + turn.puts
    return _note_answers(counts, turn, response, took_ms)


@cython.cfunc
def _note_answers(counts: HotCounts, turn: HotTurn, response: Any, took_ms: cython.longlong) -> cython.int:
    if turn.sends:
        _note(counts, SEND, response, False, took_ms, turn.sends)
    if turn.batches:
        _note(counts, SEND_BATCH, response, False, took_ms, turn.batches)
    if turn.ends:
        _note(counts, END_TRANSACTION, response, False, took_ms, turn.ends)
    if turn.oneway_sends:
        _note(counts, SEND, response, True, took_ms, turn.oneway_sends)
    if turn.oneway_batches:
        _note(counts, SEND_BATCH, response, True, took_ms, turn.oneway_batches)
    if turn.oneway_ends:
        _note(counts, END_TRANSACTION, response, True, took_ms, turn.oneway_ends)
    return 0


@cython.cfunc
def _note(
    counts: HotCounts, request: Any, response: Any, is_oneway: cython.bint, took_ms: cython.longlong, times: cython.longlong
) -> cython.int:
    key = (request, response, bool(is_oneway), took_ms)
    counts._answers[key] = counts._answers.get(key, 0) + times
    return 0


@cython.cfunc
def _clear(turn: HotTurn) -> cython.int:
    turn.sends = turn.batches = turn.ends = turn.oneway_sends = turn.oneway_batches = turn.oneway_ends = turn.puts = 0
    return 0
