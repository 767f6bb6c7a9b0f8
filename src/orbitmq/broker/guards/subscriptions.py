"""Members of one group that subscribe differently: what each wants, and what they do not agree on.

A broker has one table of subscriptions for a group, and every heartbeat of a member replaces it: members that differ take turns at it, and
messages pass them by. Sans-IO. Invariants: the order in which tags are listed is no difference; who was refused is known as long as his
connection lasts, or until he is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData, is_tag_type
from orbitmq.remoting.channel import Channel

_BETWEEN_TAGS: Final = "||"


class Wanted(NamedTuple):
    """What a member wants of a topic."""

    kind: str
    expression: str

    def __str__(self) -> str:
        return f"{self.kind} {self.expression!r}"


Wish: TypeAlias = Mapping[str, Wanted]  # by topic


def wish_of(subscriptions: Iterable[SubscriptionData]) -> Wish:
    """What a heartbeat says."""
    return {each.topic: _wanted(each) for each in subscriptions}


def _wanted(subscription: SubscriptionData) -> Wanted:
    expression = subscription.sub_string or SUBSCRIBE_ALL
    if not is_tag_type(subscription.expression_type):
        return Wanted(str(subscription.expression_type), expression)
    tags = {tag.strip() for tag in expression.split(_BETWEEN_TAGS)} - {""}
    return Wanted(TAG, f" {_BETWEEN_TAGS} ".join(sorted(tags)))


def conflicts(wishes: Mapping[str, Wish]) -> list[str]:
    """What members, by client id, do not agree on: a sentence for each topic."""
    found = []
    for topic in dict.fromkeys(topic for wish in wishes.values() for topic in wish):
        said: dict[Wanted | None, list[str]] = {}
        for client_id, wish in wishes.items():
            said.setdefault(wish.get(topic), []).append(client_id)
        if len(said) > 1:
            parts = (f"{'not subscribed' if wanted is None else wanted} by {', '.join(ids)}" for wanted, ids in said.items())
            found.append(f"{topic}: " + "; ".join(parts))
    return found


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

    def add(self, group: str, channel: Channel, reason: str) -> bool:
        """Note a refusal; whether it is news."""
        reasons = self._reasons.setdefault(group, {})
        is_news = reasons.get(channel) != reason
        reasons[channel] = reason
        return is_news

    def remove(self, channel: Channel, group: str | None = None) -> None:
        """Forget what was said to a connection: of one group, or of all."""
        for name in list(self._reasons) if group is None else [group] if group in self._reasons else []:
            self._reasons[name].pop(channel, None)
            if not self._reasons[name]:
                del self._reasons[name]

    def of(self, group: str) -> list[str]:
        """The reasons for which clients are kept out of a group now."""
        return list(self._reasons.get(group, {}).values())
