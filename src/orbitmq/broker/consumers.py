"""Consumers: which clients consume for which group, what the group subscribes, and whom to tell when that changes.

Sans-IO: time comes in as `now_ms`; whom to send NOTIFY_CONSUMER_IDS_CHANGED and which connections to close go out as return values.

A group has one table of subscriptions, and each full heartbeat of any member replaces it: a topic that is new, or comes with a larger
version, is taken; a topic that is not in the heartbeat is dropped. So members that subscribe differently take turns at it and lose
messages: what each member said last is kept, and conflicts are logged when they change.

Invariants: a group is there as long as it has members; `fingerprint` is that of its last heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from orbitmq.broker.clients import ClientInfo, Member, Memberships
from orbitmq.broker.guards.subscriptions import Wish, conflicts, explained, wish_of
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from orbitmq.remoting.channel import Channel

log = logging.getLogger(__name__)


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
        "_conflicts",
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
        self._wishes: dict[Channel, Wish] = {}  # what each member subscribes
        self._conflicts: list[str] = []

    @property
    def client_ids(self) -> list[str]:
        """The ids of the members, in the order they joined."""
        return [member.info.client_id for member in self.members.values()]

    def member(self, client_id: str) -> Member | None:
        """The member of that id."""
        return next((member for member in self.members.values() if member.info.client_id == client_id), None)

    @property
    def conflicts(self) -> Sequence[str]:
        """What the members do not agree on, a sentence for each topic; members that left their subscriptions out count as they were."""
        return self._conflicts

    def conflicts_with(self, client_id: str, subscriptions: Iterable[SubscriptionData]) -> list[str]:
        """What the members would not agree on if a client subscribed so; nothing, if it is a member that does already."""
        wishes, wish = self._wishes_by_client(), wish_of(subscriptions)
        return [] if wishes.get(client_id) == wish else conflicts({**wishes, client_id: wish})

    def _wishes_by_client(self) -> dict[str, Wish]:
        """A client that connected anew counts as it is on its last connection."""
        return {self.members[channel].info.client_id: wish for channel, wish in self._wishes.items()}

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

    def _hear_wish(self, channel: Channel, subscriptions: Iterable[SubscriptionData], warns: bool) -> None:
        """Keep what a member subscribes."""
        wish = wish_of(subscriptions)
        if self._wishes.get(channel) != wish:
            self._wishes[channel] = wish
            self._compare(warns)

    def _forget_wish(self, channel: Channel) -> None:
        if self._wishes.pop(channel, None) is not None:
            self._compare(warns=False)

    def _compare(self, warns: bool) -> None:
        """See whether the members agree, and log it when they differ in another way than before."""
        found = conflicts(self._wishes_by_client())
        if warns and found and found != self._conflicts:
            log.warning("subscriptions_differ group=%s what='%s'", self.name, explained(self.name, found))
        self._conflicts = found


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
        warns: bool = True,
    ) -> Change:
        """Hear that a client consumes for a group. With `keep_subscriptions` it did not say what; with `notifies` off nobody is told.

        With `warns` a log line says when its members begin to differ.
        """
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
            group._hear_wish(channel, data.subscriptions, warns)
            if changed:
                log.info("subscriptions_changed group=%s topics=%s", data.group, ",".join(group.subscriptions))
        return Change(data.group, group._to_notify(changed=joined or changed))

    def unregister(self, group: str, channel: Channel) -> Change:
        """Take a client out of a group."""
        if channel not in self._memberships.members(group):
            return Change(group, [])
        self._groups[group]._forget_wish(channel)
        member = self._memberships.leave(group, channel)
        assert member is not None, "it was there"
        log.info("consumer_left group=%s client=%s peer=%s", group, member.info.client_id, channel.remote_address)
        found = self._groups[group]
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
