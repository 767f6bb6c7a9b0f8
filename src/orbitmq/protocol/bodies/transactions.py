"""How many half messages topics have, as the file transactionMetrics of 5.x says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion


class HalfCount(NamedTuple):
    """The half messages of a topic, and when their number changed."""

    messages: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class TransactionMetrics:
    """The whole file."""

    counts: Mapping[str, HalfCount]
    version: DataVersion

    def encode(self) -> bytes:
        return fastjson.dumps(
            {
                "dataVersion": self.version.to_json(),
                "transactionCount": {topic: {"count": each.messages, "timeStamp": each.changed_ms} for topic, each in self.counts.items()},
            }
        )
