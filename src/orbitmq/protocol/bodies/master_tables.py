"""The tables of any master, Apache's included, as a slave reads them: the responses to
GET_ALL_TOPIC_CONFIG, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GET_ALL_CONSUMER_OFFSET,
GET_ALL_DELAY_OFFSET, GET_ALL_MESSAGE_REQUEST_MODE and GET_TIMER_METRICS, decoded in slices.

Values only. Unlike the decoders of files, these fail closed: a response without its table is
malformed, not empty, so that a slave never takes it for a master that has nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import SliceBudget, Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.delay import DelayOffsets, TimingCount
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.metadata_rows import GroupRow, OffsetsRow, TimingRow
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig, as_object, int_map, integer
from orbitmq.protocol.bodies.request_modes import RequestMode

T = TypeVar("T")

_INT64: Final = 1 << 63
_QUEUES_PER_UNIT: Final = 8


class MasterTopics(NamedTuple):
    """Topics of a master, all or a page of them, and the version of the whole table."""

    topics: list[TopicConfig]
    version: DataVersion


class MasterGroups(NamedTuple):
    """Groups of a master, all or a page of them, and the version of the whole table."""

    groups: list[GroupRow]
    version: DataVersion


class MasterOffsets(NamedTuple):
    """Consumer offsets of a master; 4.9 has no version of them."""

    offsets: list[OffsetsRow]
    version: DataVersion | None


class MasterTiming(NamedTuple):
    """The counts of a master's pending timed messages."""

    counts: list[TimingRow]
    version: DataVersion


def version_text(version: DataVersion | None) -> str:
    """Return a version as the request for the next page of a table has it; empty for the first."""
    return "" if version is None else fastjson.dumps(version.to_json()).decode()


def decode_topics(body: bytes) -> Slices[MasterTopics]:
    """Decode the response to GET_ALL_TOPIC_CONFIG."""
    members = yield from _members(body)
    topics = yield from _rows(members, "topicConfigTable", TopicConfig.from_json)
    return MasterTopics(topics, _version(members))


def decode_groups(body: bytes) -> Slices[MasterGroups]:
    """Decode the response to GET_ALL_SUBSCRIPTIONGROUP_CONFIG; 4.9 forbids no topics."""
    members = yield from _members(body)
    found = as_object(members.get("forbiddenTable") or {}, "forbiddenTable")
    forbidden: dict[str, dict[str, int]] = {}
    for group, value in found.items():
        bits = as_object(value, "forbiddenTable")
        forbidden[group] = {topic: integer(bits, topic, 0) for topic in bits}

    def read(value: Any, name: str) -> GroupRow:
        config = GroupConfig.from_json(value, name)
        return GroupRow(config.name, config, forbidden.pop(config.name, {}))

    groups = yield from _rows(members, "subscriptionGroupTable", read, _group_units)
    alone = [GroupRow(group, None, topics) for group, topics in forbidden.items() if topics]
    return MasterGroups(groups + alone, _version(members))


def decode_offsets(body: bytes) -> Slices[MasterOffsets]:
    """Decode the response to GET_ALL_CONSUMER_OFFSET."""
    members = yield from _members(body)
    offsets = yield from _rows(members, "offsetTable", _offsets_row, _offsets_units)
    return MasterOffsets(offsets, _version_if_any(members))


def decode_delay_offsets(body: bytes) -> DelayOffsets:
    """Decode the response to GET_ALL_DELAY_OFFSET, which is small."""
    members = as_object(fastjson.loads(body), "a master's delay offsets")
    table = as_object(members.get("offsetTable"), "offsetTable")
    return DelayOffsets(int_map(table, int), _version_if_any(members))


def decode_request_modes(body: bytes) -> Slices[list[RequestMode]]:
    """Decode the response to GET_ALL_MESSAGE_REQUEST_MODE."""
    members = yield from _members(body)

    def read(value: Any, topic: str) -> list[RequestMode]:
        groups = as_object(value, "messageRequestModeMap")
        return [RequestMode.from_json(mode, topic, group) for group, mode in groups.items()]

    topics = yield from _rows(members, "messageRequestModeMap", read, lambda modes: 1 + len(modes))
    return [mode for modes in topics for mode in modes]


def decode_timing(body: bytes) -> Slices[MasterTiming]:
    """Decode the response to GET_TIMER_METRICS."""
    members = yield from _members(body)
    counts = yield from _rows(members, "timingCount", _timing_row)
    return MasterTiming(counts, _version(members))


def _members(body: bytes) -> Slices[Mapping[str, Any]]:
    return as_object((yield from fastjson.loads_in_slices(body)), "a master's table")


def _rows(
    members: Mapping[str, Any],
    name: str,
    read: Callable[[Any, str], T],
    units: Callable[[T], int] = lambda _row: 1,
) -> Slices[list[T]]:
    rows: list[T] = []
    budget = SliceBudget()
    table: Iterable[tuple[str, Any]] = as_object(members.get(name), name).items()
    for key, value in table:
        row = read(value, key)
        rows.append(row)
        if budget.spend(units(row)):
            yield
    return rows


def _version_if_any(members: Mapping[str, Any]) -> DataVersion | None:
    found = members.get("dataVersion")
    return None if found is None else DataVersion.from_json(found)


def _version(members: Mapping[str, Any]) -> DataVersion:
    version = _version_if_any(members)
    if version is None:
        raise ProtocolError("a master's table has no dataVersion")
    return version


def _group_units(row: GroupRow) -> int:
    return 1 if row.config is None else row.config.units


def _offsets_row(value: Any, key: str) -> OffsetsRow:
    return OffsetsRow(key, int_map(value, int))


def _offsets_units(row: OffsetsRow) -> int:
    return 1 + len(row.offsets) // _QUEUES_PER_UNIT


def _timing_row(value: Any, topic: str) -> TimingRow:
    members = as_object(value, "timingCount")
    return TimingRow(
        topic,
        TimingCount(integer(members, "count", 0, _INT64), integer(members, "timeStamp", 0, _INT64)),
    )
