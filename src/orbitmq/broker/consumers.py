"""Consumers: which clients consume for which group, what the group subscribes, and whom to tell when that changes.

Sans-IO: time comes in as `now_ms`; whom to send NOTIFY_CONSUMER_IDS_CHANGED and which connections to close go out as return values.

A group has one table of subscriptions, and each full heartbeat of any member replaces it: a topic that is new, or comes with a larger
version, is taken; a topic that is not in the heartbeat is dropped. So members that subscribe differently take turns at it and lose
messages: what each member said last is kept, and a difference is logged when it appears.

Invariants: a group is there as long as it has members; `fingerprint` is that of its last heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from orbitmq.broker.clients import ClientInfo, Member, Memberships
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from orbitmq.remoting.channel import Channel

log = logging.getLogger(__name__)

_NOTHING: Final[dict[str, tuple[str | None, str | None]]] = {}


class Change(NamedTuple):
    """A group that is not what it was: `notify` is to be told to rebalance."""

    group: str
    notify: list[Channel]


class Expired(NamedTuple):
    """What silence led to: connections to close, and groups that lost members."""

    channels: list[Channel]
    changes: list[Change]


class ConsumerGroup:
    """A group that is online."""

    __slots__ = (
        "_wishes",
        "consume_from_where",
        "consume_type",
        "fingerprint",
        "members",
        "message_model",
        "name",
        "notifies",
        "subscriptions",
    )

    def __init__(self, name: str, members: Mapping[Channel, Member]) -> None:
        self.name = name
        self.members = members
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.fingerprint: int | None = None
        self.notifies = True
        self._wishes: dict[Channel, dict[str, tuple[str | None, str | None]]] = {}  # what each member subscribes: topic -> type, expression

    @property
    def client_ids(self) -> list[str]:
        """The ids of the members, in the order they joined."""
        return [member.info.client_id for member in self.members.values()]

    def member(self, client_id: str) -> Member | None:
        """The member of that id."""
        return next((member for member in self.members.values() if member.info.client_id == client_id), None)

    def differences(self) -> list[str]:
        """What the members do not agree on, a sentence for each topic; members that left their subscriptions out count as they were."""
        wishes = self._wishes
        found = []
        for topic in dict.fromkeys(topic for wish in wishes.values() for topic in wish):
            said: dict[tuple[str | None, str | None] | None, list[str]] = {}
            for channel, wish in wishes.items():
                said.setdefault(wish.get(topic), []).append(self.members[channel].info.client_id)
            if len(said) > 1:
                found.append(f"{topic}: " + "; ".join(f"{_wish_text(wish)} by {', '.join(ids)}" for wish, ids in said.items()))
        return found

    def _to_notify(self, *, changed: bool) -> list[Channel]:
        return list(self.members) if changed and self.notifies and self.message_model is not MessageModel.BROADCASTING else []

    def _subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace the table; whether its topics are others now."""
        before = self.subscriptions
        after: dict[str, SubscriptionData] = {}
        for wanted in subscriptions:
            known = after.get(wanted.topic) or before.get(wanted.topic)
            after[wanted.topic] = wanted if known is None or wanted.sub_version > known.sub_version else known
        self.subscriptions = {topic: after[topic] for topic in before if topic in after} | after
        return before.keys() != after.keys()

    def _hear_wish(self, channel: Channel, subscriptions: Iterable[SubscriptionData]) -> None:
        """Keep what a member subscribes, and log when the members begin to differ."""
        wish = {wanted.topic: (wanted.expression_type, wanted.sub_string) for wanted in subscriptions}
        if self._wishes.get(channel, _NOTHING) == wish:
            return
        self._wishes[channel] = wish
        if differences := self.differences():
            log.warning(
                "subscriptions_differ group=%s what=%s: members of one group must subscribe the same, or messages pass them by; "
                "give those that want others a group of their own",
                self.name,
                " | ".join(differences),
            )


class Consumers:
    """The consumer groups that are online."""

    def __init__(self) -> None:
        self._memberships = Memberships()
        self._groups: dict[str, ConsumerGroup] = {}

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def find(self, group: str) -> ConsumerGroup | None:
        """The group, if it is online."""
        return self._groups.get(group)

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups online that subscribe a topic."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    def register(
        self,
        channel: Channel,
        info: ClientInfo,
        data: ConsumerData,
        now_ms: int,
        *,
        fingerprint: int = 0,
        keep_subscriptions: bool = False,
        notifies: bool = True,
    ) -> Change:
        """Hear that a client consumes for a group. With `keep_subscriptions` it did not say what; with `notifies` off nobody is told."""
        joined = self._memberships.join(data.group, channel, info, now_ms)
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(data.group, self._memberships.members(data.group))
        if joined:
            log.info("consumer_joined group=%s client=%s peer=%s", data.group, info.client_id, channel.remote_address)
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = fingerprint
        group.notifies = notifies
        changed = False
        if not keep_subscriptions:
            changed = group._subscribe(data.subscriptions)
            group._hear_wish(channel, data.subscriptions)
            if changed:
                log.info("subscriptions_changed group=%s topics=%s", data.group, ",".join(group.subscriptions))
        return Change(data.group, group._to_notify(changed=joined or changed))

    def unregister(self, group: str, channel: Channel) -> Change:
        """Take a client out of a group."""
        member = self._memberships.leave(group, channel)
        if member is None:
            return Change(group, [])
        log.info("consumer_left group=%s client=%s peer=%s", group, member.info.client_id, channel.remote_address)
        found = self._groups[group]
        found._wishes.pop(channel, None)
        if not found.members:
            del self._groups[group]
        return Change(group, found._to_notify(changed=True))

    def on_close(self, channel: Channel) -> list[Change]:
        """Take away whoever was reached by a connection that is gone."""
        return [self.unregister(group, channel) for group in self._memberships.groups_of(channel)]

    def hear_all(self, now_ms: int) -> None:
        """Take a sign of life from every client."""
        self._memberships.hear_all(now_ms)

    def scan(self, now_ms: int) -> Expired:
        """Take away the clients that were silent for too long."""
        silent = self._memberships.silent(now_ms)
        last: dict[str, Change] = {}
        for group, member in silent:
            log.warning("consumer_expired group=%s client=%s peer=%s", group, member.info.client_id, member.channel.remote_address)
            last[group] = self.unregister(group, member.channel)
        return Expired(list(dict.fromkeys(member.channel for _, member in silent)), list(last.values()))


def _wish_text(wish: tuple[str | None, str | None] | None) -> str:
    return "not subscribed" if wish is None else f"{wish[0]} {wish[1]!r}"
