"""Subscription conflicts: members of one group that subscribe differently.

A broker has one table of subscriptions for a group, and every heartbeat of a member replaces it:
members that differ overwrite each other, and miss messages. Sans-IO. Invariants: the order of tags
makes no difference; a refused client is remembered until its connection closes or it is accepted.

Members with equal subscriptions are counted together, so that a group of thousands that agree costs
no more than a group of one. A group with conflicts is compared up to the limits below; the report
says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from orbitmq.broker.clients.registry import Peer
from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData, is_tag_type

_BETWEEN_TAGS: Final = "||"
_SHOWN_MAX: Final = 500  # characters of an expression
KINDS_MAX: Final = 20  # different wishes that are compared
TOPICS_MAX: Final = 1_000  # topics of all of them
CLIENTS_SHOWN_MAX: Final = 20  # for each side of a conflict
_ID_SHOWN_MAX: Final = 100  # characters
_TEXT_MAX: Final = (
    4_000  # characters of the whole report; it is kept, logged and sent for each client
)


class Wanted(NamedTuple):
    """A member's subscription to a topic."""

    kind: str
    expression: str

    def __str__(self) -> str:
        shown = (
            self.expression
            if len(self.expression) <= _SHOWN_MAX
            else f"{self.expression[:_SHOWN_MAX]}…"
        )
        return f"{self.kind} {shown!r}"


Wish: TypeAlias = Mapping[str, Wanted]  # by topic


def wish_of(subscriptions: Iterable[SubscriptionData]) -> dict[str, Wanted]:
    """Return the subscriptions of a heartbeat."""
    return {each.topic: _wanted(each) for each in subscriptions}


def _wanted(subscription: SubscriptionData) -> Wanted:
    expression = subscription.sub_string or SUBSCRIBE_ALL
    if not is_tag_type(subscription.expression_type):
        return Wanted(str(subscription.expression_type), expression)
    tags = {tag.strip() for tag in expression.split(_BETWEEN_TAGS)} - {""}
    return Wanted(TAG, f" {_BETWEEN_TAGS} ".join(sorted(tags)))


_Key: TypeAlias = frozenset[tuple[str, Wanted]]


class _Said(NamedTuple):
    """The subscriptions of a client, as sent on one of its connections."""

    client_id: str
    key: _Key
    wish: Wish


