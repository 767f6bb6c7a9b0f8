"""Access control of one server, built from its configuration: guards before its handlers, handlers
of requests that change the rules, credentials for its own calls.

Builds, and reads files in `load`; has no rules of its own. Off by default, and then there is
neither guard nor signer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from orbitmq.access.account_files import CHECK_PERIOD_S, AccountFiles
from orbitmq.access.account_requests import AccountRequests
from orbitmq.access.addresses import host_of, network
from orbitmq.access.audit import Audit
from orbitmq.access.credentials import Credentials, RequestSigner
from orbitmq.access.decisions import AccessDeniedError
from orbitmq.access.guards import Guard, UserChecker, guard_of_accounts, guard_of_users
from orbitmq.access.requests import TopicAt, nowhere, reply_topic_of
from orbitmq.access.user_requests import UserRequests
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import new_user
from orbitmq.common.errors import ConfigurationError, ProtocolError, RequestRefusedError
from orbitmq.protocol.bodies.access import UserInfo
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.signature import ACCESS_KEY

TICK_PERIOD_S: Final = CHECK_PERIOD_S


class ControlSettings(Protocol):
    """The settings of a server's configuration that are needed here."""

    @property
    def authentication_enabled(self) -> bool: ...

    @property
    def authorization_enabled(self) -> bool: ...

    @property
    def init_authentication_user(self) -> str: ...

    @property
    def inner_client_authentication_credentials(self) -> str: ...

    @property
    def authentication_whitelist(self) -> str: ...

    @property
    def authorization_whitelist(self) -> str: ...

    @property
    def trusted_proxies(self) -> str: ...


class AccessControl:
    """Guards, request handlers and signers of one server. `users` is the folder of user files;
    `accounts` that of account files, None without accounts.
    """

    def __init__(
        self,
        settings: ControlSettings,
        *,
        cluster: str,
        users: Path,
        accounts: Path | None = None,
        now_ms: Callable[[], int],
        topic_at: TopicAt = nowhere,
    ) -> None:
        self._cluster = cluster
        self._audit = Audit(now_ms)
        inner = settings.inner_client_authentication_credentials
        self._inner = (
            Credentials.from_json(inner, "innerClientAuthenticationCredentials") if inner else None
        )
        self._first = _first_user(settings.init_authentication_user)
        self.signers: list[RequestSigner] = (
            [] if self._inner is None else [RequestSigner(self._inner)]
        )
        self.users = UserStore(users) if settings.authentication_enabled else None
        self.files = (
            None
            if accounts is None
            else AccountFiles(accounts, now_ms, topic_at, reply_topic_of(cluster))
        )
        self.guards: list[Guard] = []
        if self.users is not None:
            checker = UserChecker(
                self.users,
                cluster,
                authorizes=settings.authorization_enabled,
                unauthenticated=_codes(
                    settings.authentication_whitelist, "authenticationWhitelist"
                ),
                unauthorized=_codes(settings.authorization_whitelist, "authorizationWhitelist"),
                topic_at=topic_at,
            )
            self.guards.append(guard_of_users(checker, self._audit))
        if self.files is not None:
            files = self.files
            self.guards.append(guard_of_accounts(lambda: files.accounts, self._audit))
        self.believes_preamble_of = _trusted(settings.trusted_proxies, by_default=not self.guards)

    @property
    def of_users(self) -> UserRequests:
        """The handlers of requests about users."""
        return UserRequests(self.users, has_accounts=self.files is not None)

    def of_accounts(self, broker_name: str, address: Callable[[], str]) -> AccountRequests:
        """Return the handlers of requests about accounts, for a broker of that name and address."""
        return AccountRequests(
            self.files, broker_name=broker_name, address=address, cluster=self._cluster
        )

    def load(self) -> None:
        """Read users, rules and accounts; ConfigurationError or CorruptFileError if that fails."""
        if self.users is not None:
            self.users.load()
            for name, password in self._first:
                self.users.ensure_super(name, password)
            if self._inner is not None:
                self.users.ensure_super(self._inner.access_key, self._inner.secret_key)
        if self.files is not None:
            self.files.load()

    def tick(self) -> None:
        """Reload changed files, and log how many refusals the audit log left out; call it about
        every `TICK_PERIOD_S`.
        """
        if self.files is not None:
            self.files.reload_if_changed()
        self._audit.tick()

    def user_of(self, remote_address: str, request: RemotingCommand) -> str | None:
        """Return the sender of a request that passed the guards; None without guards.

        A sender that needs no signature, by its address or the request's code, is not identified by
        its access key, but by its host.
        """
        if not self.guards:
            return None
        if any(guard.secret_of(remote_address, request) is not None for guard in self.guards):
            return (request.ext_fields or {}).get(ACCESS_KEY)
        return f"@{host_of(remote_address)}"

    def refusal(
        self, remote_address: str, request: RemotingCommand, denied: AccessDeniedError
    ) -> RequestRefusedError:
        """Write a denial beyond the guards' rules to the audit log; return the reply's error."""
        return self.guards[0].refusal(remote_address, request, denied)

    @property
    def is_silent(self) -> bool:
        """Whether this server cannot call itself: it has a guard, but no credentials."""
        return bool(self.guards) and not self.signers


def _first_user(text: str) -> list[tuple[str, str]]:
    if not text:
        return []
    try:
        user = new_user(UserInfo.decode(text.encode()))
    except (ValueError, ProtocolError):  # their text may quote the password
        raise ConfigurationError(
            'initAuthenticationUser cannot be used: write it as {"username":"…","password":"…"}'
        ) from None
    return [(user.name, user.password)]


def _codes(text: str, key: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    bad = [part for part in parts if not part.isdecimal()]
    if bad:
        raise ConfigurationError(
            f"{key} cannot be used: {bad[0]!r} is not a request code; write numbers with commas"
            " between them"
        )
    return [int(part) for part in parts]


def _trusted(text: str, *, by_default: bool) -> Callable[[str], bool]:
    """Return whether to trust the proxy preamble of a peer, by its address with the port."""
    try:
        networks = [network(part) for part in text.split(",") if part.strip()]
    except ValueError as problem:
        raise ConfigurationError(f"trustedProxies cannot be used: {problem}") from None
    if not networks:
        return lambda _peer: by_default
    return lambda peer: any(matches(host_of(peer)) for matches in networks)
