"""What all operations share: requests to one or several servers, and broker addresses.

Knows no operation. A refusal raises RequestRefusedError naming the server, a missing reply raises
RemoteError. Queries of several brokers skip unreachable ones and report them; changes on several
servers report what was done when one fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.session.routes import MASTER_ID
from orbitmq.common.errors import (
    ConfigurationError,
    NotFoundError,
    OrbitError,
    RemoteError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.protocol.bodies.nameserver import BrokerData, ClusterInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import HeaderFields, RemotingCommand

T = TypeVar("T")
_POLL_S: Final = 0.05


class BrokerInstance(NamedTuple):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class GatheredReplies(NamedTuple, Generic[T]):
    """Replies by broker name, and the reason for each broker that could not be asked."""

    found: dict[str, T]
    unreachable: dict[str, str]


class Calls:
    """Sends the requests of all admin operations."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    # -- one server

    async def ask_name_server(
        self, code: int, header: HeaderFields | None = None
    ) -> RemotingCommand:
        """Return the reply of the first name server that responds, whatever its code."""
        return await self.session.client.invoke_name_server(
            RemotingCommand.request(code, header), self.session.settings.timeout_ms
        )

    async def ask(
        self,
        address: str,
        code: int,
        header: HeaderFields | None = None,
        body: bytes | None = None,
        *,
        accept: Iterable[int] = (),
    ) -> RemotingCommand:
        """Return the reply of one server; raise RequestRefusedError unless it succeeded or its code
        is in `accept`.
        """
        response = await self.session.client.invoke(
            address, RemotingCommand.request(code, header, body), self.session.settings.timeout_ms
        )
        return response if response.code in accept else succeeded(response, address)

    # -- several servers

    async def for_each_server(
        self, addresses: Iterable[str], operation: Callable[[str], Awaitable[T]]
    ) -> dict[str, T]:
        """Run an operation at each server; if some fail, the error names them and those that
        succeeded.
        """
        ordered = sorted(set(addresses))
        results = await asyncio.gather(*map(operation, ordered), return_exceptions=True)
        done: dict[str, T] = {}
        failed: list[OrbitError] = []
        for address, result in zip(ordered, results, strict=True):
            if isinstance(result, OrbitError):
                failed.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                done[address] = result
        if not failed:
            return done
        text = "; ".join(map(str, failed)) + (f"; done at {', '.join(done)}" if done else "")
        refused = next((error for error in failed if isinstance(error, RequestRefusedError)), None)
        raise (
            RemoteUnavailableError(text)
            if refused is None
            else RequestRefusedError(refused.code, text)
        )

    async def ask_every_name_server(
        self, code: int, header: HeaderFields | None = None, body: bytes | None = None
    ) -> dict[str, RemotingCommand]:
        """Send a request to every name server, since they do not replicate changes."""
        addresses = self.session.client.name_servers.in_order()
        return await self.for_each_server(
            addresses, lambda address: self.ask(address, code, header, body)
        )

    async def gather(
        self, addresses: Mapping[str, str], query: Callable[[str], Awaitable[T]]
    ) -> GatheredReplies[T]:
        """Query brokers concurrently, given their addresses by name.

        Raises RemoteUnavailableError if there are brokers and none replies.
        """
        results = await asyncio.gather(*map(query, addresses.values()), return_exceptions=True)
        found: dict[str, T] = {}
        unreachable: dict[str, str] = {}
        for name, result in zip(addresses, results, strict=True):
            if isinstance(result, RemoteError):
                unreachable[name] = str(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[name] = result
        if unreachable and not found:
            raise RemoteUnavailableError("no broker replied: " + "; ".join(unreachable.values()))
        return GatheredReplies(found, unreachable)

    # -- broker addresses

    async def cluster_info(self) -> ClusterInfo:
        """Return every registered broker, by cluster."""
        response = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(succeeded(response).body or b"{}")

    async def readers(self) -> dict[str, str]:
        """Return an address to query for each broker: its master, else its first replica."""
        return addresses_to_read((await self.cluster_info()).brokers.values())

    async def masters(
        self, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """Return the masters to change: of the broker with that name or address, of a cluster, or
        of the only cluster.
        """
        return chosen_masters(await self.cluster_info(), cluster, broker)

    # -- polling

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> bool:
        """Poll a condition until it holds; return False after the timeout of a request."""
        deadline_ms = self.session.clock.monotonic_ms() + self.session.settings.timeout_ms
        while not await condition():
            if self.session.clock.monotonic_ms() >= deadline_ms:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def chosen_masters(info: ClusterInfo, cluster: str | None, broker: str | None) -> dict[str, str]:
    """Return the chosen masters by broker name; an error explains why one cannot be determined."""
    if not info.brokers:
        raise NotFoundError(
            "no broker is registered; start one with namesrvAddr set to these name servers"
        )
    if broker is not None:
        names = [
            name
            for name, data in info.brokers.items()
            if broker == name or broker in data.broker_addrs.values()
        ]
        if not names:
            raise NotFoundError(
                f"no broker {broker} is registered; there are {', '.join(sorted(info.brokers))}"
            )
    else:
        known = ", ".join(sorted(info.clusters))
        if cluster is None and len(info.clusters) > 1:
            raise ConfigurationError(
                f"there are several clusters ({known}): name one of them, or a broker"
            )
        chosen = next(iter(info.clusters), "") if cluster is None else cluster
        if chosen not in info.clusters:
            raise NotFoundError(f"there is no cluster {chosen}; there are {known}")
        names = [name for name in info.clusters[chosen] if name in info.brokers]
    masters = {
        name: info.brokers[name].broker_addrs[MASTER_ID]
        for name in sorted(names)
        if MASTER_ID in info.brokers[name].broker_addrs
    }
    without = sorted(set(names).difference(masters))
    if without:
        raise NotFoundError(
            f"nothing was changed: {', '.join(without)} has no master at the moment; wait until it"
            " is back, or name one broker"
        )
    return masters


def addresses_to_read(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Return an address for each broker name: its master, else its first replica."""
    return {
        data.broker_name: data.broker_addrs[min(data.broker_addrs)]
        for data in brokers
        if data.broker_addrs
    }


def succeeded(response: RemotingCommand, address: str | None = None) -> RemotingCommand:
    """Return a successful reply; raise RequestRefusedError naming the server if it is a refusal."""
    if response.code == ResponseCode.SUCCESS:
        return response
    try:
        name = ResponseCode(response.code).name
    except ValueError:
        name = "a code unknown to this release"
    who = "" if address is None else f"{address} refused: "
    raise RequestRefusedError(
        response.code, f"{who}{response.remark or 'no remark'} (code {response.code}, {name})"
    )


def config_lines(body: bytes | None) -> dict[str, str]:
    """Parse the `key=value` lines of a server's configuration, which has no escapes."""
    lines = (body or b"").decode("utf-8", "replace").splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines) if key}
