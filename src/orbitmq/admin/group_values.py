"""What is told of a consumer group: who is online, what they want, and how far each queue is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


class Member(NamedTuple):
    """A client that consumes for a group, and the brokers that it is connected to."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConnections:
    """Who consumes for a group, how, and what; nobody, when none is online. `unreachable` are brokers that could not be asked, and why."""

    members: tuple[Member, ...]
    subscriptions: Mapping[str, SubscriptionData]
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    consume_from_where: ConsumeFromWhere | None
    unreachable: Mapping[str, str]
    conflicts: tuple[str, ...] = ()  # in what members subscribe differently, as brokers that watch it say


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """How far a group is in one queue. `owner` is the member that has it, None when nobody said so; a time of 0 is none."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_consumed_ms: int  # when the last message was stored that it consumed
    owner: str | None = None

    @property
    def lag(self) -> int:
        """How many messages it has yet to consume."""
        return max(self.broker_offset - self.consumer_offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """How far a group is in all its queues, in order."""

    queues: tuple[GroupQueue, ...]
    consumed_per_s: float
    unreachable: Mapping[str, str]

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)
