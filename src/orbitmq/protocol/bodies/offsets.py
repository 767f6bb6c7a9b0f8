"""Consumer offsets as the response to GET_ALL_CONSUMER_OFFSET and as the file consumerOffset.json.

Tables are `topic@group` -> queue -> offset. `groupTopicMap` is derived from the keys and written
only for readers of the original; it is in the order of a Java hash map, so the same offsets yield
the same bytes. 4.9 writes the offsets alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted
from struct import iter_unpack
from typing import Any, Final

from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, as_object, int_map

SEPARATOR: Final = "@"

OffsetTables = Mapping[str, Mapping[int, int]]

_GROUP_SLOTS: Final = 128
_TOPIC_SLOTS: Final = 8
_KEYS_PER_SLICE: Final = 500


def split_key(key: str) -> tuple[str, str] | None:
    """Split a key into topic and group; None for a key that the original cannot split either."""
    topic, _, group = key.partition(SEPARATOR)
    return (topic, group) if group and SEPARATOR not in group else None


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """The committed offsets of each group, and its last pulled offsets (read only by the original's
    tools).
    """

    offsets: OffsetTables
    pull_offsets: OffsetTables = field(default_factory=dict)
    version: DataVersion | None = None

    def encode(self, *, pretty: bool = False) -> bytes:
        """Encode the response to GET_ALL_CONSUMER_OFFSET, or the content of consumerOffset.json."""
        dumps = fastjson.dumps_pretty if pretty else fastjson.dumps
        head = dumps(
            {
                "dataVersion": (self.version or DataVersion()).to_json(),
                "groupTopicMap": _topics_by_group(self.offsets),
            }
        )
        line = "\n" if pretty else ""
        tables = (
            _table("offsetTable", self.offsets, line),
            _table("pullOffsetTable", self.pull_offsets, line),
        )
        return b"%s,%s%s}" % (
            head.removesuffix(b"}").rstrip(b"\n"),
            ",".join(tables).encode("utf-8", "replace"),
            line.encode(),
        )

    def encode_in_slices(self) -> Slices[bytes]:
        """Do what `encode` does, compact, in slices; meanwhile offsets may change and queues be
        added, but not keys.
        """
        topics = yield from _topics_by_group_in_slices(self.offsets)
        head = yield from fastjson.dumps_in_slices(
            {"dataVersion": (self.version or DataVersion()).to_json(), "groupTopicMap": topics}
        )
        parts = [head.removesuffix(b"}")]
        for name, table in (("offsetTable", self.offsets), ("pullOffsetTable", self.pull_offsets)):
            parts.append(b',"%s":{' % name.encode())
            for number, part in enumerate(slices_of(table.items(), _KEYS_PER_SLICE)):
                rows = _table("", {key: dict(queues) for key, queues in part}, "")
                parts.append(
                    (b"," if number else b"")
                    + rows.removeprefix('"":{').removesuffix("}").encode("utf-8", "replace")
                )
                if len(part) == _KEYS_PER_SLICE:
                    yield
            parts.append(b"}")
        parts.append(b"}")
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> ConsumerOffsets:
        """Decode both forms, of either release; raise ProtocolError if the content is malformed."""
        members = as_object(fastjson.loads(data), "consumerOffset.json")
        version = members.get("dataVersion")
        return cls(
            offsets=_read_table(members.get("offsetTable") or {}),
            pull_offsets=_read_table(members.get("pullOffsetTable") or {}),
            version=None if version is None else DataVersion.from_json(version),
        )


def _read_table(value: Any) -> dict[str, dict[int, int]]:
    return {key: int_map(queues, int) for key, queues in as_object(value, "offsetTable").items()}


def _table(name: str, table: OffsetTables, line: str) -> str:
    """Return the member of a table; formatted by hand, since all offsets of all groups are written
    every few seconds.
    """
    key_line, queue_line = (line + "\t\t", line + "\t\t\t") if line else ("", "")
    rows = [
        (
            key_line
            + quoted(key)
            + ":{"
            + ",".join([f"{queue_line}{queue}:{queues[queue]}" for queue in sorted(queues)])
            + key_line
            + "}"
            if queues
            else key_line + quoted(key) + ":{}"
        )
        for key, queues in table.items()
    ]
    member_line = line + "\t" if line else ""
    return f'{member_line}"{name}":{{{",".join(rows)}{member_line if rows else ""}}}'


def _topics_by_group(keys: Iterable[str]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for topic, group in filter(None, map(split_key, keys)):
        topics.setdefault(group, []).append(topic)
    return {
        group: _in_hash_order(topics[group], _TOPIC_SLOTS)
        for group in _in_hash_order(topics, _GROUP_SLOTS)
    }


def _topics_by_group_in_slices(keys: Iterable[str]) -> Slices[dict[str, list[str]]]:
    topics: dict[str, list[str]] = {}
    for part in slices_of(keys, _KEYS_PER_SLICE):
        for topic, group in filter(None, map(split_key, part)):
            topics.setdefault(group, []).append(topic)
        yield
    ordered: dict[str, list[str]] = {}
    named = 0
    for group in (yield from _in_hash_order_in_slices(topics, _GROUP_SLOTS)):
        ordered[group] = yield from _in_hash_order_in_slices(topics[group], _TOPIC_SLOTS)
        named += 1 + len(topics[group])
        if named >= _KEYS_PER_SLICE:
            named = 0
            yield
    return ordered


def _in_hash_order_in_slices(names: Iterable[str], slots: int) -> Slices[list[str]]:
    names = list(names)
    slots = _slots(len(names), slots)
    slotted: dict[int, list[str]] = {}
    for part in slices_of(names, _KEYS_PER_SLICE):
        for name in part:
            slotted.setdefault(_slot(name, slots), []).append(name)
        if len(part) == _KEYS_PER_SLICE:
            yield
    return [name for slot in sorted(slotted) for name in slotted[slot]]


def _slots(count: int, slots: int) -> int:
    while count > slots * 3 // 4:
        slots *= 2
    return slots


def _in_hash_order(names: Iterable[str], slots: int) -> list[str]:
    """Return the names in the order of a Java hash map with this initial capacity and a load factor
    of three quarters.
    """
    names = list(names)
    slots = _slots(len(names), slots)
    return sorted(names, key=lambda name: _slot(name, slots))


def _slot(name: str, slots: int) -> int:
    code = 0
    for (unit,) in iter_unpack("<H", name.encode("utf-16-le", "surrogatepass")):
        code = code * 31 + unit & 0xFFFF_FFFF
    return (code ^ code >> 16) & slots - 1
