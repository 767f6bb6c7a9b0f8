"""Where a read begins and ends, as a user says it, in offsets of the queues that there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.offsets import EARLIEST, LATEST, Ends, Offsets, QueueKey
from orbitmq.spark.options import AtOffsets, AtTime, AtTimes, Edge, Place


def resolve(place: Place, ends: Mapping[QueueKey, Ends], cluster: Cluster, *, otherwise: Edge) -> dict[QueueKey, int]:
    """The offset that `place` means in each queue; a queue that it should name and does not is taken at `otherwise`."""
    match place:
        case Edge():
            return {queue: _at(place.value, found) for queue, found in ends.items()}
        case AtTime(time_ms):
            return cluster.at_times(dict.fromkeys(ends, time_ms))
        case AtTimes(times_ms):
            _check(times_ms, ends)
            found = cluster.at_times({queue: times_ms[queue] for queue in ends if queue in times_ms})
        case AtOffsets(offsets):
            _check(offsets, ends)
            found = {queue: _at(offset, ends[queue]) for queue, offset in offsets.items()}
    return {queue: found.get(queue, _at(otherwise.value, each)) for queue, each in ends.items()}


def _at(offset: int, ends: Ends) -> int:
    return ends.first if offset == EARLIEST else ends.end if offset == LATEST else offset


def _check(named: Iterable[QueueKey], ends: Mapping[QueueKey, Ends]) -> None:
    unknown = sorted(set(named).difference(ends))
    if unknown:
        known = ", ".join(map(str, sorted(ends))) or "none"
        raise ConfigurationError(f"an offset or a time is given for queue {unknown[0]}, which is not among those that are read: {known}")


def latest_queues(place: Place, queues: Iterable[QueueKey]) -> list[QueueKey]:
    """The queues of which `place` means the end."""
    if isinstance(place, AtOffsets):
        return [queue for queue in queues if place.offsets.get(queue) == LATEST]
    return list(queues) if place is Edge.LATEST else []


def inside(start: Offsets, ends: Mapping[QueueKey, Ends]) -> dict[QueueKey, int]:
    """The same offsets, moved to where messages are."""
    return {queue: min(max(offset, ends[queue].first), ends[queue].end) for queue, offset in start.items()}
