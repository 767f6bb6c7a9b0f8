"""A consumer's running info: its progress in each queue, its settings, and the result of a message
consumed directly.

Values and their JSON, member by member as RocketMQ 5.5.0 writes it; members that 4.9 does not write
are empty. Consumers write these, brokers forward them, operators read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import number, queue_table, read_queue_table
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object, boolean, integer, items, text, text_map
from orbitmq.protocol.bodies.subscriptions import SubscriptionData, enum_member, enum_name

_INT64: Final = 1 << 63
_MIB_BITS: Final = 20

# Names of properties.
CONSUMES_IN_ORDER: Final = "PROP_CONSUMEORDERLY"
SUSPENDED: Final = "suspended"  # reported by OrbitMQ clients only


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """The state of a queue that a member reads: what it has cached, and when it last did what; 0
    for never.

    `cached_bytes` are sent as whole MiB. `running` is what orderly listeners are consuming now.
    """

    commit_offset: int = 0
    cached_count: int = 0
    cached_first_offset: int = 0
    cached_last_offset: int = 0
    cached_bytes: int = 0
    running_count: int = 0
    running_first_offset: int = 0
    running_last_offset: int = 0
    is_dropped: bool = False
    is_locked: bool = False
    try_unlock_times: int = 0
    last_lock_ms: int = 0
    last_pull_ms: int = 0
    last_consume_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "cachedMsgCount": self.cached_count,
            "cachedMsgMaxOffset": self.cached_last_offset,
            "cachedMsgMinOffset": self.cached_first_offset,
            "cachedMsgSizeInMiB": self.cached_bytes >> _MIB_BITS,
            "commitOffset": self.commit_offset,
            "droped": self.is_dropped,
            "lastConsumeTimestamp": self.last_consume_ms,
            "lastLockTimestamp": self.last_lock_ms,
            "lastPullTimestamp": self.last_pull_ms,
            "locked": self.is_locked,
            "transactionMsgCount": self.running_count,
            "transactionMsgMaxOffset": self.running_last_offset,
            "transactionMsgMinOffset": self.running_first_offset,
            "tryUnlockTimes": self.try_unlock_times,
        }

    @classmethod
    def from_json(cls, value: Any) -> QueueProgress:
        members = as_object(value, "ProcessQueueInfo")

        def whole(name: str) -> int:
            return integer(members, name, 0, _INT64)

        return cls(
            commit_offset=whole("commitOffset"),
            cached_count=whole("cachedMsgCount"),
            cached_first_offset=whole("cachedMsgMinOffset"),
            cached_last_offset=whole("cachedMsgMaxOffset"),
            cached_bytes=whole("cachedMsgSizeInMiB") << _MIB_BITS,
            running_count=whole("transactionMsgCount"),
            running_first_offset=whole("transactionMsgMinOffset"),
            running_last_offset=whole("transactionMsgMaxOffset"),
            is_dropped=boolean(members, "droped"),
            is_locked=boolean(members, "locked"),
            try_unlock_times=whole("tryUnlockTimes"),
            last_lock_ms=whole("lastLockTimestamp"),
            last_pull_ms=whole("lastPullTimestamp"),
            last_consume_ms=whole("lastConsumeTimestamp"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PopProgress:
    """The state of a queue that a member pops from."""

    waits_for_ack: int = 0
    is_dropped: bool = False
    last_pop_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "droped": self.is_dropped,
            "lastPopTimestamp": self.last_pop_ms,
            "waitAckCount": self.waits_for_ack,
        }

    @classmethod
    def from_json(cls, value: Any) -> PopProgress:
        members = as_object(value, "PopProcessQueueInfo")
        return cls(
            waits_for_ack=integer(members, "waitAckCount", 0),
            is_dropped=boolean(members, "droped"),
            last_pop_ms=integer(members, "lastPopTimestamp", 0, _INT64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRates:
    """How fast a member pulls and consumes the messages of a topic."""

    consumed_per_s: float = 0.0
    failed_per_s: float = 0.0
    failed_in_an_hour: int = 0
    consume_ms: float = 0.0
    pulled_per_s: float = 0.0
    pull_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "consumeFailedMsgs": self.failed_in_an_hour,
            "consumeFailedTPS": float(self.failed_per_s),
            "consumeOKTPS": float(self.consumed_per_s),
            "consumeRT": float(self.consume_ms),
            "pullRT": float(self.pull_ms),
            "pullTPS": float(self.pulled_per_s),
        }

    @classmethod
    def from_json(cls, value: Any) -> TopicRates:
        members = as_object(value, "ConsumeStatus")
        return cls(
            consumed_per_s=number(members, "consumeOKTPS"),
            failed_per_s=number(members, "consumeFailedTPS"),
            failed_in_an_hour=integer(members, "consumeFailedMsgs", 0, _INT64),
            consume_ms=number(members, "consumeRT"),
            pulled_per_s=number(members, "pullTPS"),
            pull_ms=number(members, "pullRT"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRunningInfo:
    """The response to GET_CONSUMER_RUNNING_INFO. `properties` are the consumer's settings, by their
    Java names; `stacks` those of its threads.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    subscriptions: Sequence[SubscriptionData] = ()
    queues: Mapping[MessageQueue, QueueProgress] = field(default_factory=dict)
    pop_queues: Mapping[MessageQueue, PopProgress] = field(default_factory=dict)
    topics: Mapping[str, TopicRates] = field(default_factory=dict)
    user_info: Mapping[str, str] = field(default_factory=dict)
    stacks: str | None = None

    @property
    def is_ordered(self) -> bool:
        """Return whether its listener is orderly, for which it locks its queues."""
        return self.properties.get(CONSUMES_IN_ORDER) == "true"

    @property
    def is_suspended(self) -> bool:
        """Return whether its consumption is suspended."""
        return self.properties.get(SUSPENDED) == "true"

    def setting(self, name: str, default: int) -> int:
        """Return a numeric setting of the consumer, or `default`."""
        try:
            return int(self.properties[name])
        except (KeyError, ValueError):
            return default

    def encode(self, stacks: str | None = None) -> bytes:
        """Encode the body, with the stacks of its threads if requested."""
        return fastjson.dumps(
            fastjson.bean(
                jstack=self.stacks if stacks is None else stacks,
                mqPopTable=queue_table(
                    {queue: progress.to_json() for queue, progress in self.pop_queues.items()}
                ),
                mqTable=queue_table(
                    {queue: progress.to_json() for queue, progress in self.queues.items()}
                ),
                properties=dict(self.properties),
                statusTable={topic: rates.to_json() for topic, rates in self.topics.items()},
                subscriptionSet=[subscription.to_json() for subscription in self.subscriptions],
                userConsumerInfo=dict(self.user_info),
            )
        )

    @classmethod
    def decode(cls, body: bytes) -> ConsumerRunningInfo:
        members = as_object(fastjson.loads(body), "ConsumerRunningInfo")
        topics = as_object(members.get("statusTable") or {}, "statusTable")
        return cls(
            properties=text_map(members.get("properties")),
            subscriptions=tuple(items(members.get("subscriptionSet"), SubscriptionData.from_json)),
            queues=read_queue_table(members.get("mqTable"), QueueProgress.from_json),
            pop_queues=read_queue_table(members.get("mqPopTable"), PopProgress.from_json),
            topics={topic: TopicRates.from_json(rates) for topic, rates in topics.items()},
            user_info=text_map(members.get("userConsumerInfo")),
            stacks=text(members, "jstack"),
        )


