"""The members of this broker's group, as name servers know them: brokers of the same name, by id.

Asked for when an unknown host connects to the HA port, at most once per `REFRESH_MS_MIN`, and now
and then by a slave that looks for its master. If no name server replies, what was known stays.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.nameserver import ClusterInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.name_servers import split_address

REFRESH_MS_MIN: Final = 1_000
ANY_HOST: Final = "*"
_TIMEOUT_MS: Final = 3_000
log = logging.getLogger(__name__)


class GroupMembers:
    """The other members of a group, and the hosts that may follow this broker."""

    def __init__(
        self,
        *,
        broker_name: str,
        own_address: str,
        configured: str,
        client: RemotingClient,
        name_servers: Callable[[], Iterable[str]],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._broker_name = broker_name
        self._own_address = own_address
        self._configured = [host.strip() for host in configured.split(",") if host.strip()]
        self._client = client
        self._name_servers = name_servers
        self._monotonic_ms = monotonic_ms
        self._refreshed_ms: int | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._hosts = Counter[str]()  # IP addresses, with the number of members at each
        self.addresses: Mapping[int, str] = {}  # of all members but this one, by id

    def count_at(self, host: str) -> int:
        """Return how many members live at an IP address."""
        return self._hosts[host]

    async def is_allowed(self, host: str) -> bool:
        """Return whether a peer with that IP address may follow this broker."""
        if ANY_HOST in self._configured or self._hosts[host]:
            return True
        await self.refresh()
        return self._hosts[host] > 0

    async def refresh(self) -> None:
        """Ask the name servers, unless that was done a moment ago."""
        now_ms = self._monotonic_ms()
        if self._refreshed_ms is None or now_ms - self._refreshed_ms >= REFRESH_MS_MIN:
            self._refreshed_ms = now_ms
            self._refreshing = asyncio.ensure_future(self._ask())
        if self._refreshing is not None:
            await asyncio.shield(self._refreshing)

    async def _ask(self) -> None:
        found: dict[int, str] = dict(self.addresses)
        for name_server in list(self._name_servers()):
            try:
                found = await self._members_of(name_server)
                break
            except (OrbitError, ValueError) as error:
                log.info("members_not_learned name_server=%s reason=%s", name_server, error)
        self.addresses = found
        self._hosts = Counter(
            [
                *[ip for address in found.values() for ip in await _resolved(address)],
                *[ip for host in self._configured for ip in await _resolved(f"{host}:1")],
            ]
        )

    async def _members_of(self, name_server: str) -> dict[int, str]:
        request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        response = await self._client.invoke(name_server, request, _TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise ValueError(f"code {response.code}: {response.remark}")
        group = ClusterInfo.decode(response.body or b"").brokers.get(self._broker_name)
        return (
            {}
            if group is None
            else {
                number: address
                for number, address in group.broker_addrs.items()
                if address != self._own_address
            }
        )


async def _resolved(address: str) -> list[str]:
    """Return the IP addresses of a host; none if it has no address."""
    try:
        host, port = split_address(address)
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OrbitError, OSError, UnicodeError) as error:
        log.warning("member_not_resolved address=%s reason=%s", address, error)
        return []
    return sorted({str(each[4][0]) for each in found})
