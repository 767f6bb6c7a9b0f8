"""Bodies of the requests about users, their rules, and accounts: values as they travel, all texts.

Members and their order as RocketMQ 5.5.0 (users, rules) and 4.9 (accounts) write them; None is
omitted. The texts are interpreted by `orbitmq.access`. A malformed body raises ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object, items, text, texts


def _said(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """A user; None members are left unchanged by an update."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None

    def to_json(self) -> dict[str, Any]:
        return _said(
            password=self.password,
            userStatus=self.user_status,
            userType=self.user_type,
            username=self.username,
        )

    @classmethod
    def from_json(cls, value: Any) -> UserInfo:
        members = as_object(value, "UserInfo")
        return cls(
            username=text(members, "username"),
            password=text(members, "password"),
            user_type=text(members, "userType"),
            user_status=text(members, "userStatus"),
        )

    def encode(self) -> bytes:
        return fastjson.dumps(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> UserInfo:
        return cls.from_json(fastjson.loads(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntryInfo:
    """A permission or prohibition on a resource."""

    resource: str | None = None
    actions: Sequence[str] = ()
    decision: str | None = None
    source_ips: Sequence[str] | None = None

    def to_json(self) -> dict[str, Any]:
        sources = None if self.source_ips is None else list(self.source_ips)
        return _said(
            actions=list(self.actions),
            decision=self.decision,
            resource=self.resource,
            sourceIps=sources,
        )

    @classmethod
    def from_json(cls, value: Any) -> PolicyEntryInfo:
        members = as_object(value, "PolicyEntryInfo")
        return cls(
            resource=text(members, "resource"),
            actions=tuple(texts(members.get("actions"))),
            decision=text(members, "decision"),
            source_ips=tuple(texts(members.get("sourceIps"))) or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """Entries of one policy type."""

    policy_type: str | None = None
    entries: Sequence[PolicyEntryInfo] = ()

    def to_json(self) -> dict[str, Any]:
        return _said(
            entries=[entry.to_json() for entry in self.entries], policyType=self.policy_type
        )

    @classmethod
    def from_json(cls, value: Any) -> PolicyInfo:
        members = as_object(value, "PolicyInfo")
        return cls(
            policy_type=text(members, "policyType"),
            entries=tuple(items(members.get("entries"), PolicyEntryInfo.from_json)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclInfo:
    """The rules of one user; `subject` is `User:name`."""

    subject: str | None = None
    policies: Sequence[PolicyInfo] = ()

    def to_json(self) -> dict[str, Any]:
        return _said(policies=[policy.to_json() for policy in self.policies], subject=self.subject)

    @classmethod
    def from_json(cls, value: Any) -> AclInfo:
        members = as_object(value, "AclInfo")
        return cls(
            subject=text(members, "subject"),
            policies=tuple(items(members.get("policies"), PolicyInfo.from_json)),
        )

    def encode(self) -> bytes:
        return fastjson.dumps(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> AclInfo:
        return cls.from_json(fastjson.loads(body))


def encode_list(infos: Iterable[UserInfo | AclInfo], *, pretty: bool = False) -> bytes:
    """Encode the response to AUTH_LIST_USER and AUTH_LIST_ACL, and the stored form of both."""
    return finish(encode_list_in_slices(infos, pretty=pretty))


def encode_list_in_slices(
    infos: Iterable[UserInfo | AclInfo], *, pretty: bool = False
) -> Slices[bytes]:
    values = fastjson.Items(info.to_json() for info in infos)
    return fastjson.dumps_pretty_in_slices(values) if pretty else fastjson.dumps_in_slices(values)


def decode_users(body: bytes) -> list[UserInfo]:
    return [UserInfo.from_json(each) for each in _listed(body)]


def decode_acls(body: bytes) -> list[AclInfo]:
    return [AclInfo.from_json(each) for each in _listed(body)]


def _listed(body: bytes) -> list[Any]:
    found = fastjson.loads(body)
    if not isinstance(found, list):
        raise ProtocolError(f"a list was expected, not {type(found).__name__}")
    return found


def encode_accounts(white_addresses: Sequence[str], accounts: Sequence[dict[str, Any]]) -> bytes:
    """Encode the response to GET_BROKER_CLUSTER_ACL_CONFIG."""
    return fastjson.dumps(
        {
            "globalWhiteAddrs": list(white_addresses),
            "plainAccessConfigs": [dict(sorted(each.items())) for each in accounts],
        }
    )
