"""Accounts in 4.9 style, `plain_acl.yml`: white-listed addresses, default permissions, and
permissions of topics and groups. Pure.

A request from an account's white-listed address needs no signature; neither does any from a
globally white-listed address. An administrator without permissions of single topics or groups may
do everything; one with such permissions is limited to them, as in Apache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orbitmq.access.addresses import Matches, pattern
from orbitmq.access.decisions import AccessDeniedError
from orbitmq.access.requests import (
    ACCOUNT_ACTIONS,
    MAY_NAME_NOTHING,
    Action,
    DecisionCache,
    Resource,
    TopicAt,
    actions_on,
    check_size,
    is_waiting_topic,
    naming_of,
    nowhere,
    resources_in_slices,
)
from orbitmq.access.signatures import is_signed
from orbitmq.common.slices import Slices, finish, slices_of
from orbitmq.common.topic_names import TRACE_TOPIC
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.named_resources import ResourceKind
from orbitmq.protocol.signature import ACCESS_KEY

KEY_LENGTH_MIN: Final = 7  # Apache says "longer than 6" of both keys

Permission = frozenset[Action]  # empty: DENY

DENY: Final[Permission] = frozenset()
PERMISSIONS: Final[Mapping[str, Permission]] = {
    "DENY": DENY,
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
}
_HOSTS_MAX: Final = 10_000
_DECISIONS_PER_SLICE: Final = 1_000
_NO_TOPIC: Final = Resource(ResourceKind.TOPIC, "")
_TRACES: Final = Resource(ResourceKind.TOPIC, TRACE_TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An access key and its permissions. `permissions` are those of single topics and groups."""

    access_key: str
    secret_key: str = field(repr=False)
    is_admin: bool = False
    white_address: str | None = None
    is_white: Matches = field(default=pattern(None), repr=False, compare=False)
    topic_permission: Permission = DENY
    group_permission: Permission = DENY
    permissions: Mapping[Resource, Permission] = field(default_factory=dict)

    def check_in_slices(
        self, request: RemotingCommand, topic_at: TopicAt = nowhere, reply_topic: str | None = None
    ) -> Slices[None]:
        """Raise AccessDeniedError unless the account may do what the request asks for."""
        actions = ACCOUNT_ACTIONS.get(request.code)
        if actions is None:
            if not self.is_admin:
                raise self._denied(
                    f"Need admin permission for request code={request.code}, but"
                    f" accessKey={self.access_key} is not",
                    None,
                )
            actions = DENY
        if not actions or (self.is_admin and not self.permissions):
            return
        resources = yield from resources_in_slices(request, topic_at, reply_topic)
        if not resources and request.code not in MAY_NAME_NOTHING:
            resources = [_NO_TOPIC]
        for part in slices_of(resources, _DECISIONS_PER_SLICE):
            for resource in part:
                if not actions_on(resource, actions) & self._owned(resource) and not (
                    resource == _TRACES and Action.PUB in actions
                ):
                    kind = resource.kind.value.lower()
                    raise self._denied(
                        f"No default permission for {kind}:{resource.name}", str(resource)
                    )
            if len(part) == _DECISIONS_PER_SLICE:
                yield

    def _owned(self, resource: Resource) -> Permission:
        found = self.permissions.get(resource)
        if found is not None:
            return found
        if is_waiting_topic(resource) and not self.is_admin:
            return DENY
        return (
            self.group_permission if resource.kind is ResourceKind.GROUP else self.topic_permission
        )

    def _denied(self, why: str, resource: str | None) -> AccessDeniedError:
        return AccessDeniedError(why, who=self.access_key, resource=resource)


class Accounts:
    """All accounts, and the white-listed addresses; replaced as a whole when files change."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        white: Sequence[Matches],
        topic_at: TopicAt = nowhere,
        reply_topic: str | None = None,
    ) -> None:
        self.by_key = accounts
        self._topic_at = topic_at
        self._reply_topic = reply_topic
        self._white = white
        self._white_hosts: dict[str, bool] = {}  # a cache
        self._allowed = DecisionCache()

    def check(self, host: str, request: RemotingCommand) -> None:
        """Do what `check_in_slices` does, in one go."""
        finish(self.check_in_slices(host, request))

    def check_in_slices(self, host: str, request: RemotingCommand) -> Slices[None]:
        """Raise AccessDeniedError unless the sender at `host` may do what the request asks for."""
        if self._white and self._is_white(host):
            return
        fields = request.ext_fields or {}
        key = fields.get(ACCESS_KEY)
        if key is None:
            raise AccessDeniedError("No accessKey is configured")
        account = self.by_key.get(key)
        if account is None:
            raise AccessDeniedError(f"No acl config for {key}", who=key)
        if account.is_white(host):
            return
        check_size(request)
        if not is_signed(fields, request.body, account.secret_key):
            raise AccessDeniedError(f"Check signature failed for accessKey={key}", who=key)
        naming = naming_of(request)
        if naming is None:
            yield from account.check_in_slices(request, self._topic_at, self._reply_topic)
        elif (key, host, naming) not in self._allowed:
            yield from account.check_in_slices(request, self._topic_at, self._reply_topic)
            self._allowed.add(key, host, naming)

    @property
    def rules(self) -> tuple[object, ...]:
        """What decisions depend on: if one of these is replaced, they are outdated."""
        return (self,)

    def secret_of(self, host: str, request: RemotingCommand) -> str | None:
        """Return the secret that must sign this allowed request; None if it needs no signature."""
        account = self.by_key.get((request.ext_fields or {}).get(ACCESS_KEY, ""))
        if account is None or account.is_white(host) or (self._white and self._is_white(host)):
            return None
        return account.secret_key

    def _is_white(self, host: str) -> bool:
        found = self._white_hosts.get(host)
        if found is None:
            if len(self._white_hosts) >= _HOSTS_MAX:
                self._white_hosts.clear()
            found = self._white_hosts[host] = any(matches(host) for matches in self._white)
        return found
