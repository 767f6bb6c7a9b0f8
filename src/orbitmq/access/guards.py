"""Guards: hooks before the handlers of a server that allow or refuse requests, and write refusals
to the audit log.

All requests to a server pass here while access control is on: the hook for all requests keeps the
fast path from handling any before. No reply holds a secret or a signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from orbitmq.access.accounts import Accounts
from orbitmq.access.addresses import host_of
from orbitmq.access.audit import Audit
from orbitmq.access.decisions import AccessDeniedError
from orbitmq.access.policies import Acl, Decision
from orbitmq.access.requests import (
    MAY_NAME_NOTHING,
    USER_ACTIONS,
    Action,
    DecisionCache,
    Resource,
    TopicAt,
    actions_on,
    check_size,
    naming_of,
    nowhere,
    reply_topic_of,
    resources_in_slices,
)
from orbitmq.access.signatures import is_signed
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import User, UserStatus
from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import SliceBudget, Slices, finish
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.named_resources import ResourceKind
from orbitmq.protocol.signature import ACCESS_KEY

_PREFIX_49: Final = "org.apache.rocketmq.acl.common.AclException: "
_NAMES: Final = {int(code): code.name for code in RequestCode}
_RULES_PER_SLICE: Final = 5_000  # rules compared with resources
_DECISION_RULES: Final = 5  # the fixed cost of a decision
_TEXT_MAX: Final = 200  # of a peer's text, in the log and in replies
_DEFAULT_TOPIC: Final = Resource(ResourceKind.TOPIC, AUTO_CREATE_TOPIC)


class Checker(Protocol):
    """Decides whether a request from a host is allowed."""

    @property
    def rules(self) -> tuple[object, ...]:
        """What decisions depend on: if one of these is replaced, they are outdated."""

    def check_in_slices(self, host: str, request: RemotingCommand) -> Slices[None]:
        """Raise AccessDeniedError if it is not allowed, RequestRefusedError if it is unreadable."""

    def secret_of(self, host: str, request: RemotingCommand) -> str | None:
        """Return the secret that must sign this allowed request; None if it needs no signature."""


class Guard:
    """A checker as a request hook; `code` and `prefix` are those of its refusals."""

    def __init__(
        self, checker: Callable[[], Checker], audit: Audit, code: int, prefix: str = ""
    ) -> None:
        self._checker = checker
        self._audit = audit
        self._code = code
        self._prefix = prefix

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        finish(self.before_in_slices(remote_address, request))

    def before_in_slices(self, remote_address: str, request: RemotingCommand) -> Slices[None]:
        """Do what `before` does, in slices: for handlers that run in slices too, as for all
        requests that may name many resources.
        """
        try:
            yield from self._checker().check_in_slices(host_of(remote_address), request)
        except AccessDeniedError as denied:
            raise self.refusal(remote_address, request, denied) from None

    def refusal(
        self, remote_address: str, request: RemotingCommand, denied: AccessDeniedError
    ) -> RequestRefusedError:
        """Write a denial to the audit log; return the reply's error."""
        self._audit.denied(
            remote_address,
            "access_denied who=%s from=%s request=%s resource=%s why=%r",
            _shown(denied.who),
            remote_address,
            _NAMES.get(request.code, request.code),
            _shown(denied.resource),
            denied.why[:_TEXT_MAX],
        )
        return RequestRefusedError(self._code, self._prefix + denied.why[:_TEXT_MAX])

    def after(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None: ...

    def lets_pass(self, remote_address: str, request: RemotingCommand) -> bool:
        """Whether `before` would pass; writes nothing to the audit log."""
        try:
            finish(self._checker().check_in_slices(host_of(remote_address), request))
        except Exception:  # `before` reports it
            return False
        return True

    @property
    def rules(self) -> tuple[object, ...]:
        """What decisions depend on: if one of these is replaced, they are outdated."""
        return self._checker().rules

    def secret_of(self, remote_address: str, request: RemotingCommand) -> str | None:
        """Return the secret that must sign a request that passed; None if it needs no signature.

        Any other request from there with the same code, access key and naming fields passes too, if
        it is signed with it, while `rules` are the same and its body names no resources.
        """
        return self._checker().secret_of(host_of(remote_address), request)


def guard_of_accounts(accounts: Callable[[], Accounts], audit: Audit) -> Guard:
    """Return a guard in 4.9 style: refusals have code 1 and the name of its exception."""
    return Guard(accounts, audit, ResponseCode.SYSTEM_ERROR, _PREFIX_49)


def guard_of_users(checker: UserChecker, audit: Audit) -> Guard:
    """Return a guard in 5.x style: refusals have code 16."""
    return Guard(lambda: checker, audit, ResponseCode.NO_PERMISSION)


class UserChecker:
    """Authenticates and authorizes users. `unauthenticated` and `unauthorized` are the codes that
    skip these checks.

    Decisions are cached until a rule changes: clients repeat the same few requests.
    """

    def __init__(
        self,
        store: UserStore,
        cluster: str,
        *,
        authorizes: bool,
        unauthenticated: Collection[int] = (),
        unauthorized: Collection[int] = (),
        topic_at: TopicAt = nowhere,
    ) -> None:
        self._store = store
        self._cluster = Resource(ResourceKind.CLUSTER, cluster)
        self._authorizes = authorizes
        self._unauthenticated = frozenset(unauthenticated)
        self._unauthorized = frozenset(unauthorized)
        self._topic_at = topic_at
        self._reply_topic = reply_topic_of(cluster)
        self._allowed = DecisionCache()
        self._rules: object = None  # of the cached decisions

    def check_in_slices(self, host: str, request: RemotingCommand) -> Slices[None]:
        if request.code in self._unauthenticated:
            return
        check_size(request)
        user = self._authenticated(request)
        if not self._authorizes or user.is_super or request.code in self._unauthorized:
            return
        if self._rules is not self._store.acls:
            self._allowed, self._rules = DecisionCache(), self._store.acls
        naming = naming_of(request)
        if naming is None:
            yield from self._decide_all(user, host, request)
        elif (user.name, host, naming) not in self._allowed:
            allowed = self._allowed  # by the rules before the first slice
            yield from self._decide_all(user, host, request)
            allowed.add(user.name, host, naming)

    @property
    def rules(self) -> tuple[object, ...]:
        return self._store.users, self._store.acls

    def secret_of(self, host: str, request: RemotingCommand) -> str | None:
        if request.code in self._unauthenticated:
            return None
        return self._store.users[(request.ext_fields or {})[ACCESS_KEY]].password

    def _authenticated(self, request: RemotingCommand) -> User:
        fields = request.ext_fields or {}
        name = fields.get(ACCESS_KEY)
        if not name:
            raise AccessDeniedError("username cannot be null.")
        user = self._store.users.get(name)
        if user is None:
            raise AccessDeniedError(f"User:{name} is not found.", who=name)
        if user.status is UserStatus.DISABLE:
            raise AccessDeniedError(f"User:{name} is disabled.", who=name)
        if not is_signed(fields, request.body, user.password):
            raise AccessDeniedError("check signature failed.", who=name)
        return user

    def _decide_all(self, user: User, host: str, request: RemotingCommand) -> Slices[None]:
        actions = USER_ACTIONS.get(request.code)
        if actions is None:
            why = (
                f"User:{user.name} has no permission for request {request.code} from {host}, only"
                " super users have."
            )
            raise AccessDeniedError(why, who=user.name, resource=str(self._cluster))
        if not actions:
            return
        acl = self._store.acls.get(user.name)
        resources = yield from resources_in_slices(request, self._topic_at, self._reply_topic)
        if not resources and request.code not in MAY_NAME_NOTHING:
            resources = [self._cluster]
        budget = SliceBudget(_RULES_PER_SLICE)
        rules = 0 if acl is None else sum(len(policy.entries) for policy in acl.policies)
        for resource in resources:
            # Producers of topics that do not exist yet look it up.
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and resource == _DEFAULT_TOPIC:
                continue
            self._decide(user, acl, host, resource, actions_on(resource, actions))
            if budget.spend(_DECISION_RULES + rules):
                yield

    def _decide(
        self,
        user: User,
        acl: Acl | None,
        host: str,
        resource: Resource,
        actions: frozenset[Action],
    ) -> None:
        decision = None if acl is None else acl.decide(resource, actions, host)
        if decision is not Decision.ALLOW:
            detail = "no matched policies." if decision is None else "the decision is deny."
            why = f"User:{user.name} has no permission to access {resource} from {host}, {detail}"
            raise AccessDeniedError(why, who=user.name, resource=str(resource))


def _shown(text: str | None) -> str:
    return "-" if text is None else repr(text[:_TEXT_MAX])
