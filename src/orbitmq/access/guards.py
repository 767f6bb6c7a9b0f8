"""Guards: hooks before the handlers of a server that let pass what is allowed, refuse the rest, and tell the audit log of that.

Everything that a server dispatches comes by here while access control is on: a hook that hears all requests keeps kernels from taking any
before. Nothing that is answered holds a secret or a signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from orbitmq.access.accounts import Accounts
from orbitmq.access.addresses import host_of
from orbitmq.access.audit import Audit
from orbitmq.access.decisions import Denied
from orbitmq.access.policies import Decision
from orbitmq.access.requests import (
    MAY_NAME_NOTHING,
    USER_ACTIONS,
    Action,
    Remembered,
    Resource,
    TopicAt,
    actions_on,
    naming_of,
    nowhere,
    reply_topic_of,
    resources_of,
)
from orbitmq.access.signatures import is_signed
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import User, UserStatus
from orbitmq.common.errors import RequestRefused
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.named_resources import ResourceKind
from orbitmq.protocol.signature import ACCESS_KEY

_PREFIX_49: Final = "org.apache.rocketmq.acl.common.AclException: "
_NAMES: Final = {int(code): code.name for code in RequestCode}
_TEXT_MAX: Final = 200  # of what a peer sent, in the log and in answers
_DEFAULT_TOPIC: Final = Resource(ResourceKind.TOPIC, AUTO_CREATE_TOPIC)


class Checker(Protocol):
    """Says whether a request from a host is allowed."""

    @property
    def rules(self) -> tuple[object, ...]:
        """What decisions depend on: when one of these is another, they are to be made anew."""

    def check(self, host: str, request: RemotingCommand) -> None:
        """Denied when it is not; RequestRefused when it cannot be read."""

    def secret_of(self, host: str, request: RemotingCommand) -> str | None:
        """By which a request, which is allowed, has to be signed; None when it need not be."""


class Guard:
    """A checker as the hook around requests that it is; `code` and `prefix` are how refusals look."""

    def __init__(self, checker: Callable[[], Checker], audit: Audit, code: int, prefix: str = "") -> None:
        self._checker = checker
        self._audit = audit
        self._code = code
        self._prefix = prefix

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        try:
            self._checker().check(host_of(remote_address), request)
        except Denied as denied:
            raise self.refusal(remote_address, request, denied) from None

    def refusal(self, remote_address: str, request: RemotingCommand, denied: Denied) -> RequestRefused:
        """Tell the audit log what is denied; how that is answered."""
        self._audit.denied(
            remote_address,
            "access_denied who=%s from=%s request=%s resource=%s why=%r",
            _shown(denied.who),
            remote_address,
            _NAMES.get(request.code, request.code),
            _shown(denied.resource),
            denied.why[:_TEXT_MAX],
        )
        return RequestRefused(self._code, self._prefix + denied.why[:_TEXT_MAX])

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None: ...

    def lets_pass(self, remote_address: str, request: RemotingCommand) -> bool:
        """Whether `before` would; nobody is told when not."""
        try:
            self._checker().check(host_of(remote_address), request)
        except Exception:  # whatever it is, `before` says it
            return False
        return True

    @property
    def rules(self) -> tuple[object, ...]:
        """What decisions depend on: when one of these is another, they are to be made anew."""
        return self._checker().rules

    def secret_of(self, remote_address: str, request: RemotingCommand) -> str | None:
        """By which a request that passed has to be signed; None when it need not be.

        Whatever else comes from there with the same code, access key and naming fields passes too, if it is signed by that, as long as
        `rules` are the same and what it names is not in its body.
        """
        return self._checker().secret_of(host_of(remote_address), request)


def guard_of_accounts(accounts: Callable[[], Accounts], audit: Audit) -> Guard:
    """A guard in the style of 4.9: refusals have code 1 and the name of its exception."""
    return Guard(accounts, audit, ResponseCode.SYSTEM_ERROR, _PREFIX_49)


def guard_of_users(checker: UserChecker, audit: Audit) -> Guard:
    """A guard as of 5.x: refusals have code 16."""
    return Guard(lambda: checker, audit, ResponseCode.NO_PERMISSION)


class UserChecker:
    """What users may do. `unauthenticated` and `unauthorized` are the codes that are not looked at for who, and for what, asks.

    Decisions are remembered until a rule changes: a client asks for the same few things all the time.
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
        self._remembered = Remembered()
        self._rules: object = None  # by which they were decided

    def check(self, host: str, request: RemotingCommand) -> None:
        if request.code in self._unauthenticated:
            return
        user = self._authenticated(request)
        if self._authorizes and not user.is_super and request.code not in self._unauthorized:
            self._authorize(user, host, request)

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
            raise Denied("username cannot be null.")
        user = self._store.users.get(name)
        if user is None:
            raise Denied(f"User:{name} is not found.", who=name)
        if user.status is UserStatus.DISABLE:
            raise Denied(f"User:{name} is disabled.", who=name)
        if not is_signed(fields, request.body, user.password):
            raise Denied("check signature failed.", who=name)
        return user

    def _authorize(self, user: User, host: str, request: RemotingCommand) -> None:
        if self._rules is not self._store.acls:
            self._remembered, self._rules = Remembered(), self._store.acls
        naming = naming_of(request)
        if naming is None:
            self._decide_all(user, host, request)
        elif (user.name, host, naming) not in self._remembered:
            self._decide_all(user, host, request)
            self._remembered.add(user.name, host, naming)

    def _decide_all(self, user: User, host: str, request: RemotingCommand) -> None:
        actions = USER_ACTIONS.get(request.code)
        if actions is None:
            why = f"User:{user.name} has no permission for request {request.code} from {host}, only super users have."
            raise Denied(why, who=user.name, resource=str(self._cluster))
        if not actions:
            return
        resources = resources_of(request, self._topic_at, self._reply_topic)
        if not resources and request.code not in MAY_NAME_NOTHING:
            resources = [self._cluster]
        for resource in resources:
            self._decide(user, host, request.code, resource, actions_on(resource, actions))

    def _decide(self, user: User, host: str, code: int, resource: Resource, actions: frozenset[Action]) -> None:
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC and resource == _DEFAULT_TOPIC:
            return  # producers of topics that are not there yet look for it
        acl = self._store.acls.get(user.name)
        decision = None if acl is None else acl.decide(resource, actions, host)
        if decision is not Decision.ALLOW:
            detail = "no matched policies." if decision is None else "the decision is deny."
            why = f"User:{user.name} has no permission to access {resource} from {host}, {detail}"
            raise Denied(why, who=user.name, resource=str(resource))


def _shown(text: str | None) -> str:
    return "-" if text is None else repr(text[:_TEXT_MAX])
