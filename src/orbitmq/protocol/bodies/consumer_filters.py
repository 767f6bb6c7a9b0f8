"""Consumer group filters in the file consumerFilter.json, byte for byte as RocketMQ 5.5.0 writes
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object, integer, items, text

_INT64: Final = 1 << 63


class BloomPositions(NamedTuple):
    """The Bloom filter bits of a group and a topic."""

    bit_count: int
    positions: tuple[int, ...]


class FilterData(NamedTuple):
    """A group's filter expression for a topic, as of version `client_version` of
    its subscription.
    """

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    born_time_ms: int
    bloom: BloomPositions | None
    dead_time_ms: int = 0

    @property
    def is_dead(self) -> bool:
        """Return whether the group has had no consumer since."""
        return self.dead_time_ms >= self.born_time_ms

    def to_json(self) -> dict[str, Any]:
        bloom = (
            None
            if self.bloom is None
            else fastjson.bean(bitNum=self.bloom.bit_count, bitPos=self.bloom.positions)
        )
        return fastjson.bean(
            bloomFilterData=bloom,
            bornTime=self.born_time_ms,
            clientVersion=self.client_version,
            consumerGroup=self.group,
            dead=self.is_dead,
            deadTime=self.dead_time_ms,
            expression=self.expression,
            expressionType=self.expression_type,
            topic=self.topic,
        )

    @classmethod
    def from_json(cls, value: Any, topic: str, group: str) -> FilterData:
        """Read the members; topic and group are the given ones, whatever the members say."""
        members = as_object(value, "ConsumerFilterData")
        return cls(
            topic,
            group,
            text(members, "expression") or "",
            text(members, "expressionType") or "",
            integer(members, "clientVersion", 0, _INT64),
            integer(members, "bornTime", 0, _INT64),
            _bloom(members.get("bloomFilterData")),
            integer(members, "deadTime", 0, _INT64),
        )


def encode_filters(filters: Iterable[FilterData]) -> bytes:
    """Encode the content of the file."""
    topics: dict[str, dict[str, Any]] = {}
    for each in filters:
        topics.setdefault(each.topic, {})[each.group] = each.to_json()
    by_topic = {
        topic: fastjson.bean(groupFilterData=groups, topic=topic)
        for topic, groups in topics.items()
    }
    return fastjson.dumps_pretty({"filterDataByTopic": by_topic})


def encode_filter(data: FilterData) -> str:
    """Encode one filter for display to operators."""
    return fastjson.dumps_pretty(data.to_json()).decode()


def decode_filters(data: bytes) -> list[FilterData]:
    """Decode the content of the file; raise ProtocolError if it is malformed."""
    topics = as_object(
        as_object(fastjson.loads(data), "consumerFilter.json").get("filterDataByTopic") or {},
        "filterDataByTopic",
    )
    return [
        FilterData.from_json(value, topic, group)
        for topic, groups in topics.items()
        for group, value in as_object(
            as_object(groups, topic).get("groupFilterData") or {}, "groupFilterData"
        ).items()
    ]


def _bloom(value: Any) -> BloomPositions | None:
    if value is None:
        return None
    members = as_object(value, "bloomFilterData")
    positions = items(members.get("bitPos"), lambda each: integer({"bitPos": each}, "bitPos", 0))
    return BloomPositions(integer(members, "bitNum", 0), tuple(positions))
