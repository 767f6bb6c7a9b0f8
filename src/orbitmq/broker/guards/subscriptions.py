"""Members of one group that subscribe differently: what each wants, and what they do not agree on.

A broker has one table of subscriptions for a group, and every heartbeat of a member replaces it: members that differ take turns at it, and
messages pass them by. Sans-IO. Invariants: the order in which tags are listed is no difference; who was refused is known as long as his
connection lasts, or until he is taken.

Members with equal subscriptions are counted together, so that a group of thousands that agree costs no more than a group of one. A group
that does not is compared up to the limits below; what is reported says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData, is_tag_type
from orbitmq.remoting.channel import Channel

_BETWEEN_TAGS: Final = "||"
_SHOWN_MAX: Final = 500  # characters of an expression
KINDS_MAX: Final = 20  # different wishes that are compared
TOPICS_MAX: Final = 1_000  # topics of all of them
CLIENTS_SHOWN_MAX: Final = 20  # for each side of a conflict
_ID_SHOWN_MAX: Final = 100  # characters
_TEXT_MAX: Final = 4_000  # characters of all that is said; it is kept, logged and sent for each client


class Wanted(NamedTuple):
    """What a member wants of a topic."""

    kind: str
    expression: str

    def __str__(self) -> str:
        shown = self.expression if len(self.expression) <= _SHOWN_MAX else f"{self.expression[:_SHOWN_MAX]}…"
        return f"{self.kind} {shown!r}"


Wish: TypeAlias = Mapping[str, Wanted]  # by topic


def wish_of(subscriptions: Iterable[SubscriptionData]) -> dict[str, Wanted]:
    """What a heartbeat says."""
    return {each.topic: _wanted(each) for each in subscriptions}


def _wanted(subscription: SubscriptionData) -> Wanted:
    expression = subscription.sub_string or SUBSCRIBE_ALL
    if not is_tag_type(subscription.expression_type):
        return Wanted(str(subscription.expression_type), expression)
    tags = {tag.strip() for tag in expression.split(_BETWEEN_TAGS)} - {""}
    return Wanted(TAG, f" {_BETWEEN_TAGS} ".join(sorted(tags)))


_Key: TypeAlias = frozenset[tuple[str, Wanted]]


class _Said(NamedTuple):
    """What a client wants, as it said on one of its connections."""

    client_id: str
    key: _Key
    wish: Wish


class _Kind:
    """Clients that want the same."""

    __slots__ = ("clients", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.clients: dict[str, None] = {}


class Wishes:
    """What the members of a group want. A client with several connections counts as it is on the one that spoke first last."""

    def __init__(self) -> None:
        self._said: dict[Channel, _Said] = {}
        self._channels: dict[str, dict[Channel, None]] = {}  # by client id, the newest last
        self._kinds: dict[_Key, _Kind] = {}

    def put(self, channel: Channel, client_id: str, wish: Wish) -> bool:
        """Hear what a client wants on a connection; whether that is news."""
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

    def remove(self, channel: Channel) -> bool:
        """Forget what came by a connection; whether there was anything."""
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
        """Take a client out of its kind."""
        said = self._newest(client_id)
        if said is not None:
            kind = self._kinds[said.key]
            del kind.clients[client_id]
            if not kind.clients:
                del self._kinds[said.key]

    def _count(self, client_id: str) -> None:
        """Put a client into the kind of its newest connection."""
        said = self._newest(client_id)
        assert said is not None, "it has said something"
        kind = self._kinds.get(said.key)
        if kind is None:
            kind = self._kinds[said.key] = _Kind(said.wish)
        kind.clients[client_id] = None

    def conflicts(self) -> list[str]:
        """What members do not agree on: a sentence for each topic."""
        return [] if len(self._kinds) < 2 else _conflicts([(kind.wish, kind.clients) for kind in islice(self._kinds.values(), KINDS_MAX)])

    def conflicts_with(self, client_id: str, wish: Wish) -> list[str]:
        """What they would not agree on if a client wanted that; nothing, if it is a member that does already."""
        said, key = self._newest(client_id), frozenset(wish.items())
        if (said is not None and said.key == key) or self._kinds.keys() <= {key}:
            return []
        others = [
            (kind.wish, [each for each in islice(kind.clients, CLIENTS_SHOWN_MAX + 2) if each != client_id])
            for kind in islice(self._kinds.values(), KINDS_MAX)
        ]
        return _conflicts([*((wanted, clients) for wanted, clients in others if clients), (wish, [client_id])])


def _conflicts(kinds: Sequence[tuple[Wish, Collection[str]]]) -> list[str]:
    found: list[str] = []
    left = _TEXT_MAX
    for topic in islice(dict.fromkeys(topic for wish, _ in kinds for topic in islice(wish, TOPICS_MAX)), TOPICS_MAX):
        said: dict[Wanted | None, list[str]] = {}
        for wish, clients in kinds:
            said.setdefault(wish.get(topic), []).extend(islice(clients, CLIENTS_SHOWN_MAX + 1))
        if len(said) > 1:
            parts = (f"{'not subscribed' if wanted is None else wanted} by {_shown(ids)}" for wanted, ids in said.items())
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
    """Conflicts as one sentence that says what to do."""
    return (
        f"members of group {group} subscribe differently: {' | '.join(found)}. Members of one group must subscribe the same, or messages "
        "pass them by: give those that want others a group of their own"
    )


class Refusals:
    """Whom a broker turned away because of that, and why."""

    def __init__(self) -> None:
        self._reasons: dict[str, dict[Channel, str]] = {}
        self._groups: dict[Channel, dict[str, None]] = {}

    def add(self, group: str, channel: Channel, reason: str) -> bool:
        """Note a refusal; whether it is news."""
        reasons = self._reasons.setdefault(group, {})
        is_news = reasons.get(channel) != reason
        reasons[channel] = reason
        self._groups.setdefault(channel, {})[group] = None
        return is_news

    def remove(self, channel: Channel, group: str | None = None) -> None:
        """Forget what was said to a connection: of one group, or of all."""
        groups = self._groups.get(channel, {})
        for name in list(groups) if group is None else [group] if group in groups else []:
            del groups[name], self._reasons[name][channel]
            if not self._reasons[name]:
                del self._reasons[name]
        if not groups:
            self._groups.pop(channel, None)

    def of(self, group: str) -> list[str]:
        """The reasons for which clients are kept out of a group now."""
        return list(self._reasons.get(group, {}).values())
