"""Consumers: which clients consume for which group, the group's subscriptions, and which members to
notify of changes.

Sans-IO: time comes in as `now_ms`; the receivers of NOTIFY_CONSUMER_IDS_CHANGED and connections to
close go out as return values.

A group has one table of subscriptions, and each full heartbeat of any member replaces it: a topic
that is new, or has a larger version, is added; a topic that is not in the heartbeat is dropped. So
members that subscribe differently overwrite each other and lose messages: the last subscription of
each member is kept, and conflicts are logged when they change.

Invariants: a group exists as long as it has members; `fingerprint` is that of its last heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from orbitmq.broker.clients.registry import ClientInfo, Member, Memberships, Peer
from orbitmq.broker.clients.subscription_conflicts import Wish, Wishes, explained, wish_of
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

TOPICS_LOGGED_MAX: Final = 100

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """A change of a group: `notify` are the members that must rebalance."""

    group: str
    notify: list[Peer]


class Expired(NamedTuple):
    """A member that expired: its connection, to be closed, and the change of its group."""

    channel: Peer
    change: Change


class ConsumerGroup:
    """A consumer group that is online."""

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

    def __init__(self, name: str, members: Mapping[Peer, Member]) -> None:
        self.name = name
        self.members = members
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.fingerprint: int | None = None
        self.notifies = True
        self._wishes = Wishes()  # the subscriptions of each member
        self._conflicts: list[str] = []

    @property
    def client_ids(self) -> list[str]:
        """Return the ids of the members in the order they joined, without duplicates: a client may
        reconnect before its old connection has ended.

        Queues are allocated among these ids: a duplicate would leave queues unassigned.
        """
        return list(dict.fromkeys(member.info.client_id for member in self.members.values()))

    def member(self, client_id: str) -> Member | None:
        """Return the member with that id, on its newest connection."""
        return next(
            (
                member
                for member in reversed(list(self.members.values()))
                if member.info.client_id == client_id
            ),
            None,
        )

    @property
    def conflicts(self) -> Sequence[str]:
        """Return the subscription conflicts of the members, a sentence per topic; members that
        omitted their subscriptions count with their previous ones.
        """
        return self._conflicts

    def conflicts_with(self, client_id: str, wish: Wish) -> list[str]:
        """Return the conflicts if a client subscribed so; none if it is a member that already
        does.
        """
        return self._wishes.conflicts_with(client_id, wish)

    def _to_notify(self, *, changed: bool) -> list[Peer]:
        return (
            list(self.members)
            if changed and self.notifies and self.message_model is not MessageModel.BROADCASTING
            else []
        )

    def _subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace the table; return whether its topics changed."""
        before = self.subscriptions
        after: dict[str, SubscriptionData] = {}
        for wanted in subscriptions:
            known = after.get(wanted.topic) or before.get(wanted.topic)
            after[wanted.topic] = (
                wanted if known is None or wanted.sub_version > known.sub_version else known
            )
        self.subscriptions = {topic: after[topic] for topic in before if topic in after} | after
        return before.keys() != after.keys()

    def _hear_wish(self, channel: Peer, wish: Wish, warns: bool) -> None:
        """Store the subscriptions of a member."""
        if self._wishes.put(channel, self.members[channel].info.client_id, wish):
            self._compare(warns)

    def _forget_wish(self, channel: Peer) -> None:
        if self._wishes.remove(channel):
            self._compare(warns=False)

    def _compare(self, warns: bool) -> None:
        """Compare the members' subscriptions, and log conflicts that changed."""
        found = self._wishes.conflicts()
        if warns and found and found != self._conflicts:
            log.warning(
                "subscriptions_differ group=%s what='%s'", self.name, explained(self.name, found)
            )
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
        """Return the group, if it is online."""
        return self._groups.get(group)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the online groups that subscribe to a topic."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    def register(
        self,
        channel: Peer,
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
        """Register a client in a group. With `keep_subscriptions` its heartbeat omitted them; with
        `notifies` off no member is notified.

        `wish` is made from its subscriptions, by callers that already have it; with `warns` new
        conflicts between members are logged.
        """
        joined = self._memberships.join(data.group, channel, info, now_ms)
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(
                data.group, self._memberships.members(data.group)
            )
        if joined:
            log.info(
                "consumer_joined group=%s client=%s peer=%s",
                data.group,
                info.client_id,
                channel.remote_address,
            )
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = fingerprint
        group.notifies = notifies
        changed = False
        if not keep_subscriptions:
            changed = group._subscribe(data.subscriptions)
            group._hear_wish(channel, wish_of(data.subscriptions) if wish is None else wish, warns)
            if changed:
                count, topics = (
                    len(group.subscriptions),
                    ",".join(islice(group.subscriptions, TOPICS_LOGGED_MAX)),
                )
                log.info(
                    "subscriptions_changed group=%s count=%d topics=%s", data.group, count, topics
                )
        return Change(data.group, group._to_notify(changed=joined or changed))

    def unregister(self, group: str, channel: Peer) -> Change:
        """Remove a client from a group."""
        if channel not in self._memberships.members(group):
            return Change(group, [])
        self._groups[group]._forget_wish(channel)
        member = self._memberships.leave(group, channel)
        assert member is not None, "it was there"
        log.info(
            "consumer_left group=%s client=%s peer=%s",
            group,
            member.info.client_id,
            channel.remote_address,
        )
        found = self._groups[group]
        if not found.members:
            del self._groups[group]
        return Change(group, found._to_notify(changed=True))

    def on_close(self, channel: Peer) -> Iterator[Change]:
        """Remove a closed connection from its groups, one per step of the iterator."""
        for group in self._memberships.groups_of(channel):
            yield self.unregister(group, channel)

    def groups_of(self, channel: Peer) -> list[str]:
        """Return the groups that a connection has joined."""
        return self._memberships.groups_of(channel)

    def hear_all(self, now_ms: int) -> None:
        """Count as a heartbeat from every client."""
        self._memberships.hear_all(now_ms)

    def scan(self, now_ms: int) -> Iterator[Expired]:
        """Remove the clients that were silent for too long, one per step of the iterator."""
        for group, member in self._memberships.silent(now_ms):
            if member.channel in self._memberships.members(group):  # it may have left since
                log.warning(
                    "consumer_expired group=%s client=%s peer=%s",
                    group,
                    member.info.client_id,
                    member.channel.remote_address,
                )
                yield Expired(member.channel, self.unregister(group, member.channel))
