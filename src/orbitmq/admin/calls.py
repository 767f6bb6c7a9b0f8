"""What all operations share: one question to a name server or a broker, one change at several, and where the brokers are.

Knows no operation. A refusal raises RequestRefused that names who refused, no answer RemoteError. Questions to several brokers go on
without those that cannot be reached, and say which; changes at several say what was done when one fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from orbitmq.client.routes import MASTER_ID
from orbitmq.client.session import ClientSession
from orbitmq.common.errors import ConfigurationError, NotFound, OrbitError, RemoteError, RemoteUnavailable, RequestRefused
from orbitmq.protocol.bodies.nameserver import BrokerData, ClusterInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import HeaderFields, RemotingCommand

T = TypeVar("T")
_POLL_S: Final = 0.05


class BrokerPlace(NamedTuple):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Gathered(NamedTuple, Generic[T]):
    """What brokers answered, by name; and why others could not be asked."""

    found: dict[str, T]
    unreachable: dict[str, str]


class Calls:
    """See above."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    # -- one question

    async def ask_name_server(self, code: int, header: HeaderFields | None = None) -> RemotingCommand:
        """The answer of whichever name server answers, whatever its code."""
        return await self.session.client.invoke_name_server(RemotingCommand.request(code, header), self.session.settings.timeout_ms)

    async def ask(
        self, address: str, code: int, header: HeaderFields | None = None, body: bytes | None = None, *, also: Iterable[int] = ()
    ) -> RemotingCommand:
        """The answer of one server; one that is no success, and none of the codes in `also`, is a refusal."""
        response = await self.session.client.invoke(address, RemotingCommand.request(code, header, body), self.session.settings.timeout_ms)
        return response if response.code in also else succeeded(response, address)

    # -- several servers

    async def change(self, addresses: Iterable[str], act: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Do something at each server; an error, when some fail, says which did and which did not."""
        ordered = sorted(set(addresses))
        results = await asyncio.gather(*map(act, ordered), return_exceptions=True)
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
        refused = next((error for error in failed if isinstance(error, RequestRefused)), None)
        raise RemoteUnavailable(text) if refused is None else RequestRefused(refused.code, text)

    async def tell_name_servers(
        self, code: int, header: HeaderFields | None = None, body: bytes | None = None
    ) -> dict[str, RemotingCommand]:
        """Send a request to every name server, since they do not tell one another."""
        addresses = self.session.client.name_servers.in_order()
        return await self.change(addresses, lambda address: self.ask(address, code, header, body))

    async def gather(self, places: Mapping[str, str], question: Callable[[str], Awaitable[T]]) -> Gathered[T]:
        """Ask brokers, by name and address, at the same time; RemoteUnavailable when there are some and none answers."""
        results = await asyncio.gather(*map(question, places.values()), return_exceptions=True)
        found: dict[str, T] = {}
        unreachable: dict[str, str] = {}
        for name, result in zip(places, results, strict=True):
            if isinstance(result, RemoteError):
                unreachable[name] = str(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[name] = result
        if unreachable and not found:
            raise RemoteUnavailable("no broker answers: " + "; ".join(unreachable.values()))
        return Gathered(found, unreachable)

    # -- where brokers are

    async def cluster_info(self) -> ClusterInfo:
        """Every broker that is registered, by cluster."""
        response = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(succeeded(response).body or b"{}")

    async def readers(self) -> dict[str, str]:
        """Where to ask each broker: its master, else the first of its replicas."""
        return addresses_to_read((await self.cluster_info()).brokers.values())

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> dict[str, str]:
        """Where something can be changed: at the broker of that name or address, at all of a cluster, or at all of the only cluster."""
        return chosen_masters(await self.cluster_info(), cluster, broker)

    # -- waiting

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> bool:
        """Ask until something is so; False when it is not within the timeout of a call."""
        deadline_ms = self.session.clock.monotonic_ms() + self.session.settings.timeout_ms
        while not await is_so():
            if self.session.clock.monotonic_ms() >= deadline_ms:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def chosen_masters(info: ClusterInfo, cluster: str | None, broker: str | None) -> dict[str, str]:
    """The masters that are meant, by the names of their brokers; an error says why none, or not all, can be told."""
    if not info.brokers:
        raise NotFound("no broker is registered; start one with namesrvAddr set to these name servers")
    if broker is not None:
        names = [name for name, data in info.brokers.items() if broker == name or broker in data.broker_addrs.values()]
        if not names:
            raise NotFound(f"no broker {broker} is registered; there are {', '.join(sorted(info.brokers))}")
    else:
        known = ", ".join(sorted(info.clusters))
        if cluster is None and len(info.clusters) > 1:
            raise ConfigurationError(f"there are several clusters ({known}): say which one, or name a broker")
        chosen = next(iter(info.clusters), "") if cluster is None else cluster
        if chosen not in info.clusters:
            raise NotFound(f"there is no cluster {chosen}; there are {known}")
        names = [name for name in info.clusters[chosen] if name in info.brokers]
    masters = {name: info.brokers[name].broker_addrs[MASTER_ID] for name in sorted(names) if MASTER_ID in info.brokers[name].broker_addrs}
    without = sorted(set(names).difference(masters))
    if without:
        raise NotFound(f"nothing was changed: {', '.join(without)} has no master now; wait until it is back, or name one broker")
    return masters


def addresses_to_read(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Of each broker the address of its master, else of the first of its replicas; by name."""
    return {data.broker_name: data.broker_addrs[min(data.broker_addrs)] for data in brokers if data.broker_addrs}


def succeeded(response: RemotingCommand, address: str | None = None) -> RemotingCommand:
    """The answer; RequestRefused, with who says it, when it is a refusal."""
    if response.code == ResponseCode.SUCCESS:
        return response
    try:
        name = ResponseCode(response.code).name
    except ValueError:
        name = "a code this release does not know"
    who = "" if address is None else f"{address} refused: "
    raise RequestRefused(response.code, f"{who}{response.remark or 'no remark'} (code {response.code}, {name})")


def config_lines(body: bytes | None) -> dict[str, str]:
    """The `key=value` lines of a server's configuration, as servers write them: without escapes."""
    lines = (body or b"").decode("utf-8", "replace").splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines) if key}
