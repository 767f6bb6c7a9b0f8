"""GET_METADATA_CHANGES: a slave follows the tables of this broker.

The request has the position up to which the slave has each table; the response has what changed
after it (`common.change_log`), in pages of a bounded size: a slave asks again while there is more.
Positions are valid within one run of the broker, which `source` identifies; for others the
tables are returned whole.

A request without changes costs a comparison per table. Rows are collected in the first slice and
encoded in slices; a row that changes meanwhile has a later number. Invariant: a response never has
a higher number than the rows in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.delay.service import DelayService
from orbitmq.broker.metadata.metadata import BrokerMetadata
from orbitmq.common.change_log import ChangeLog, Position
from orbitmq.common.clock import Clock
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies import metadata_rows as rows
from orbitmq.protocol.bodies.consumer_filters import FilterData
from orbitmq.protocol.bodies.metadata_changes import (
    DELAY_OFFSETS,
    TIMER_CHECK_POINT,
    NumberedValue,
    TableCodec,
    TablePage,
    check_point_to_json,
    delay_offsets_to_json,
    encode_changes,
    read_position,
)
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.metadata_changes import (
    POSITION_FIELDS,
    GetMetadataChangesRequestHeader,
    GetMetadataChangesResponseHeader,
)
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.message_store import MessageStore

UNITS_MAX: Final = 1_000  # of rows per response; some 200 bytes each

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class _Room:
    """What is left of a response; `has_more` if that is not enough."""

    __slots__ = ("has_more", "units")

    def __init__(self) -> None:
        self.units = UNITS_MAX
        self.has_more = False


class _Table(Protocol):
    """A table that slaves follow."""

    @property
    def name(self) -> str: ...

    def changes_since(self, position: Position, room: _Room) -> dict[str, Any] | None:
        """Return what changed after a position, as JSON members; None if there is no room."""
        ...


class _FollowedTable(Generic[K, R]):
    """A table with a change log. `row` returns None for a row that does not exist."""

    def __init__(
        self,
        codec: TableCodec[K, R],
        changes: ChangeLog[K],
        row: Callable[[K], R | None],
        version: Callable[[], DataVersion | None],
    ) -> None:
        self._codec = codec
        self._changes = changes
        self._row = row
        self._version = version

    @property
    def name(self) -> str:
        return self._codec.name

    def changes_since(self, position: Position, room: _Room) -> dict[str, Any] | None:
        if room.units <= 0 and position.number != self._changes.number:
            room.has_more = True
            return None
        found: list[R] = []
        removed: list[K] = []
        changed = self._changes.since(position, room.units)
        reached = self._changes.number
        for key, last_change in changed.keys:
            row, reached = self._row(key), last_change
            if row is None:
                removed.append(key)
            else:
                found.append(row)
            room.units -= 1 if row is None else self._codec.units(row)
            if room.units <= 0:
                break
        has_more = reached < self._changes.number
        room.has_more = room.has_more or has_more
        return self._codec.page_to_json(
            TablePage(
                number=reached,
                rows=found,
                removed=removed,
                whole_begun=self._changes.number if changed.is_whole else 0,
                has_more=has_more,
                version=self._version(),
            )
        )


class MetadataChangesProcessor:
    """Serves GET_METADATA_CHANGES."""

    def __init__(
        self,
        *,
        metadata: BrokerMetadata,
        delay: DelayService,
        locks: QueueLocks,
        store: MessageStore,
        clock: Clock,
        random: Random,
    ) -> None:
        self._delay = delay
        self._store = store
        self._source = f"{clock.now_ms():x}-{random.getrandbits(64):x}"
        self._tables = _followed_tables(metadata, delay, locks, clock.monotonic_ms)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_METADATA_CHANGES: self.get_changes}

    def get_changes(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Return what changed in each table after the slave's position."""
        header = GetMetadataChangesRequestHeader.from_fields(request.ext_fields)
        positions = _positions(header) if header.source == self._source else {}
        room = _Room()
        changes: dict[str, Any] = {}
        for table in self._tables:
            members = table.changes_since(positions.get(table.name, Position()), room)
            if members is not None:
                changes[table.name] = members
        changes |= self._progress(positions)
        response_header = GetMetadataChangesResponseHeader(
            source=self._source, log_end=self._store.log.end_offset, has_more=room.has_more
        )
        return request.reply(
            ResponseCode.SUCCESS,
            header=response_header,
            body=(yield from encode_changes(changes)),
        )

    def _progress(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        """Return the progress of scheduled delivery, without a part that the slave has."""
        number = self._delay.levels.progress.changes
        is_known = positions.get(DELAY_OFFSETS) == Position(number)
        levels = NumberedValue(number, None if is_known else self._delay.levels.content())
        members = {DELAY_OFFSETS: delay_offsets_to_json(levels)}
        if self._delay.timed is not None:
            check = self._delay.timed.files.check
            number = check.version_counter + 1  # a new one has 0, which stands for none
            is_known = positions.get(TIMER_CHECK_POINT) == Position(number)
            members[TIMER_CHECK_POINT] = check_point_to_json(
                NumberedValue(number, None if is_known else check.encode())
            )
        return members


def _positions(header: GetMetadataChangesRequestHeader) -> dict[str, Position]:
    """Return the slave's positions by the names of the tables."""
    return {
        table: read_position(getattr(header, field)) for table, field in POSITION_FIELDS.items()
    }


def _unversioned() -> DataVersion | None:
    return None


def _followed_tables(
    metadata: BrokerMetadata,
    delay: DelayService,
    locks: QueueLocks,
    monotonic_ms: Callable[[], int],
) -> list[_Table]:
    topics, groups, offsets = metadata.topics, metadata.groups, metadata.offsets
    modes, filters = metadata.modes, metadata.filters

    def topic_row(name: str) -> rows.TopicRow | None:
        config = topics.find(name)
        return None if config is None else rows.TopicRow(config, topics.begin_of(name))

    def filter_row(key: rows.GroupTopic) -> FilterData | None:
        found = filters.find(*key)
        return None if found is None else found.data

    tables: list[_Table] = [
        _FollowedTable(rows.TOPICS, topics.changes, topic_row, lambda: topics.data_version),
        _FollowedTable(rows.GROUPS, groups.changes, groups.row, lambda: groups.data_version),
        _FollowedTable(rows.OFFSETS, offsets.changes, offsets.row, lambda: offsets.data_version),
        _FollowedTable(
            rows.REQUEST_MODES, modes.changes, lambda key: modes.find(*key), _unversioned
        ),
        _FollowedTable(rows.FILTERS, filters.changes, filter_row, _unversioned),
        _FollowedTable(
            rows.LOCKS, locks.changes, lambda key: locks.row(key, monotonic_ms()), _unversioned
        ),
    ]
    if delay.timed is not None:
        metrics = delay.timed.files.metrics
        tables.append(
            _FollowedTable(
                rows.TIMER_METRICS, metrics.changes, metrics.row, lambda: metrics.data_version
            )
        )
    return tables