class DirectOutcome(Enum):
    """The outcome of a message consumed directly, in the order of the original."""

    CR_SUCCESS = "consumed"
    CR_LATER = "the listener wants it again later"
    CR_ROLLBACK = "the listener rolled it back"
    CR_COMMIT = "the listener committed it"
    CR_THROW_EXCEPTION = "the listener failed"
    CR_RETURN_NULL = "the listener returned nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectResult:
    """The response to CONSUME_MESSAGE_DIRECTLY: the result of one message."""

    outcome: DirectOutcome | None = None
    in_order: bool = False
    remark: str | None = None
    spent_ms: int = 0
    auto_commit: bool = True

    def encode(self) -> bytes:
        return fastjson.dumps(
            fastjson.bean(
                autoCommit=self.auto_commit,
                consumeResult=enum_name(self.outcome),
                order=self.in_order,
                remark=self.remark,
                spentTimeMills=self.spent_ms,
            )
        )

    @classmethod
    def decode(cls, body: bytes) -> DirectResult:
        members = as_object(fastjson.loads(body), "ConsumeMessageDirectlyResult")
        return cls(
            outcome=enum_member(members, "consumeResult", DirectOutcome),
            in_order=boolean(members, "order"),
            remark=text(members, "remark"),
            spent_ms=integer(members, "spentTimeMills", 0, _INT64),
            auto_commit=boolean(members, "autoCommit"),
        )
