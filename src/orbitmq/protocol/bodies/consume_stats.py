"""Bodies about consumption progress: offsets next to queue ends, and message times, as 5.5.0 writes
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import number, queue_entries, read_queue_table
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object, integer

_INT64: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ConsumedQueue(NamedTuple):
    """The end of a queue, a group's committed and pulled offsets in it, and when the last consumed
    message was stored.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_timestamp: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "brokerOffset": self.broker_offset,
            "consumerOffset": self.consumer_offset,
            "lastTimestamp": self.last_timestamp,
            "pullOffset": self.pull_offset,
        }

    @classmethod
    def from_json(cls, value: Any) -> ConsumedQueue:
        members = as_object(value, "OffsetWrapper")
        names = ("brokerOffset", "consumerOffset", "pullOffset", "lastTimestamp")
        return cls(*(integer(members, name, 0, _INT64) for name in names))


@dataclass(slots=True)
class ConsumeStats:
    """The queues that a group consumes, and its messages per second."""

    queues: dict[MessageQueue, ConsumedQueue] = field(default_factory=dict)
    consume_tps: float = 0.0

    @property
    def total_diff(self) -> int:
        """Return the group's lag in messages."""
        return sum(queue.broker_offset - queue.consumer_offset for queue in self.queues.values())

    @property
    def total_inflight_diff(self) -> int:
        """Return how many messages were delivered and not consumed yet."""
        return sum(queue.pull_offset - queue.consumer_offset for queue in self.queues.values())

    def to_json(self) -> dict[str, Any]:
        """Return the members, to be written in slices."""
        return {
            "consumeTps": float(self.consume_tps),
            "offsetTable": queue_entries(self.queues),
        }

    def encode(self) -> Slices[bytes]:
        """Encode the response to GET_CONSUME_STATS."""
        return fastjson.dumps_in_slices(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> ConsumeStats:
        members = as_object(fastjson.loads(body), "ConsumeStats")
        return cls(
            read_queue_table(members.get("offsetTable"), ConsumedQueue.from_json),
            number(members, "consumeTps"),
        )


class AllConsumeStats:
    """The response to GET_BROKER_CONSUME_STATS, written group by group so that only one is held in
    memory.
    """

    def __init__(self) -> None:
        self._groups: list[bytes] = []
        self._total_diff = 0
        self._total_inflight_diff = 0

    def add(self, group: str, stats: Sequence[ConsumeStats]) -> Slices[None]:
        """Write the statistics of a group, one for each topic."""
        for each in stats:
            self._total_diff += each.total_diff
            self._total_inflight_diff += each.total_inflight_diff
        groups_json = {group: fastjson.Items(each.to_json() for each in stats)}
        self._groups.append((yield from fastjson.dumps_in_slices(groups_json)))

    def encode(self, broker_addr: str) -> bytes:
        """Return the body with everything added so far."""
        head = fastjson.dumps({"brokerAddr": broker_addr}).removesuffix(b"}")
        tail = fastjson.dumps(
            {"totalDiff": self._total_diff, "totalInflightDiff": self._total_inflight_diff}
        ).removeprefix(b"{")
        return b'%s,"consumeStatsList":[%s],%s' % (head, b",".join(self._groups), tail)


class QueueTimeSpan(NamedTuple):
    """When the first, the last and the next message to consume of a queue were stored; -1 if there
    is none.
    """

    queue: MessageQueue
    min_ms: int
    max_ms: int
    consumed_ms: int
    delay_ms: int

    def to_json(self) -> dict[str, Any]:
        return {
            "consumeTimeStamp": self.consumed_ms,
            "consumeTimeStampStr": _time_text(self.consumed_ms),
            "delayTime": self.delay_ms,
            "maxTimeStamp": self.max_ms,
            "maxTimeStampStr": _time_text(self.max_ms),
            "messageQueue": self.queue.to_json(),
            "minTimeStamp": self.min_ms,
            "minTimeStampStr": _time_text(self.min_ms),
        }


def encode_time_spans(spans: Iterable[QueueTimeSpan]) -> Slices[bytes]:
    """Encode the response to QUERY_CONSUME_TIME_SPAN."""
    return fastjson.dumps_in_slices(
        {"consumeTimeSpanSet": fastjson.Items(span.to_json() for span in spans)}
    )


def encode_correction_offsets(offsets: Mapping[int, int]) -> Slices[bytes]:
    """Encode the response to QUERY_CORRECTION_OFFSET."""
    return fastjson.dumps_in_slices({"correctionOffsets": dict(offsets)})


def _time_text(time_ms: int) -> str:
    """Format the time as the original does for people: in the broker's time zone."""
    local = (_EPOCH + timedelta(milliseconds=time_ms)).astimezone()
    return f"{local:%Y-%m-%d#%H:%M:%S}:{local.microsecond // 1000:03d}"
