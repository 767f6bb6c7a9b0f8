"""The tables of a broker that follow an OrbitMQ master's: which there are, and how each takes over
the master's changes.

Wiring only; the rules are in `followed_tables`, and in the tables themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.delay.service import DelayService, TimerParts
from orbitmq.broker.metadata.metadata import BrokerMetadata
from orbitmq.broker.roles.delay_follower import DelayFollower
from orbitmq.broker.roles.followed_tables import FollowedTable, OwnTable, TableCopy, ValueCopy
from orbitmq.broker.roles.followed_topics import FollowedTopics
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies import metadata_rows as rows
from orbitmq.protocol.bodies.metadata_changes import (
    DELAY_OFFSETS,
    TIMER_CHECK_POINT,
    check_point_from_json,
    delay_offsets_from_json,
)
from orbitmq.protocol.bodies.nameserver import DataVersion

K = TypeVar("K")
R = TypeVar("R")

LogEnd = Callable[[], int]  # of the master, with the changes that are being applied
TakeOver = Callable[[list[R], list[K], DataVersion | None], Slices[None]]


def table_copies(
    log_end: LogEnd,
    *,
    metadata: BrokerMetadata,
    topics: FollowedTopics,
    delay: DelayService,
    progress: DelayFollower,
    locks: QueueLocks,
    monotonic_ms: Callable[[], int],
) -> list[FollowedTable]:
    """Return the copies of all tables; topics first, since the others are about them."""
    tables: list[FollowedTable] = [
        _topics(topics, log_end),
        _groups(metadata),
        _offsets(metadata),
        _modes(metadata),
        _filters(metadata),
        _locks(locks, monotonic_ms),
        ValueCopy(
            DELAY_OFFSETS,
            delay_offsets_from_json,
            lambda levels: progress.hold_levels(levels, log_end()),
        ),
    ]
    if delay.timed is not None:
        tables.append(_timer_metrics(delay.timed))
        tables.append(
            ValueCopy(
                TIMER_CHECK_POINT,
                check_point_from_json,
                lambda check: progress.hold_check_point(check, log_end()),
            )
        )
    return tables


def _topics(followed: FollowedTopics, log_end: LogEnd) -> FollowedTable:
    topics = followed.topics

    def take_over(
        put: list[rows.TopicRow], removed: list[str], version: DataVersion | None
    ) -> Slices[None]:
        final = version or topics.data_version
        return followed.take_over(put, removed, version=final, log_end=log_end())

    return TableCopy(
        OwnTable(
            codec=rows.TOPICS,
            changes=topics.changes,
            all_keys=lambda: list(topics.table),
            version=lambda: topics.data_version,
            take_over=take_over,
            may_be_empty=False,
        )
    )


def _groups(metadata: BrokerMetadata) -> FollowedTable:
    groups = metadata.groups

    def take_over(
        put: list[rows.GroupRow], removed: list[str], version: DataVersion | None
    ) -> Slices[None]:
        groups.take_over(put, removed, version=version or groups.data_version)
        yield from ()

    return TableCopy(
        OwnTable(
            codec=rows.GROUPS,
            changes=groups.changes,
            all_keys=lambda: groups.names,
            version=lambda: groups.data_version,
            take_over=take_over,
            may_be_empty=False,
        )
    )


def _offsets(metadata: BrokerMetadata) -> FollowedTable:
    offsets = metadata.offsets
    return TableCopy(
        OwnTable(
            codec=rows.OFFSETS,
            changes=offsets.changes,
            all_keys=lambda: list(offsets.keys),
            version=lambda: offsets.data_version,
            take_over=lambda put, removed, version: offsets.take_over_in_slices(
                put, removed, version=version
            ),
            may_be_empty=True,
        )
    )


def _modes(metadata: BrokerMetadata) -> FollowedTable:
    modes = metadata.modes
    return TableCopy(
        OwnTable(
            codec=rows.REQUEST_MODES,
            changes=modes.changes,
            all_keys=lambda: modes.keys,
            version=_unversioned,
            take_over=_at_once(modes.take_over),
            may_be_empty=True,
        )
    )


def _filters(metadata: BrokerMetadata) -> FollowedTable:
    filters = metadata.filters
    return TableCopy(
        OwnTable(
            codec=rows.FILTERS,
            changes=filters.changes,
            all_keys=lambda: filters.keys,
            version=_unversioned,
            take_over=lambda put, removed, _version: filters.take_over_in_slices(put, removed),
            may_be_empty=True,
        )
    )


def _locks(locks: QueueLocks, monotonic_ms: Callable[[], int]) -> FollowedTable:
    def take_over(put: list[rows.LockRow], removed: Iterable[rows.LockKey]) -> None:
        locks.take_over(put, removed, monotonic_ms())

    return TableCopy(
        OwnTable(
            codec=rows.LOCKS,
            changes=locks.changes,
            all_keys=lambda: list(locks.keys),
            version=_unversioned,
            take_over=_at_once(take_over),
            may_be_empty=True,
        )
    )


def _timer_metrics(timed: TimerParts) -> FollowedTable:
    metrics = timed.files.metrics

    def take_over(
        put: list[rows.TimingRow], removed: list[str], version: DataVersion | None
    ) -> Slices[None]:
        metrics.take_over(put, removed, version=version or metrics.data_version)
        yield from ()

    return TableCopy(
        OwnTable(
            codec=rows.TIMER_METRICS,
            changes=metrics.changes,
            all_keys=lambda: list(metrics.counts),
            version=lambda: metrics.data_version,
            take_over=take_over,
            may_be_empty=True,
        )
    )


def _unversioned() -> DataVersion | None:
    return None


def _at_once(apply: Callable[[list[R], list[K]], None]) -> TakeOver[R, K]:
    """Return the take-over of a table without a version that needs no slices."""
    return partial(_applied, apply)


def _applied(
    apply: Callable[[list[R], list[K]], None],
    put: list[R],
    removed: list[K],
    _version: DataVersion | None,
) -> Slices[None]:
    apply(put, removed)
    yield from ()
