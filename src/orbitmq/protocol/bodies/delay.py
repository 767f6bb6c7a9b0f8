"""Delay level progress, as the response to GET_ALL_DELAY_OFFSET and as the file delayOffset.json;
and the counts of pending timer messages.

4.9 writes delayOffset.json without a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, as_object, int_map, integer

_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """The next offset to deliver of each delay level."""

    offsets: Mapping[int, int]
    version: DataVersion | None = None

    def encode(self, *, pretty: bool = False) -> bytes:
        """Encode the response to GET_ALL_DELAY_OFFSET, or the content of delayOffset.json."""
        table = {level: self.offsets[level] for level in sorted(self.offsets)}
        members = {"dataVersion": (self.version or DataVersion()).to_json(), "offsetTable": table}
        return fastjson.dumps_pretty(members) if pretty else fastjson.dumps(members)

    @classmethod
    def decode(cls, data: bytes) -> DelayOffsets:
        """Decode both forms, of either release; raise ProtocolError if the content is malformed."""
        members = as_object(fastjson.loads(data), "delayOffset.json")
        version = members.get("dataVersion")
        return cls(
            int_map(members.get("offsetTable") or {}, int),
            None if version is None else DataVersion.from_json(version),
        )


class TimingCount(NamedTuple):
    """The number of pending timer messages of a topic, and when it changed."""

    waiting: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class TimingCounts:
    """The response to GET_TIMER_METRICS, and the content of timermetrics."""

    counts: Mapping[str, TimingCount]
    version: DataVersion

    def encode_in_slices(self) -> Slices[bytes]:
        table = fastjson.Entries(
            (topic, {"count": each.waiting, "timeStamp": each.changed_ms})
            for topic, each in self.counts.items()
        )
        return fastjson.dumps_in_slices(
            {"dataVersion": self.version.to_json(), "timingCount": table}
        )

    @classmethod
    def decode(cls, data: bytes) -> TimingCounts:
        """Decode the content; raise ProtocolError if it is malformed."""
        members = as_object(fastjson.loads(data), "timermetrics")
        table = as_object(members.get("timingCount") or {}, "timingCount")
        counts = {}
        for topic, value in table.items():
            each = as_object(value, "timingCount")
            counts[topic] = TimingCount(
                integer(each, "count", 0, _INT64), integer(each, "timeStamp", 0, _INT64)
            )
        version = members.get("dataVersion")
        return cls(counts, DataVersion() if version is None else DataVersion.from_json(version))
