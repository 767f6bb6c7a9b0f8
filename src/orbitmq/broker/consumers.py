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
from itertools import islice
from typing import Final, NamedTuple

from orbitmq.broker.clients import ClientInfo, Member, Memberships
from orbitmq.broker.guards.subscriptions import Wish, Wishes, explained, wish_of
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from orbitmq.remoting.channel import Channel

TOPICS_LOGGED_MAX: Final = 100

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """A group that is not what it was: `notify` is to be told to rebalance."""

    group: str
    notify: list[Channel]


class Expired(NamedTuple):
    """What the silence of a member led to: a connection to close, and a group that lost it."""

    channel: Channel
    change: Change


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
        self._wishes = Wishes()  # what each member subscribes
        self._conflicts: list[str] = []

    @property
    def client_ids(self) -> list[str]:
        """The ids of the members, in the order they joined; once, if a client comes anew before its old connection has ended.

        Queues are shared out among them: one that stood there twice would leave queues to nobody.
        """
        return list(dict.fromkeys(member.info.client_id for member in self.members.values()))

    def member(self, client_id: str) -> Member | None:
        """The member of that id, on its newest connection."""
        return next((member for member in reversed(list(self.members.values())) if member.info.client_id == client_id), None)

    @property
    def conflicts(self) -> Sequence[str]:
        """What the members do not agree on, a sentence for each topic; members that left their subscriptions out count as they were."""
        return self._conflicts

    def conflicts_with(self, client_id: str, wish: Wish) -> list[str]:
        """What the members would not agree on if a client subscribed so; nothing, if it is a member that does already."""
        return self._wishes.conflicts_with(client_id, wish)

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

    def _hear_wish(self, channel: Channel, wish: Wish, warns: bool) -> None:
        """Keep what a member subscribes."""
        if self._wishes.put(channel, self.members[channel].info.client_id, wish):
            self._compare(warns)

    def _forget_wish(self, channel: Channel) -> None:
        if self._wishes.remove(channel):
            self._compare(warns=False)

    def _compare(self, warns: bool) -> None:
        """See whether the members agree, and log it when they differ in another way than before."""
        found = self._wishes.conflicts()
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
        wish: Wish | None = None,
    ) -> Change:
        """Hear that a client consumes for a group. With `keep_subscriptions` it did not say what; with `notifies` off nobody is told.

        `wish` is that of its subscriptions, from callers that have made it already; with `warns` a log line says when members begin to
        differ.
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
            group._hear_wish(channel, wish_of(data.subscriptions) if wish is None else wish, warns)
            if changed:
                count, topics = len(group.subscriptions), ",".join(islice(group.subscriptions, TOPICS_LOGGED_MAX))
                log.info("subscriptions_changed group=%s count=%d topics=%s", data.group, count, topics)
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

    def on_close(self, channel: Channel) -> Iterator[Change]:
        """Take a connection that is gone out of its groups, one for each step of the iterator."""
        for group in self._memberships.groups_of(channel):
            yield self.unregister(group, channel)

    def groups_of(self, channel: Channel) -> list[str]:
        """The groups that are joined by a connection."""
        return self._memberships.groups_of(channel)

    def hear_all(self, now_ms: int) -> None:
        """Take a sign of life from every client."""
        self._memberships.hear_all(now_ms)

    def scan(self, now_ms: int) -> Iterator[Expired]:
        """Take away the clients that were silent for too long, one for each step of the iterator."""
        for group, member in self._memberships.silent(now_ms):
            if member.channel in self._memberships.members(group):  # it may have left since
                log.warning("consumer_expired group=%s client=%s peer=%s", group, member.info.client_id, member.channel.remote_address)
                yield Expired(member.channel, self.unregister(group, member.channel))
