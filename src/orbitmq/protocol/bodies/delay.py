"""How far delay levels were delivered, as the answer to GET_ALL_DELAY_OFFSET and as the file delayOffset.json; and what waits in the timer.

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
    """The next message to deliver of each level."""

    offsets: Mapping[int, int]
    version: DataVersion | None = None

    def encode(self, *, pretty: bool = False) -> bytes:
        """The answer to GET_ALL_DELAY_OFFSET, or the content of delayOffset.json."""
        table = {level: self.offsets[level] for level in sorted(self.offsets)}
        members = {"dataVersion": (self.version or DataVersion()).to_json(), "offsetTable": table}
        return fastjson.dumps_pretty(members) if pretty else fastjson.dumps(members)

    @classmethod
    def decode(cls, data: bytes) -> DelayOffsets:
        """Both forms, of either release; ProtocolError when the content is not whole."""
        members = as_object(fastjson.loads(data), "delayOffset.json")
        version = members.get("dataVersion")
        return cls(int_map(members.get("offsetTable") or {}, int), None if version is None else DataVersion.from_json(version))


class TimingCount(NamedTuple):
    """How many timed messages wait for a topic, and when that changed."""

    waiting: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class TimingCounts:
    """The answer to GET_TIMER_METRICS, and the content of timermetrics."""

    counts: Mapping[str, TimingCount]
    version: DataVersion

    def encode_in_slices(self) -> Slices[bytes]:
        table = fastjson.Entries((topic, {"count": each.waiting, "timeStamp": each.changed_ms}) for topic, each in self.counts.items())
        return fastjson.dumps_in_slices({"dataVersion": self.version.to_json(), "timingCount": table})

    @classmethod
    def decode(cls, data: bytes) -> TimingCounts:
        """ProtocolError when the content is not whole."""
        members = as_object(fastjson.loads(data), "timermetrics")
        table = as_object(members.get("timingCount") or {}, "timingCount")
        counts = {}
        for topic, value in table.items():
            each = as_object(value, "timingCount")
            counts[topic] = TimingCount(integer(each, "count", 0, _INT64), integer(each, "timeStamp", 0, _INT64))
        version = members.get("dataVersion")
        return cls(counts, DataVersion() if version is None else DataVersion.from_json(version))
