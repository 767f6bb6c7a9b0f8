"""Users of 5.x and their rules, as values, and as they travel in texts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from orbitmq.access.policies import Acl, Decision, Policy, PolicyEntry, PolicyType, ResourcePattern, user_of
from orbitmq.access.requests import Action
from orbitmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

E = TypeVar("E", bound=Enum)


class UserType(Enum):
    """Whether rules bind a user; the values are the original's names."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Whether a user is let in; the values are the original's names."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """Who may sign requests, and with what."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled_super(self) -> bool:
        """Whether it can let in, and change, everybody."""
        return self.is_super and self.status is UserStatus.ENABLE

    def changed(self, info: UserInfo) -> User:
        """The user with what `info` says in place; ValueError when that is illegal."""
        return replace(
            self,
            password=info.password if info.password and info.password.strip() else self.password,
            type=member(UserType, info.user_type, self.type),
            status=member(UserStatus, info.user_status, self.status),
        )

    def info(self) -> UserInfo:
        return UserInfo(username=self.name, password=self.password, user_type=self.type.value, user_status=self.status.value)


def new_user(info: UserInfo) -> User:
    """The user that `info` spells; ValueError when it spells none."""
    if not info.username or not info.username.strip():
        raise ValueError("username can not be blank")
    if not info.password or not info.password.strip():
        raise ValueError("password can not be blank")
    return User(info.username, info.password).changed(info)


def told_user(info: UserInfo) -> User:
    """The user that a server tells of; its password is blank where the server keeps that to itself."""
    return User(info.username or "", info.password or "").changed(info)


def new_acl(info: AclInfo) -> Acl:
    """The rules that somebody wants to be; ValueError when one is illegal, or means something else than it says."""
    for entry in (entry for policy in info.policies for entry in policy.entries):
        ResourcePattern.of_new_rule(entry.resource)
    return acl_of(info)


def acl_of(info: AclInfo) -> Acl:
    """The rules that `info` spells, one entry for each resource; ValueError when one is illegal."""
    policies = [policy for policy in info.policies if policy.entries]
    if not policies:
        raise ValueError("The policies is empty.")
    return Acl(user_of(info.subject), ()).with_policies(_policy(policy) for policy in policies)


def info_of(acl: Acl) -> AclInfo:
    """The rules as they travel."""
    policies = [
        PolicyInfo(
            policy_type=policy.type.value,
            entries=[
                PolicyEntryInfo(
                    resource=str(entry.resource),
                    actions=[action.value for action in Action if action in entry.actions],
                    decision=entry.decision.value,
                    source_ips=entry.sources or None,
                )
                for entry in policy.entries
            ],
        )
        for policy in acl.policies
    ]
    return AclInfo(subject=acl.subject, policies=policies)


def _policy(info: PolicyInfo) -> Policy:
    return Policy(member(PolicyType, info.policy_type, PolicyType.CUSTOM), tuple(_entry(entry) for entry in info.entries))


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    actions = frozenset(member(Action, each, None) for each in info.actions)
    if not actions:
        raise ValueError("The actions is empty.")
    if Action.ANY in actions:
        raise ValueError("The actions can not be Any.")
    return PolicyEntry(
        ResourcePattern.parse(info.resource),
        actions,
        member(Decision, info.decision, None),
        tuple(each.strip() for each in info.source_ips or ()),
    )


def member(of: type[E], text: str | None, otherwise: E | None) -> E:
    """The member of an enum that a text names, in whatever case; ValueError when it names none."""
    if text is None and otherwise is not None:
        return otherwise
    for each in of:
        if text is not None and str(each.value).lower() == text.strip().lower():
            return each
    raise ValueError(f"The {of.__name__} {text!r} is null or illegal; write one of {', '.join(str(each.value) for each in of)}")
