"""Offsets of many queues, and what is done with them: pure arithmetic, no broker and no Spark.

An offset is that of the next message to read. Queues are named in JSON as `{"topic":{"broker":{"0":23}}}`, where -2 stands for the first
message and -1 for the end. Invariants: `advance` never passes what there is, takes exactly the limit when there is enough, and leaves no
queue behind for good; `split` and `bundle` hand out every offset exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from orbitmq.common.errors import ConfigurationError

EARLIEST: Final = -2
LATEST: Final = -1
_SHAPE: Final = '{"topic":{"broker":{"0":23}}}'
JsonOffsets = dict[str, dict[str, dict[str, int]]]


class QueueKey(NamedTuple):
    """A queue as users name it; the topic is without the namespace."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


Offsets = Mapping[QueueKey, int]


class Ends(NamedTuple):
    """Where a queue begins and ends."""

    first: int
    end: int


class QueueRange(NamedTuple):
    """Messages of a queue, from `begin` up to and without `end`."""

    queue: QueueKey
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of a queue that should be read and are not there; `end` is None when nobody knows how many."""

    queue: QueueKey
    begin: int
    end: int | None
    why: str

    def __str__(self) -> str:
        if self.end == self.begin + 1:
            return f"message {self.begin} of queue {self.queue} is lost: {self.why}"
        which = f"from {self.begin} on" if self.end is None else f"{self.begin} to {self.end - 1}"
        return f"messages {which} of queue {self.queue} are lost: {self.why}"


# -- JSON


def to_json(offsets: Offsets) -> JsonOffsets:
    """Always in the same order, so that equal offsets are equal texts."""
    found: JsonOffsets = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return found


def from_json(value: Any) -> dict[QueueKey, int]:
    """What `to_json` made; ValueError says what is wrong."""
    return {queue: _whole(number, str(queue)) for queue, number in _leaves(value)}


def parse(text: str, name: str, *, low: int) -> dict[QueueKey, int]:
    """What a user wrote into the option `name`; no number below `low`."""
    try:
        found = from_json(json.loads(text))
        for queue, number in found.items():
            if number < low:
                raise ValueError(f"{queue} has {number}, which is below {low}")
        if not found:
            raise ValueError("no queue is named")
    except ValueError as problem:
        raise ConfigurationError(f"option {name}={text!r}: {problem}; it is JSON of the form {_SHAPE}") from problem
    return found


def parse_queues(text: str, name: str) -> frozenset[QueueKey]:
    """The queues of `{"topic":{"broker":[0,1]}}`, as a user wrote it into the option `name`."""
    try:
        found = frozenset(_listed(json.loads(text)))
        if not found:
            raise ValueError("no queue is named")
    except ValueError as problem:
        raise ConfigurationError(f'option {name}={text!r}: {problem}; it is JSON of the form {{"topic":{{"broker":[0,1]}}}}') from problem
    return found


def _listed(value: Any) -> Iterable[QueueKey]:
    for topic, brokers in _object(value, "the whole").items():
        for broker, numbers in _object(brokers, topic).items():
            if not isinstance(numbers, list):
                raise ValueError(f"{topic}/{broker} has no list of queue ids")
            for number in numbers:
                yield QueueKey(topic, broker, _queue_id(str(number), f"{topic}/{broker}"))


def _leaves(value: Any) -> Iterable[tuple[QueueKey, Any]]:
    for topic, brokers in _object(value, "the whole").items():
        for broker, queues in _object(brokers, topic).items():
            for text, number in _object(queues, f"{topic}/{broker}").items():
                yield QueueKey(topic, broker, _queue_id(text, f"{topic}/{broker}")), number


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is no object")
    return value


def _queue_id(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{text!r} of {where} is no queue id")
    return int(text)


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{where} has {value!r}, which is no whole number")
    return value


# -- how far to read


def backlog(start: Offsets, latest: Offsets) -> int:
    """How many messages there are behind `start`."""
    return sum(max(latest[queue] - offset, 0) for queue, offset in start.items() if queue in latest)


def advance(start: Offsets, latest: Offsets, limit: int | None) -> dict[QueueKey, int]:
    """How far to read from `start`: to the end, or so that all queues together give `limit` messages, each by its share of the backlog.

    Queues without an end stay where they are, and so do those that end before their start. Each with a backlog gives at least one
    message, as long as the limit is not below their number; below it the longest backlogs go first.
    """
    waiting = {queue: latest[queue] - offset for queue, offset in start.items() if latest.get(queue, offset) > offset}
    total = sum(waiting.values())
    if limit is None or limit >= total:
        return {queue: offset + waiting.get(queue, 0) for queue, offset in start.items()}
    by_size = sorted(waiting, key=lambda queue: (-waiting[queue], queue))
    if limit <= len(waiting):
        chosen = frozenset(by_size[:limit])
        return {queue: offset + (queue in chosen) for queue, offset in start.items()}
    left, rest = limit - len(waiting), total - len(waiting)  # after one of each
    exact = {queue: (size - 1) * left for queue, size in waiting.items()}  # in parts of `rest`
    shares = {queue: 1 + part // rest for queue, part in exact.items()}
    missing = limit - sum(shares.values())
    for queue in sorted(waiting, key=lambda queue: (-(exact[queue] % rest), queue))[:missing]:
        shares[queue] += 1
    return {queue: offset + shares.get(queue, 0) for queue, offset in start.items()}


def is_enough(waiting: int, count_min: int | None, waited_ms: int, wait_ms_max: int) -> bool:
    """Whether a batch is worth it: there are messages enough, or some have waited long enough."""
    return waiting > 0 and (count_min is None or waiting >= count_min or waited_ms >= wait_ms_max)


# -- what to read


def ranges(start: Offsets, end: Offsets) -> list[QueueRange]:
    """What is between two offsets of each queue, where that is something; a queue that `start` does not know is read from nowhere."""
    found = (QueueRange(queue, start[queue], offset) for queue, offset in sorted(end.items()) if queue in start)
    return [each for each in found if each.size > 0]


def split(whole: Sequence[QueueRange], parts_min: int | None, size_max: int | None) -> list[QueueRange]:
    """The same in at least `parts_min` parts, as long as there are messages enough, and none larger than `size_max`."""
    total = sum(each.size for each in whole)
    parts_min = parts_min or 0
    found: list[QueueRange] = []
    for each in whole:
        parts = -(-each.size * parts_min // total) if parts_min > len(whole) else 1
        if size_max is not None:
            parts = max(parts, -(-each.size // size_max))
        parts = min(max(parts, 1), each.size)
        edges = [each.begin + each.size * number // parts for number in range(parts + 1)]
        found += [QueueRange(each.queue, low, high) for low, high in pairwise(edges)]
    return found


def bundle(parts: Sequence[QueueRange], parts_min: int | None, size_max: int) -> list[tuple[QueueRange, ...]]:
    """Small parts together, up to `size_max` messages: a task costs more than reading them. Never fewer than `parts_min`."""
    merges = len(parts) - (parts_min or 1)
    found: list[list[QueueRange]] = []
    room = 0
    for each in parts:
        if merges > 0 and found and each.size <= room:
            merges -= 1
        else:
            found.append([])
            room = size_max
        found[-1].append(each)
        room -= each.size
    return [tuple(each) for each in found]


# -- what is not there


def losses(start: Offsets, ends: Mapping[QueueKey, Ends], gone: Iterable[QueueKey] = ()) -> list[Loss]:
    """Which messages from `start` on cannot be read any more; `gone` are queues that exist no longer."""
    found = [Loss(queue, start[queue], None, "the queue does not exist any more") for queue in sorted(gone) if queue in start]
    for queue, offset in sorted(start.items()):
        if queue not in ends:
            continue
        first, end = ends[queue]
        if offset < first:
            found.append(deleted(queue, offset, first, first))
        elif offset > end:
            found.append(shortened(queue, end, offset))
    return found


def deleted(queue: QueueKey, begin: int, end: int, first: int) -> Loss:
    """A queue begins later than its reader."""
    return Loss(queue, begin, end, f"the broker has deleted what is before {first}")


def shortened(queue: QueueKey, end_now: int, end: int) -> Loss:
    """A queue ends before what was read of it, or was known of it."""
    return Loss(queue, end_now, end, f"the queue ends at {end_now} now, as after a broker's crash or when the topic was made anew")


def not_given(queue: QueueKey, begin: int, end: int) -> Loss:
    """A broker has places for messages, and leaves them out."""
    return Loss(queue, begin, end, "the broker passes over what it cannot read in its store; look at that with orbitmq store check")
