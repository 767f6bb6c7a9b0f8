"""Reports about a consumer group: its online members, subscriptions, and progress in each queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)


class GroupMember(NamedTuple):
    """An online consumer of a group, and the brokers it is connected to."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConnections:
    """The online members of a group and their subscriptions; `unreachable` maps brokers that could
    not be asked to the reason.
    """

    members: tuple[GroupMember, ...]
    subscriptions: Mapping[str, SubscriptionData]
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    consume_from_where: ConsumeFromWhere | None
    unreachable: Mapping[str, str]
    conflicts: tuple[str, ...] = ()  # differing subscriptions, as reported by brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """A group's progress in one queue; `owner` is None if no member reported it, a time of 0 is
    unknown.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_consumed_ms: int  # store time of the last consumed message
    owner: str | None = None

    @property
    def lag(self) -> int:
        """The number of messages still to consume."""
        return max(self.broker_offset - self.consumer_offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """A group's progress in all its queues, in order."""

    queues: tuple[GroupQueue, ...]
    consumed_per_s: float
    unreachable: Mapping[str, str]

    @property
    def lag(self) -> int:
        """The number of messages still to consume in all queues."""
        return sum(queue.lag for queue in self.queues)
