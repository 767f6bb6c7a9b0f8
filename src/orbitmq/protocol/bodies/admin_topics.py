"""Bodies about the queues of a topic: their bounds, and consume queue entries, as RocketMQ 5.5.0
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object, integer
from orbitmq.protocol.bodies.subscriptions import SubscriptionData

T = TypeVar("T")
_INT64: Final = 1 << 63


class TopicOffset(NamedTuple):
    """The bounds of a queue, and when its last message was stored; 0 without any."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int

    def to_json(self) -> dict[str, Any]:
        return {
            "lastUpdateTimestamp": self.last_update_timestamp,
            "maxOffset": self.max_offset,
            "minOffset": self.min_offset,
        }

    @classmethod
    def from_json(cls, value: Any) -> TopicOffset:
        members = as_object(value, "TopicOffset")
        return cls(
            *(
                integer(members, name, 0, _INT64)
                for name in ("minOffset", "maxOffset", "lastUpdateTimestamp")
            )
        )


def queue_table(table: Mapping[MessageQueue, Any]) -> dict[fastjson.ObjectKey, Any]:
    """Return a map with queues as keys in its JSON form."""
    return {fastjson.ObjectKey(queue.to_json()): value for queue, value in table.items()}


def read_queue_table(value: Any, read: Callable[[Any], T]) -> dict[MessageQueue, T]:
    """Read a map whose keys are queues, as objects or as their texts; empty for null."""
    members = as_object({} if value is None else value, "a map with queues as keys")
    return {_queue(key): read(item) for key, item in members.items()}


def read_offset(value: Any) -> int:
    """Read an offset that is the value of a map."""
    return integer({"offset": value}, "offset", 0, _INT64)


def _queue(key: object) -> MessageQueue:
    if isinstance(key, fastjson.ObjectKey):
        return MessageQueue.from_json(dict(key))
    if isinstance(key, str) and key.startswith("{"):
        return MessageQueue.from_json(fastjson.loads(key))
    raise ProtocolError(f"a queue is expected as key of a map, found {str(key)[:60]!r}")


def queue_entries(table: Mapping[MessageQueue, Any]) -> fastjson.Entries:
    """Like `queue_table`, generated while it is written in slices; values with a `to_json` are
    converted by it.
    """
    return fastjson.Entries(
        (fastjson.ObjectKey(queue.to_json()), value if isinstance(value, int) else value.to_json())
        for queue, value in table.items()
    )


def encode_topic_stats(
    offsets: Mapping[MessageQueue, TopicOffset], put_tps: float
) -> Slices[bytes]:
    """Encode the response to GET_TOPIC_STATS_INFO."""
    return fastjson.dumps_in_slices(
        {"offsetTable": queue_entries(offsets), "topicPutTps": float(put_tps)}
    )


def decode_topic_stats(body: bytes) -> tuple[dict[MessageQueue, TopicOffset], float]:
    """Decode the queues and their rate of messages per second, which 4.9 omits."""
    members = as_object(fastjson.loads(body), "TopicStatsTable")
    return read_queue_table(members.get("offsetTable"), TopicOffset.from_json), number(
        members, "topicPutTps"
    )


def number(members: Mapping[str, Any], name: str) -> float:
    """Return the member as a number of any kind; 0 if it was not sent."""
    value = members.get(name)
    try:
        return 0.0 if value is None else float(value)
    except (TypeError, ValueError):
        raise ProtocolError(
            f"member {name} must be a number, found {fastjson.brief(value)}"
        ) from None


class QueueEntry(NamedTuple):
    """One consume queue entry with its unit in the ext file, or the `problem` of reading it.

    `matches` says whether a subscription matches it, for entries with a unit in the ext file.
    """

    log_offset: int
    size: int
    tags_code: int
    unit: str | None = None
    matches: bool = False
    problem: str | None = None
    bits: bytes = b""

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            bitMap=_bit_text(self.bits) if self.bits else None,
            eval=self.matches,
            extendDataJson=self.unit,
            msg=self.problem,
            physicOffset=self.log_offset,
            physicSize=self.size,
            tagsCode=self.tags_code,
        )


def encode_entry_unit(tags_code: int, store_time_ms: int, size: int, bits: bytes = b"") -> str:
    """Encode an entry's unit of the ext file, as a text inside the response."""
    signed = [byte - (byte >> 7 << 8) for byte in bits] or None
    return fastjson.dumps(
        fastjson.bean(
            filterBitMap=signed, msgStoreTime=store_time_ms, size=size, tagsCode=tags_code
        )
    ).decode()


def _bit_text(bits: bytes) -> str:
    """Return the bits from last to first, eight bytes to a line."""
    return "".join(
        f"{bits[at]:08b}" + ("" if at % 8 else "\n") for at in reversed(range(len(bits)))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueEntries:
    """The response to QUERY_CONSUME_QUEUE."""

    min_offset: int
    max_offset: int
    entries: Iterable[QueueEntry]
    subscription: SubscriptionData | None = None
    filter_data: str | None = None

    def encode(self) -> Slices[bytes]:
        return fastjson.dumps_in_slices(
            fastjson.bean(
                filterData=self.filter_data,
                maxQueueIndex=self.max_offset,
                minQueueIndex=self.min_offset,
                queueData=fastjson.Items(entry.to_json() for entry in self.entries),
                subscriptionData=None if self.subscription is None else self.subscription.to_json(),
            )
        )