class _Kind:
    """The clients with equal subscriptions."""

    __slots__ = ("clients", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.clients: dict[str, None] = {}


class Wishes:
    """The subscriptions of a group's members. A client with several connections counts with the one
    that sent its first heartbeat last.
    """

    def __init__(self) -> None:
        self._said: dict[Peer, _Said] = {}
        self._channels: dict[str, dict[Peer, None]] = {}  # by client id, newest last
        self._kinds: dict[_Key, _Kind] = {}

    def put(self, channel: Peer, client_id: str, wish: Wish) -> bool:
        """Store the subscriptions of a client on a connection; return whether they changed."""
        said, before = _Said(client_id, frozenset(wish.items()), wish), self._said.get(channel)
        if before is not None and (before.client_id, before.key) == (client_id, said.key):
            return False
        if before is not None and before.client_id != client_id:
            self.remove(channel)
        self._withdraw(client_id)
        self._said[channel] = said
        self._channels.setdefault(client_id, {})[channel] = None
        self._count(client_id)
        return True

    def remove(self, channel: Peer) -> bool:
        """Remove the subscriptions of a connection; return whether there were any."""
        if channel not in self._said:
            return False
        client_id = self._said[channel].client_id
        self._withdraw(client_id)
        del self._said[channel]
        channels = self._channels[client_id]
        del channels[channel]
        if channels:
            self._count(client_id)
        else:
            del self._channels[client_id]
        return True

    def _newest(self, client_id: str) -> _Said | None:
        channels = self._channels.get(client_id)
        return self._said[next(reversed(channels))] if channels else None

    def _withdraw(self, client_id: str) -> None:
        """Remove a client from its kind."""
        said = self._newest(client_id)
        if said is not None:
            kind = self._kinds[said.key]
            del kind.clients[client_id]
            if not kind.clients:
                del self._kinds[said.key]

    def _count(self, client_id: str) -> None:
        """Add a client to the kind of its newest connection."""
        said = self._newest(client_id)
        assert said is not None, "the client has subscriptions"
        kind = self._kinds.get(said.key)
        if kind is None:
            kind = self._kinds[said.key] = _Kind(said.wish)
        kind.clients[client_id] = None

    def conflicts(self) -> list[str]:
        """Return the conflicts between members: a sentence per topic."""
        return (
            []
            if len(self._kinds) < 2
            else _conflicts(
                [(kind.wish, kind.clients) for kind in islice(self._kinds.values(), KINDS_MAX)]
            )
        )

    def conflicts_with(self, client_id: str, wish: Wish) -> list[str]:
        """Return the conflicts if a client subscribed so; none if it is a member that already
        does.
        """
        said, key = self._newest(client_id), frozenset(wish.items())
        if (said is not None and said.key == key) or self._kinds.keys() <= {key}:
            return []
        others = [
            (
                kind.wish,
                [each for each in islice(kind.clients, CLIENTS_SHOWN_MAX + 2) if each != client_id],
            )
            for kind in islice(self._kinds.values(), KINDS_MAX)
        ]
        return _conflicts(
            [*((wanted, clients) for wanted, clients in others if clients), (wish, [client_id])]
        )


def _conflicts(kinds: Sequence[tuple[Wish, Collection[str]]]) -> list[str]:
    found: list[str] = []
    left = _TEXT_MAX
    for topic in islice(
        dict.fromkeys(topic for wish, _ in kinds for topic in islice(wish, TOPICS_MAX)), TOPICS_MAX
    ):
        said: dict[Wanted | None, list[str]] = {}
        for wish, clients in kinds:
            said.setdefault(wish.get(topic), []).extend(islice(clients, CLIENTS_SHOWN_MAX + 1))
        if len(said) > 1:
            parts = (
                f"{'not subscribed' if wanted is None else wanted} by {_shown(ids)}"
                for wanted, ids in said.items()
            )
            text = f"{topic}: " + "; ".join(parts)
            left -= len(text)
            if left < 0:
                return [*found, f"{text[: left + len(text)]}… and maybe others"]
            found.append(text)
    return found


def _shown(client_ids: Sequence[str]) -> str:
    more = ", …" if len(client_ids) > CLIENTS_SHOWN_MAX else ""
    return ", ".join(each[:_ID_SHOWN_MAX] for each in client_ids[:CLIENTS_SHOWN_MAX]) + more


def explained(group: str, found: Iterable[str]) -> str:
    """Return conflicts as one sentence with the remedy."""
    return (
        f"members of group {group} subscribe differently: {' | '.join(found)}. Members of one group"
        " must have identical subscriptions, or they miss messages: give the others a group of"
        " their own"
    )


class Refusals:
    """The clients that were refused because of conflicts, with the reasons."""

    def __init__(self) -> None:
        self._reasons: dict[str, dict[Peer, str]] = {}
        self._groups: dict[Peer, dict[str, None]] = {}

    def add(self, group: str, channel: Peer, reason: str) -> bool:
        """Note a refusal; return whether it is new."""
        reasons = self._reasons.setdefault(group, {})
        is_news = reasons.get(channel) != reason
        reasons[channel] = reason
        self._groups.setdefault(channel, {})[group] = None
        return is_news

    def remove(self, channel: Peer, group: str | None = None) -> None:
        """Forget the refusals of a connection: for one group, or for all."""
        groups = self._groups.get(channel, {})
        for name in list(groups) if group is None else [group] if group in groups else []:
            del groups[name], self._reasons[name][channel]
            if not self._reasons[name]:
                del self._reasons[name]
        if not groups:
            self._groups.pop(channel, None)

    def of(self, group: str) -> list[str]:
        """Return the reasons why clients are currently kept out of a group."""
        return list(self._reasons.get(group, {}).values())
