"""Policies of 5.x: which user may do what with which resources, from where. Pure.

Of the entries that match resource, action and address the most specific decides: a kind before any
kind, a name before a prefix before all names, a longer prefix before a shorter one; between equals
a denial wins. The custom policy is evaluated first, the default one if nothing in it matches;
without a match access is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orbitmq.access.addresses import Matches, network
from orbitmq.access.requests import Action, Resource, is_waiting_topic
from orbitmq.protocol.headers.named_resources import ResourceKind

_ANY: Final = "*"
_USER: Final = "User:"


class Decision(Enum):
    """The effect of an entry; the values are Apache's names."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(Enum):
    """Which of a user's policies; the values are Apache's names."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Match(Enum):
    """How the name of a pattern matches."""

    LITERAL = 2
    PREFIX = 1
    ANY = 0


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """`*`, `Topic:*`, `Topic:orders-*` or `Topic:orders`."""

    kind: ResourceKind
    match: Match = Match.ANY
    name: str = ""

    @classmethod
    def of_new_rule(cls, text: str | None) -> ResourcePattern:
        """Parse a pattern; ValueError also if a `*` is not at its end, where it would not mean what
        it seems to.
        """
        if _ANY in (text or "").strip()[:-1]:
            raise ValueError(
                f"The resource {text!r} is illegal: a * is allowed at the end only, and matches"
                " every name with that prefix"
            )
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str | None) -> ResourcePattern:
        """Parse a pattern, which ends before the first `*` as in Apache; ValueError if it is
        illegal.
        """
        wanted = (text or "").strip()
        if wanted == _ANY:
            return cls(ResourceKind.ANY)
        kind, colon, name = wanted.partition(":")
        found = next(
            (
                each
                for each in ResourceKind
                if each.value.lower() == kind.lower() and each is not ResourceKind.ANY
            ),
            None,
        )
        if not colon or not name or found is None:
            raise ValueError(
                f"The resource {wanted!r} is null or illegal; write *, Topic:name, Group:name,"
                " Cluster:name, or Topic:prefix*"
            )
        if name == _ANY:
            return cls(found)
        if name.endswith(_ANY):
            return cls(found, Match.PREFIX, name.partition(_ANY)[0])
        return cls(found, Match.LITERAL, name)

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return _ANY
        return f"{self.kind.value}:{self.name}{'' if self.match is Match.LITERAL else _ANY}"

    def matches(self, resource: Resource) -> bool:
        """Whether the rule applies to the resource; topics that hold deferred messages match only
        by their full name.
        """
        if self.match is not Match.LITERAL and is_waiting_topic(resource):
            return False
        if self.kind is ResourceKind.ANY:
            return True
        if self.kind is not resource.kind:
            return False
        if self.match is Match.LITERAL:
            return resource.name == self.name
        return resource.name.startswith(self.name)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Greater for a more specific pattern."""
        return self.kind is not ResourceKind.ANY, self.match.value, len(self.name)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One line of a policy; no source address means any."""

    resource: ResourcePattern
    actions: frozenset[Action]
    decision: Decision
    sources: tuple[str, ...] = ()
    _is_source: tuple[Matches, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_source", tuple(network(text) for text in self.sources))

    def matches(self, resource: Resource, actions: frozenset[Action], host: str) -> bool:
        return (
            (not self.actions.isdisjoint(actions) or Action.ALL in self.actions)
            and self.resource.matches(resource)
            and (not self.sources or any(matches(host) for matches in self._is_source))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Entries of one type, one per resource."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def with_entries(self, changed: Iterable[PolicyEntry]) -> Policy:
        """Return the policy with these entries, replacing those for the same resources."""
        merged = {entry.resource: entry for entry in self.entries} | {
            entry.resource: entry for entry in changed
        }
        return Policy(self.type, tuple(merged.values()))

    def without(self, resource: ResourcePattern) -> Policy:
        return Policy(
            self.type, tuple(entry for entry in self.entries if entry.resource != resource)
        )


@dataclass(frozen=True, slots=True)
class Acl:
    """The policies of one user."""

    user: str
    policies: tuple[Policy, ...]

    @property
    def subject(self) -> str:
        """The name of the user on the wire."""
        return subject_of(self.user)

    def entries(self, type_: PolicyType) -> Sequence[PolicyEntry]:
        return next((policy.entries for policy in self.policies if policy.type is type_), ())

    def with_policies(self, changed: Iterable[Policy]) -> Acl:
        """Return the rules with these entries merged in."""
        policies = {policy.type: policy for policy in self.policies}
        for policy in changed:
            policies[policy.type] = policies.get(policy.type, Policy(policy.type, ())).with_entries(
                policy.entries
            )
        return Acl(self.user, tuple(policies.values()))

    def without(self, type_: PolicyType, resource: ResourcePattern) -> Acl:
        """Return the rules without the entry of that resource."""
        left = [
            policy.without(resource) if policy.type is type_ else policy for policy in self.policies
        ]
        return Acl(self.user, tuple(policy for policy in left if policy.entries))

    def decide(self, resource: Resource, actions: frozenset[Action], host: str) -> Decision | None:
        """Return the decision of the rules on these actions; None if no rule matches."""
        for type_ in (PolicyType.CUSTOM, PolicyType.DEFAULT):
            matching = [
                entry for entry in self.entries(type_) if entry.matches(resource, actions, host)
            ]
            if matching:
                return max(
                    matching,
                    key=lambda entry: (entry.resource.rank, entry.decision is Decision.DENY),
                ).decision
        return None


def subject_of(user: str) -> str:
    """Return the wire name of a user."""
    return _USER + user


def user_of(subject: str | None) -> str:
    """Return the user of a subject; ValueError if it names none."""
    kind, _, name = (subject or "").partition(":")
    if f"{kind}:".lower() != _USER.lower() or not name:
        raise ValueError(f"The subject {subject!r} is illegal; write User:name")
    return name
