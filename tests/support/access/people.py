"""What tests of access control share: people, what they may do in both systems, and clients that
act for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from orbitmq import ClientSettings, Credentials
from orbitmq.access.credentials import RequestSigner
from orbitmq.admin import Admin
from orbitmq.admin.access import TargetServers, policy_entry
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient

T = TypeVar("T")

OPERATOR: Final = Credentials("operator", "operator-secret")
ALICE: Final = Credentials("alice-key", "alice-secret")
BOB: Final = Credentials("bob-the-key", "bob-secret")
SECRETS: Final = (OPERATOR.secret_key, ALICE.secret_key, BOB.secret_key)

PLAIN_ACL: Final = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {OPERATOR.access_key}
  secretKey: {OPERATOR.secret_key}
  admin: true
- accessKey: {ALICE.access_key}
  secretKey: {ALICE.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - Allowed=PUB|SUB
"""
USERS: Final[Mapping[str, str]] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": (
        f'{{"username":"{OPERATOR.access_key}","password":"{OPERATOR.secret_key}"}}'
    ),
    "innerClientAuthenticationCredentials": (
        f'{{"accessKey":"{OPERATOR.access_key}","secretKey":"{OPERATOR.secret_key}"}}'
    ),
}


def settings(
    name_server: str, credentials: Credentials | None, timeout_ms: int = 10_000
) -> ClientSettings:
    """A client of somebody."""
    return ClientSettings(name_servers=name_server, credentials=credentials, timeout_ms=timeout_ms)


def signed(request: RemotingCommand, credentials: Credentials | None) -> RemotingCommand:
    """The request as somebody signs it."""
    if credentials is not None:
        RequestSigner(credentials).before("", request)
    return request


def ask(
    address: str, request: RemotingCommand, credentials: Credentials | None = None
) -> RemotingCommand:
    """The answer to one request that somebody signed, or nobody."""

    async def main() -> RemotingCommand:
        async with RemotingClient(
            replace(ClientConfig(), connect_timeout_ms=10_000), SystemClock()
        ) as client:
            return await client.invoke(address, signed(request, credentials), 30_000)

    return asyncio.run(main())


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run to its end what awaits."""

    async def main() -> T:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(main())


async def add_alice(admin: Admin, *, at_name_servers: bool = False) -> None:
    """Say who alice is, and what she may do, in the style of 5.x."""
    entries = policy_entry(["Topic:Allowed", "Group:*"], ["Pub", "Sub"], "Allow")
    for where in [
        TargetServers(),
        *([TargetServers(name_servers=True)] if at_name_servers else []),
    ]:
        await admin.access.create_user(ALICE.access_key, ALICE.secret_key, where=where)
        await admin.access.create_acl(ALICE.access_key, entries, where)
