"""The rows of a broker's tables as a slave reads them from its master, in the response to
GET_METADATA_CHANGES (`metadata_changes`).

Values and their JSON. Reading is strict about names: a row without its key is malformed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.consumer_filters import FilterData
from orbitmq.protocol.bodies.delay import TimingCount
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.metadata_changes import TableCodec
from orbitmq.protocol.bodies.nameserver import TopicConfig, as_object, int_map, integer, text
from orbitmq.protocol.bodies.request_modes import RequestMode

_INT64: Final = 1 << 63
_QUEUES_PER_UNIT: Final = 8
_ATTRIBUTES_PER_UNIT: Final = 10
_CHARACTERS_PER_UNIT: Final = 200

GroupTopic = tuple[str, str]  # topic, group


class TopicRow(NamedTuple):
    """A topic, and the log offset where its present life begins."""

    config: TopicConfig
    begin: int


class GroupRow(NamedTuple):
    """A group and the bits that are forbidden to it by topic; `config` is None if only those
    exist.
    """

    name: str
    config: GroupConfig | None
    forbidden: Mapping[str, int]


class OffsetsRow(NamedTuple):
    """The committed offsets of one `topic@group`, by queue."""

    key: str
    offsets: Mapping[int, int]


class LockKey(NamedTuple):
    """A queue that a group consumes in order."""

    group: str
    queue: MessageQueue


class LockRow(NamedTuple):
    """The holder of a queue lock."""

    key: LockKey
    client_id: str
    user: str | None


class TimingRow(NamedTuple):
    """The number of pending timed messages of a topic."""

    topic: str
    pending: TimingCount


def _name(members: Mapping[str, Any], member: str) -> str:
    found = text(members, member)
    if not found:
        raise ProtocolError(f"a row of metadata changes has no {member}")
    return found


def _read_name(value: Any) -> str:
    return _name({"name": value}, "name")


def _same(name: str) -> str:
    return name


def _write_topic(row: TopicRow) -> Any:
    return {"begin": row.begin, "config": row.config.to_json()}


def _read_topic(value: Any) -> TopicRow:
    members = as_object(value, "topic")
    config = TopicConfig.from_json(members.get("config"))
    begin = integer(members, "begin", 0, _INT64)
    if not config.name or begin < 0:
        raise ProtocolError("a topic of metadata changes has no name, or no beginning in the log")
    return TopicRow(config, begin)


TOPICS: Final[TableCodec[str, TopicRow]] = TableCodec(
    name="topics",
    key_of=lambda row: row.config.name,
    write=_write_topic,
    read=_read_topic,
    write_key=_same,
    read_key=_read_name,
    units=lambda row: 1 + len(row.config.attributes) // _ATTRIBUTES_PER_UNIT,
)


def _write_group(row: GroupRow) -> Any:
    return {
        "config": None if row.config is None else row.config.to_json(),
        "forbidden": dict(row.forbidden),
        "groupName": row.name,
    }


def _read_group(value: Any) -> GroupRow:
    members = as_object(value, "group")
    name, config = _name(members, "groupName"), members.get("config")
    forbidden = as_object(members.get("forbidden") or {}, "forbidden")
    return GroupRow(
        name,
        None if config is None else GroupConfig.from_json(config, name),
        {topic: integer(forbidden, topic, 0) for topic in forbidden},
    )


def _group_units(row: GroupRow) -> int:
    return (0 if row.config is None else row.config.units) + len(
        row.forbidden
    ) // _ATTRIBUTES_PER_UNIT


GROUPS: Final[TableCodec[str, GroupRow]] = TableCodec(
    name="groups",
    key_of=lambda row: row.name,
    write=_write_group,
    read=_read_group,
    write_key=_same,
    read_key=_read_name,
    units=lambda row: 1 + _group_units(row),
)


def _read_offsets(value: Any) -> OffsetsRow:
    members = as_object(value, "offsets")
    return OffsetsRow(_name(members, "key"), int_map(members.get("offsets"), int))


OFFSETS: Final[TableCodec[str, OffsetsRow]] = TableCodec(
    name="consumerOffsets",
    key_of=lambda row: row.key,
    # With texts as keys the standard decoder reads it.
    write=lambda row: {
        "key": row.key,
        "offsets": {str(queue_id): offset for queue_id, offset in row.offsets.items()},
    },
    read=_read_offsets,
    write_key=_same,
    read_key=_read_name,
    units=lambda row: 1 + len(row.offsets) // _QUEUES_PER_UNIT,
)


def _write_group_topic(key: GroupTopic) -> Any:
    return {"group": key[1], "topic": key[0]}


def _read_group_topic(value: Any) -> GroupTopic:
    members = as_object(value, "topic and group")
    return _name(members, "topic"), _name(members, "group")


def _read_mode(value: Any) -> RequestMode:
    mode = RequestMode.from_json(value)
    if not mode.topic or not mode.group:
        raise ProtocolError("a request mode names no topic, or no group")
    return mode


REQUEST_MODES: Final[TableCodec[GroupTopic, RequestMode]] = TableCodec(
    name="requestModes",
    key_of=lambda row: (row.topic, row.group),
    write=RequestMode.to_json,
    read=_read_mode,
    write_key=_write_group_topic,
    read_key=_read_group_topic,
    units=lambda _row: 1,
)


def _read_filter(value: Any) -> FilterData:
    members = as_object(value, "filter")
    return FilterData.from_json(value, _name(members, "topic"), _name(members, "consumerGroup"))


FILTERS: Final[TableCodec[GroupTopic, FilterData]] = TableCodec(
    name="consumerFilters",
    key_of=lambda row: (row.topic, row.group),
    write=FilterData.to_json,
    read=_read_filter,
    write_key=_write_group_topic,
    read_key=_read_group_topic,
    units=lambda row: 1 + len(row.expression) // _CHARACTERS_PER_UNIT,
)


def _write_lock_key(key: LockKey) -> Any:
    return {"group": key.group, "queue": key.queue.to_json()}


def _read_lock_key(value: Any) -> LockKey:
    members = as_object(value, "lock")
    return LockKey(_name(members, "group"), MessageQueue.from_json(members.get("queue")))


def _write_lock(row: LockRow) -> Any:
    return {**_write_lock_key(row.key), "clientId": row.client_id, "user": row.user}


def _read_lock(value: Any) -> LockRow:
    members = as_object(value, "lock")
    return LockRow(_read_lock_key(value), _name(members, "clientId"), text(members, "user"))


LOCKS: Final[TableCodec[LockKey, LockRow]] = TableCodec(
    name="queueLocks",
    key_of=lambda row: row.key,
    write=_write_lock,
    read=_read_lock,
    write_key=_write_lock_key,
    read_key=_read_lock_key,
    units=lambda _row: 1,
)


def _write_timing(row: TimingRow) -> Any:
    return {"count": row.pending.waiting, "timeStamp": row.pending.changed_ms, "topic": row.topic}


def _read_timing(value: Any) -> TimingRow:
    members = as_object(value, "timing")
    return TimingRow(
        text(members, "topic") or "",
        TimingCount(integer(members, "count", 0, _INT64), integer(members, "timeStamp", 0, _INT64)),
    )


TIMER_METRICS: Final[TableCodec[str, TimingRow]] = TableCodec(
    name="timerMetrics",
    key_of=lambda row: row.topic,
    write=_write_timing,
    read=_read_timing,
    write_key=_same,
    read_key=lambda value: text({"name": value}, "name") or "",
    units=lambda _row: 1,
)
