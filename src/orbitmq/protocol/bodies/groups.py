"""Consumer groups as bodies and as the file subscriptionGroup.json, member by member as RocketMQ
5.5.0 writes them.

Members that 4.9 does not write have their default. Tables keep their order; unknown members are
dropped on reading, as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import (
    DataVersion,
    as_object,
    boolean,
    integer,
    items,
    items_in_slices,
    text,
    text_map,
)

_INT64: Final = 1 << 63
_MINUTE_MS: Final = 60_000
_DELAYS_MS: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
_LEVELS_SKIPPED: Final = (
    2  # the first redelivery waits 10 s, like delay level 3 before there were policies
)
_EXPONENT_MAX: Final = 32
GROUP_ITEMS_MAX: Final = 1_000  # retry steps, subscriptions or attributes of a group in a list


@dataclass(frozen=True, slots=True)
class ExponentialRetry:
    """A retry policy in which each redelivery waits `multiplier` times as long as the
    previous one.
    """

    initial: int = 5_000
    max: int = 120 * _MINUTE_MS
    multiplier: int = 2

    def delay_ms(self, reconsume_times: int) -> int:
        growth: int = self.multiplier ** min(max(reconsume_times, 0), _EXPONENT_MAX)
        return min(self.max, self.initial * growth)

    def to_json(self) -> dict[str, Any]:
        return {"initial": self.initial, "max": self.max, "multiplier": self.multiplier}

    @classmethod
    def from_json(cls, value: Any) -> ExponentialRetry:
        members = as_object(value, "exponentialRetryPolicy")
        return cls(
            *(
                integer(members, name, getattr(_EXPONENTIAL, name), _INT64)
                for name in ("initial", "max", "multiplier")
            )
        )


@dataclass(frozen=True, slots=True)
class CustomizedRetry:
    """A retry policy with a list of delays; the last one applies to all later redeliveries."""

    next: tuple[int, ...] = _DELAYS_MS

    def delay_ms(self, reconsume_times: int) -> int:
        return (
            self.next[min(max(reconsume_times, 0) + _LEVELS_SKIPPED, len(self.next) - 1)]
            if self.next
            else 0
        )

    def to_json(self) -> dict[str, Any]:
        return {"next": self.next}

    @classmethod
    def from_json(cls, value: Any) -> CustomizedRetry:
        delays = as_object(value, "customizedRetryPolicy").get("next")
        return (
            cls()
            if delays is None
            else cls(
                tuple(items(delays, lambda delay: integer({"next": delay}, "next", 0, _INT64)))
            )
        )


_EXPONENTIAL: Final = ExponentialRetry()
_DEFAULT_RETRY: Final = CustomizedRetry()


@dataclass(frozen=True, slots=True)
class GroupRetryPolicy:
    """When a message whose consumption failed is redelivered."""

    type: str | None = "CUSTOMIZED"
    exponential: ExponentialRetry | None = None
    customized: CustomizedRetry | None = None

    def delay_ms(self, reconsume_times: int) -> int:
        """Return the delay before the next redelivery of a message that was redelivered this many
        times.
        """
        named = {"EXPONENTIAL": self.exponential, "CUSTOMIZED": self.customized}.get(
            self.type or ""
        )
        return (named or _DEFAULT_RETRY).delay_ms(reconsume_times)

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            customizedRetryPolicy=self.customized and self.customized.to_json(),
            exponentialRetryPolicy=self.exponential and self.exponential.to_json(),
            type=self.type,
        )

    @classmethod
    def from_json(cls, value: Any) -> GroupRetryPolicy:
        members = as_object(value, "groupRetryPolicy")
        type_ = text(members, "type") if "type" in members else "CUSTOMIZED"
        exponential, customized = (
            members.get("exponentialRetryPolicy"),
            members.get("customizedRetryPolicy"),
        )
        return cls(
            type=(
                type_ if type_ in ("CUSTOMIZED", "EXPONENTIAL") else None
            ),  # the original reads any other name as none
            exponential=None if exponential is None else ExponentialRetry.from_json(exponential),
            customized=None if customized is None else CustomizedRetry.from_json(customized),
        )


@dataclass(frozen=True, slots=True)
class SimpleSubscription:
    """A topic that a group is meant to subscribe to, and how."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            expression=self.expression,
            expressionType=self.expression_type,
            topic=self.topic,
            version=self.version,
        )

    @classmethod
    def from_json(cls, value: Any) -> SimpleSubscription:
        members = as_object(value, "SimpleSubscriptionData")
        return cls(
            text(members, "topic"),
            text(members, "expressionType"),
            text(members, "expression"),
            integer(members, "version", 0, _INT64),
        )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A broker's configuration of one consumer group: the original's SubscriptionGroupConfig."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    retry_policy: GroupRetryPolicy | None = field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscriptions: tuple[SimpleSubscription, ...] | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """What it costs to read or write it, in units of a slice."""
        customized = None if self.retry_policy is None else self.retry_policy.customized
        steps = 0 if customized is None else len(customized.next)
        return 1 + (steps + len(self.attributes)) // 25 + len(self.subscriptions or ()) // 4

    def retry_delay_ms(self, reconsume_times: int) -> int:
        """Return the delay before the next redelivery of a message that was redelivered this many
        times.
        """
        return (self.retry_policy or GroupRetryPolicy()).delay_ms(reconsume_times)

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            attributes=dict(self.attributes),
            brokerId=self.broker_id,
            consumeBroadcastEnable=self.consume_broadcast_enable,
            consumeEnable=self.consume_enable,
            consumeFromMinEnable=self.consume_from_min_enable,
            consumeMessageOrderly=self.consume_message_orderly,
            consumeTimeoutMinute=self.consume_timeout_minute,
            groupName=self.name,
            groupRetryPolicy=self.retry_policy and self.retry_policy.to_json(),
            groupSysFlag=self.sys_flag,
            notifyConsumerIdsChangedEnable=self.notify_consumer_ids_changed_enable,
            retryMaxTimes=self.retry_max_times,
            retryQueueNums=self.retry_queue_nums,
            subscriptionDataSet=(
                None
                if self.subscriptions is None
                else [each.to_json() for each in self.subscriptions]
            ),
            whichBrokerWhenConsumeSlowly=self.which_broker_when_consume_slowly,
        )

    @classmethod
    def from_json(cls, value: Any, name: str = "") -> GroupConfig:
        """Read the group from its members; `name` is used if they do not contain it."""
        members = as_object(value, "SubscriptionGroupConfig")

        def switch(member: str) -> bool:
            return members.get(member) is None or boolean(members, member)

        subscriptions, policy = (
            members.get("subscriptionDataSet"),
            members.get("groupRetryPolicy", {}),
        )
        return cls(
            name=text(members, "groupName") or name,
            consume_enable=switch("consumeEnable"),
            consume_from_min_enable=switch("consumeFromMinEnable"),
            consume_broadcast_enable=switch("consumeBroadcastEnable"),
            consume_message_orderly=boolean(members, "consumeMessageOrderly"),
            retry_queue_nums=integer(members, "retryQueueNums", 1),
            retry_max_times=integer(members, "retryMaxTimes", 16),
            retry_policy=None if policy is None else GroupRetryPolicy.from_json(policy),
            broker_id=integer(members, "brokerId", 0, _INT64),
            which_broker_when_consume_slowly=integer(
                members, "whichBrokerWhenConsumeSlowly", 1, _INT64
            ),
            notify_consumer_ids_changed_enable=switch("notifyConsumerIdsChangedEnable"),
            sys_flag=integer(members, "groupSysFlag", 0),
            consume_timeout_minute=integer(members, "consumeTimeoutMinute", 15),
            subscriptions=(
                None
                if subscriptions is None
                else tuple(items(subscriptions, SimpleSubscription.from_json))
            ),
            attributes=text_map(members.get("attributes")),
        )

    def encode(self) -> bytes:
        return fastjson.dumps(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> GroupConfig:
        return cls.from_json(fastjson.loads(body))


def decode_group_list(body: bytes) -> Slices[list[GroupConfig]]:
    """Decode the groups of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST; their attributes are changes,
    named `+name` or `-name`.
    """
    members = as_object((yield from fastjson.loads_in_slices(body)), "SubscriptionGroupList")
    return (
        yield from items_in_slices(
            members.get("groupConfigList"), _listed_group, units=lambda group: group.units
        )
    )


def _listed_group(value: Any) -> GroupConfig:
    """A group of a list; ProtocolError for one that is larger than others."""
    members = as_object(value, "SubscriptionGroupConfig")
    policy = members.get("groupRetryPolicy")
    steps = policy.get("customizedRetryPolicy") if isinstance(policy, dict) else None
    for name, listed in (
        ("next", steps.get("next") if isinstance(steps, dict) else None),
        ("subscriptionDataSet", members.get("subscriptionDataSet")),
        ("attributes", members.get("attributes")),
    ):
        if isinstance(listed, list | dict) and len(listed) > GROUP_ITEMS_MAX:
            raise ProtocolError(
                f"member {name} of a group has {len(listed)} items; up to {GROUP_ITEMS_MAX} are"
                " taken"
            )
    return GroupConfig.from_json(members)


@dataclass(frozen=True, slots=True)
class GroupTable:
    """All groups, and the bits of forbidden operations per group and topic."""

    groups: Mapping[str, GroupConfig]
    forbidden: Mapping[str, Mapping[str, int]]
    version: DataVersion | None

    def encode(self, *, pretty: bool = False) -> bytes:
        """Encode the response to GET_ALL_SUBSCRIPTIONGROUP_CONFIG, or the content of
        subscriptionGroup.json.
        """
        return finish(self.encode_in_slices(pretty=pretty))

    def encode_in_slices(self, *, pretty: bool = False) -> Slices[bytes]:
        return (fastjson.dumps_pretty_in_slices if pretty else fastjson.dumps_in_slices)(
            {
                "dataVersion": (self.version or DataVersion()).to_json(),
                "forbiddenTable": fastjson.Entries(
                    (group, dict(topics)) for group, topics in self.forbidden.items()
                ),
                "subscriptionGroupTable": fastjson.Entries(
                    (name, group.to_json()) for name, group in self.groups.items()
                ),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> GroupTable:
        """Decode both forms; raise ProtocolError if the content is malformed."""
        members = as_object(fastjson.loads(data), "subscriptionGroup.json")
        version = members.get("dataVersion")
        groups = as_object(members.get("subscriptionGroupTable"), "subscriptionGroupTable")
        configs = [GroupConfig.from_json(group, name) for name, group in groups.items()]
        forbidden = as_object(members.get("forbiddenTable") or {}, "forbiddenTable")
        return cls(
            groups={config.name: config for config in configs},
            forbidden={
                group: {topic: integer(bits, topic, 0) for topic in bits}
                for group, bits in (
                    (group, as_object(topics, "forbiddenTable"))
                    for group, topics in forbidden.items()
                )
            },
            version=None if version is None else DataVersion.from_json(version),
        )


def encode_group_forbidden(group: str, topic: str, *, readable: bool) -> bytes:
    """Encode the response to UPDATE_AND_GET_GROUP_FORBIDDEN."""
    return fastjson.dumps({"group": group, "readable": readable, "topic": topic})
