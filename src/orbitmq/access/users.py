"""Users of 5.x and their rules, as values and in wire form. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from orbitmq.access.policies import (
    Acl,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    ResourcePattern,
    user_of,
)
from orbitmq.access.requests import Action
from orbitmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

E = TypeVar("E", bound=Enum)


class UserType(Enum):
    """Whether rules bind a user; the values are Apache's names."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Whether a user may log in; the values are Apache's names."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """A user that may sign requests, and its password."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled_super(self) -> bool:
        """Whether it may change all users and rules."""
        return self.is_super and self.status is UserStatus.ENABLE

    def changed(self, info: UserInfo) -> User:
        """Return the user updated with `info`; ValueError if that is illegal."""
        return replace(
            self,
            password=info.password if info.password and info.password.strip() else self.password,
            type=member(UserType, info.user_type, self.type),
            status=member(UserStatus, info.user_status, self.status),
        )

    def info(self) -> UserInfo:
        return UserInfo(
            username=self.name,
            password=self.password,
            user_type=self.type.value,
            user_status=self.status.value,
        )


def new_user(info: UserInfo) -> User:
    """Return the user of `info`; ValueError if it is incomplete or illegal."""
    if not info.username or not info.username.strip():
        raise ValueError("username can not be blank")
    if not info.password or not info.password.strip():
        raise ValueError("password can not be blank")
    return User(info.username, info.password).changed(info)


def received_user(info: UserInfo) -> User:
    """Return the user that a server sent; its password is blank if the server withholds it."""
    return User(info.username or "", info.password or "").changed(info)


def new_acl(info: AclInfo) -> Acl:
    """Return the rules of `info`; ValueError if one is illegal, or does not mean what it
    seems to.
    """
    for entry in (entry for policy in info.policies for entry in policy.entries):
        ResourcePattern.of_new_rule(entry.resource)
    return acl_of(info)


def acl_of(info: AclInfo) -> Acl:
    """Return the rules of `info`, one entry per resource; ValueError if one is illegal."""
    policies = [policy for policy in info.policies if policy.entries]
    if not policies:
        raise ValueError("The policies is empty.")
    return Acl(user_of(info.subject), ()).with_policies(_policy(policy) for policy in policies)


def info_of(acl: Acl) -> AclInfo:
    """Return the rules in wire form."""
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
    return Policy(
        member(PolicyType, info.policy_type, PolicyType.CUSTOM),
        tuple(_entry(entry) for entry in info.entries),
    )


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


def member(of: type[E], text: str | None, default: E | None) -> E:
    """Return the member of an enum with that value, ignoring case; ValueError if there is none."""
    if text is None and default is not None:
        return default
    for each in of:
        if text is not None and str(each.value).lower() == text.strip().lower():
            return each
    raise ValueError(
        f"The {of.__name__} {text!r} is null or illegal; write one of"
        f" {', '.join(str(each.value) for each in of)}"
    )
