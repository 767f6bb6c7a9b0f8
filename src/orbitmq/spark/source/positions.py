"""Resolves the positions at which a read starts and ends to offsets of existing queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.cluster import ClusterClient
from orbitmq.spark.offsets import EARLIEST, LATEST, Offsets, QueueBounds, QueueName
from orbitmq.spark.options import (
    EdgePosition,
    OffsetPerQueue,
    ReadPosition,
    TimestampPerQueue,
    TimestampPosition,
)


def resolve(
    position: ReadPosition,
    bounds: Mapping[QueueName, QueueBounds],
    cluster: ClusterClient,
    *,
    otherwise: EdgePosition,
) -> dict[QueueName, int]:
    """Return the offset that `position` means in each queue; queues it does not name use
    `otherwise`.
    """
    match position:
        case EdgePosition():
            return {queue: _at(position.value, found) for queue, found in bounds.items()}
        case TimestampPosition(time_ms):
            return cluster.offsets_at_times(dict.fromkeys(bounds, time_ms))
        case TimestampPerQueue(times_ms):
            _check(times_ms, bounds)
            found = cluster.offsets_at_times(
                {queue: times_ms[queue] for queue in bounds if queue in times_ms}
            )
        case OffsetPerQueue(offsets):
            _check(offsets, bounds)
            found = {queue: _at(offset, bounds[queue]) for queue, offset in offsets.items()}
    return {queue: found.get(queue, _at(otherwise.value, each)) for queue, each in bounds.items()}


def _at(offset: int, bounds: QueueBounds) -> int:
    return bounds.first if offset == EARLIEST else bounds.end if offset == LATEST else offset


def _check(named: Iterable[QueueName], bounds: Mapping[QueueName, QueueBounds]) -> None:
    """Refuse offsets or times for queues that are not read."""
    unknown = sorted(set(named).difference(bounds))
    if unknown:
        known = ", ".join(map(str, sorted(bounds))) or "none"
        raise ConfigurationError(
            f"an offset or a time is given for queue {unknown[0]}, which is not selected; selected"
            f" queues: {known}"
        )


def latest_queues(position: ReadPosition, queues: Iterable[QueueName]) -> list[QueueName]:
    """Return the queues that `position` places at their end."""
    if isinstance(position, OffsetPerQueue):
        return [queue for queue in queues if position.offsets.get(queue) == LATEST]
    return list(queues) if position is EdgePosition.LATEST else []


def clamp(start: Offsets, bounds: Mapping[QueueName, QueueBounds]) -> dict[QueueName, int]:
    """Move offsets into the bounds of their queues."""
    return {
        queue: min(max(offset, bounds[queue].first), bounds[queue].end)
        for queue, offset in start.items()
    }
