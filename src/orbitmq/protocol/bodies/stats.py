"""The response to VIEW_BROKER_STATS_DATA: one statistic over the last minute, hour and day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object


@dataclass(frozen=True, slots=True)
class StatsWindow:
    """One time window: the sum of the values, the sum per second, and the average value per call
    (`avgpt`).
    """

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(avgpt=self.average, sum=self.sum, tps=self.tps)

    @classmethod
    def from_json(cls, value: Any) -> StatsWindow:
        members = as_object(value, "statsItem")
        return cls(
            sum=int(members.get("sum", 0)),
            tps=float(members.get("tps", 0)),
            average=float(members.get("avgpt", 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsView:
    """The three windows of a statistic."""

    minute: StatsWindow
    hour: StatsWindow
    day: StatsWindow

    def encode(self) -> bytes:
        """Encode the body, byte for byte as the original writes it."""
        return fastjson.dumps(
            fastjson.bean(
                statsDay=self.day.to_json(),
                statsHour=self.hour.to_json(),
                statsMinute=self.minute.to_json(),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> StatsView:
        """Decode the body; raise ProtocolError if it is malformed."""
        members = as_object(fastjson.loads(data), "BrokerStatsData")
        day, hour, minute = (
            StatsWindow.from_json(members.get(name))
            for name in ("statsDay", "statsHour", "statsMinute")
        )
        return cls(minute=minute, hour=hour, day=day)
