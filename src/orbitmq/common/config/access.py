"""The keys of access control as of 5.x, the original's `authConfig`, which every server of ours
has; and which proxies are believed.

The original's name server has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from orbitmq.common.config.keys import APACHE_5, OWN, Use, key
from orbitmq.common.config.settings import Settings

_CLASS = "Only the original's own class can be named: what it does is built in."
_NO_CACHE = "Users and rules are in memory: there is no cache."
_CLASSES: Final = {
    "authentication_provider": ("DefaultAuthenticationProvider",),
    "authentication_metadata_provider": ("LocalAuthenticationMetadataProvider",),
    "authentication_strategy": (
        "StatelessAuthenticationStrategy",
        "StatefulAuthenticationStrategy",
    ),
    "authorization_provider": ("DefaultAuthorizationProvider",),
    "authorization_metadata_provider": ("LocalAuthorizationMetadataProvider",),
    "authorization_strategy": ("StatelessAuthorizationStrategy", "StatefulAuthorizationStrategy"),
}


@dataclass(frozen=True, kw_only=True)
class UserSettings(Settings):
    """Users, and whether they are asked for."""

    SECTION: ClassVar[str] = "authConfig"

    authentication_enabled: bool = key(
        False,
        "Whether every request has to be signed by a user: see access-control.md.",
        releases=APACHE_5,
    )
    authorization_enabled: bool = key(
        False,
        "Whether policies say what users may do; needs `authenticationEnabled`.",
        releases=APACHE_5,
    )
    auth_config_path: str = key(
        "",
        "Where users.json and acls.json are. Not set: `config` in the store, of a name server the"
        " folder of `kvConfigPath`.",
        releases=APACHE_5,
        is_path=True,
    )
    init_authentication_user: str = key(
        "",
        'The first super user, as `{"username":"…","password":"…"}`; made when there is none of'
        " that name.",
        releases=APACHE_5,
        secret=True,
    )
    inner_client_authentication_credentials: str = key(
        "",
        "The keys that this server signs its own requests with, as"
        ' `{"accessKey":"…","secretKey":"…"}`; a super user here, too.',
        releases=APACHE_5,
        secret=True,
    )
    authentication_whitelist: str = key(
        "", "Request codes, separated by commas, that need no signature.", releases=APACHE_5
    )
    authorization_whitelist: str = key(
        "", "Request codes, separated by commas, that every user may send.", releases=APACHE_5
    )
    authentication_provider: str = key("", _CLASS, releases=APACHE_5)
    authentication_metadata_provider: str = key("", _CLASS, releases=APACHE_5)
    authentication_strategy: str = key("", _CLASS, releases=APACHE_5)
    authorization_provider: str = key("", _CLASS, releases=APACHE_5)
    authorization_metadata_provider: str = key("", _CLASS, releases=APACHE_5)
    authorization_strategy: str = key("", _CLASS, releases=APACHE_5)
    migrate_auth_from_v1_enabled: bool = key(
        False,
        "Accounts are not turned into users: make users with `orbitmq access user create`.",
        use=Use.REFUSED,
        releases=APACHE_5,
    )
    user_cache_max_num: int = key(1000, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5)
    user_cache_expired_second: int = key(600, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5)
    user_cache_refresh_second: int = key(60, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5)
    acl_cache_max_num: int = key(1000, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5)
    acl_cache_expired_second: int = key(600, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5)
    acl_cache_refresh_second: int = key(60, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5)
    stateful_authentication_cache_max_num: int = key(
        10_000, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5
    )
    stateful_authentication_cache_expired_second: int = key(
        60, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5
    )
    stateful_authorization_cache_max_num: int = key(
        10_000, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5
    )
    stateful_authorization_cache_expired_second: int = key(
        60, _NO_CACHE, use=Use.NO_EFFECT, releases=APACHE_5
    )

    def _problems(self) -> Iterator[tuple[str, str]]:
        yield from super()._problems()
        if self.authorization_enabled and not self.authentication_enabled:
            yield (
                "authorizationEnabled",
                "authorizationEnabled=true needs authenticationEnabled=true: without it, any"
                " client can claim to be a super user",
            )
        for attribute, classes in _CLASSES.items():
            named = str(getattr(self, attribute)).rpartition(".")[2]
            if named and named not in classes:
                name = next(each.name for each in self.all_keys() if each.attribute == attribute)
                yield (
                    name,
                    f"{name}={getattr(self, attribute)} cannot be used: classes of others are not"
                    " run here; leave it out",
                )


@dataclass(frozen=True, kw_only=True)
class ProxySettings(Settings):
    """Which proxies may state the address of a client."""

    SECTION: ClassVar[str] = "orbitmq"

    trusted_proxies: str = key(
        "",
        "Addresses and networks, separated by commas, of load balancers whose PROXY preambles are"
        " believed. If not set: all without access control; none with it, since its rules may name"
        " addresses.",
        releases=OWN,
    )


@dataclass(frozen=True, kw_only=True)
class AccessSettings(UserSettings, ProxySettings):
    """All keys of access control."""
