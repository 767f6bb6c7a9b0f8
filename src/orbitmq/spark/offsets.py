"""Offsets of many queues and the arithmetic on them. Pure: no broker, no Spark.

An offset is that of the next message to read. The JSON form is `{"topic":{"broker":{"0":23}}}`,
where -2 means the earliest message and -1 the end of the queue.

Invariants: `advance` never goes past the end of a queue, uses up the limit if the backlog is large
enough, and starves no queue; `split` and `bundle` assign every offset exactly once.
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


class QueueName(NamedTuple):
    """A queue as users name it; the topic is without the namespace."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


Offsets = Mapping[QueueName, int]


class QueueBounds(NamedTuple):
    """The first offset of a queue and the offset after its last message."""

    first: int
    end: int


class QueueRange(NamedTuple):
    """The messages of a queue with offsets in [begin, end)."""

    queue: QueueName
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Messages of a queue that should be read but no longer exist; `end` is None if their number is
    unknown.
    """

    queue: QueueName
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
    """Return offsets in their JSON form, in a fixed order so that equal offsets give equal text."""
    found: JsonOffsets = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return found


def from_json(value: Any) -> dict[QueueName, int]:
    """Parse the output of `to_json`; raises ValueError if it is malformed."""
    return {queue: _whole(number, str(queue)) for queue, number in _leaves(value)}


def parse(text: str, name: str, *, low: int) -> dict[QueueName, int]:
    """Parse the offsets or times in option `name`; refuses numbers below `low`."""
    try:
        found = from_json(json.loads(text))
        for queue, number in found.items():
            if number < low:
                raise ValueError(f"{queue} has {number}, which is below {low}")
        if not found:
            raise ValueError("it names no queue")
    except ValueError as problem:
        raise ConfigurationError(
            f"option {name}={text!r}: {problem}; expected JSON of the form {_SHAPE}"
        ) from problem
    return found


def parse_queues(text: str, name: str) -> frozenset[QueueName]:
    """Parse option `name`, which lists queues as `{"topic":{"broker":[0,1]}}`."""
    try:
        found = frozenset(_listed(json.loads(text)))
        if not found:
            raise ValueError("it names no queue")
    except ValueError as problem:
        raise ConfigurationError(
            f"option {name}={text!r}: {problem}; expected JSON of the form"
            ' {"topic":{"broker":[0,1]}}'
        ) from problem
    return found


def _listed(value: Any) -> Iterable[QueueName]:
    for topic, brokers in _object(value, "the value").items():
        for broker, numbers in _object(brokers, topic).items():
            if not isinstance(numbers, list):
                raise ValueError(f"{topic}/{broker} is not a list of queue ids")
            for number in numbers:
                yield QueueName(topic, broker, _queue_id(str(number), f"{topic}/{broker}"))


def _leaves(value: Any) -> Iterable[tuple[QueueName, Any]]:
    for topic, brokers in _object(value, "the value").items():
        for broker, queues in _object(brokers, topic).items():
            for text, number in _object(queues, f"{topic}/{broker}").items():
                yield QueueName(topic, broker, _queue_id(text, f"{topic}/{broker}")), number


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def _queue_id(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{text!r} of {where} is not a queue id")
    return int(text)


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{where} has {value!r}, which is not a whole number")
    return value


# -- planning a batch


def backlog(start: Offsets, latest: Offsets) -> int:
    """Return the number of messages between `start` and `latest`."""
    return sum(max(latest[queue] - offset, 0) for queue, offset in start.items() if queue in latest)


def advance(start: Offsets, latest: Offsets, limit: int | None) -> dict[QueueName, int]:
    """Return how far to read from `start`: to `latest`, or so far that all queues together give
    `limit` messages, each in proportion to its backlog.

    A queue without a latest offset, or with one before its start, keeps its position. Every queue
    with a backlog gives at least one message unless the limit is below the number of such queues;
    then the longest backlogs go first.
    """
    pending = {
        queue: latest[queue] - offset
        for queue, offset in start.items()
        if latest.get(queue, offset) > offset
    }
    total = sum(pending.values())
    if limit is None or limit >= total:
        return {queue: offset + pending.get(queue, 0) for queue, offset in start.items()}
    by_size = sorted(pending, key=lambda queue: (-pending[queue], queue))
    if limit <= len(pending):
        chosen = frozenset(by_size[:limit])
        return {queue: offset + (queue in chosen) for queue, offset in start.items()}
    left, rest = limit - len(pending), total - len(pending)  # after one message of each queue
    exact = {queue: (size - 1) * left for queue, size in pending.items()}  # in units of 1/rest
    shares = {queue: 1 + part // rest for queue, part in exact.items()}
    missing = limit - sum(shares.values())
    for queue in sorted(pending, key=lambda queue: (-(exact[queue] % rest), queue))[:missing]:
        shares[queue] += 1
    return {queue: offset + shares.get(queue, 0) for queue, offset in start.items()}


def is_batch_due(pending: int, count_min: int | None, waited_ms: int, wait_ms_max: int) -> bool:
    """Return whether to start a batch: enough messages are pending, or some are and `wait_ms_max`
    has passed.
    """
    return pending > 0 and (count_min is None or pending >= count_min or waited_ms >= wait_ms_max)


# -- splitting it into tasks


def ranges(start: Offsets, end: Offsets) -> list[QueueRange]:
    """Return the non-empty ranges between two offsets of each queue; queues missing from `start`
    are left out.
    """
    found = (
        QueueRange(queue, start[queue], offset)
        for queue, offset in sorted(end.items())
        if queue in start
    )
    return [each for each in found if each.size > 0]


def split(
    whole: Sequence[QueueRange], parts_min: int | None, size_max: int | None
) -> list[QueueRange]:
    """Split ranges into at least `parts_min` parts, if there are enough messages, none larger than
    `size_max`.
    """
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


def bundle(
    parts: Sequence[QueueRange], parts_min: int | None, size_max: int
) -> list[tuple[QueueRange, ...]]:
    """Group small parts into bundles of up to `size_max` messages, since a task costs more than
    reading them. Returns at least `parts_min` bundles if there are as many parts.
    """
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


# -- lost messages


def losses(
    start: Offsets, bounds: Mapping[QueueName, QueueBounds], gone: Iterable[QueueName] = ()
) -> list[DataLoss]:
    """Return the messages from `start` on that can no longer be read; `gone` are queues that no
    longer exist.
    """
    found = [
        DataLoss(queue, start[queue], None, "the queue no longer exists")
        for queue in sorted(gone)
        if queue in start
    ]
    for queue, offset in sorted(start.items()):
        if queue not in bounds:
            continue
        first, end = bounds[queue]
        if offset < first:
            found.append(deleted(queue, offset, first, first))
        elif offset > end:
            found.append(truncated(queue, end, offset))
    return found


def deleted(queue: QueueName, begin: int, end: int, first: int) -> DataLoss:
    """Return the loss of messages that the broker deleted because they expired."""
    return DataLoss(queue, begin, end, f"the broker has deleted messages before {first}")


def truncated(queue: QueueName, end_now: int, end: int) -> DataLoss:
    """Return the loss of messages after the end of a queue that was longer before."""
    return DataLoss(
        queue,
        end_now,
        end,
        f"the queue now ends at {end_now}: the broker crashed or the topic was recreated",
    )


def skipped_by_broker(queue: QueueName, begin: int, end: int) -> DataLoss:
    """Return the loss of messages within the bounds of a queue that the broker does not return."""
    return DataLoss(
        queue,
        begin,
        end,
        "the broker skips records it cannot read; run orbitmq store check",
    )
