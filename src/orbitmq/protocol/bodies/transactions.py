"""The number of half messages per topic, as in the file transactionMetrics of 5.x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion


class HalfCount(NamedTuple):
    """The number of half messages of a topic, and when it changed."""

    messages: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class TransactionMetrics:
    """The content of the file."""

    counts: Mapping[str, HalfCount]
    version: DataVersion

    def encode(self) -> bytes:
        return fastjson.dumps(
            {
                "dataVersion": self.version.to_json(),
                "transactionCount": {
                    topic: {"count": each.messages, "timeStamp": each.changed_ms}
                    for topic, each in self.counts.items()
                },
            }
        )
