"""The link to the name servers: registers the broker with each of them, keeps them up to date, and
unregisters it.

Each name server has a worker of its own, so that one that is down does not delay the others, and
none gets two requests at once. A name server that has accepted everything so far is sent changed
topics only; one that missed something gets all topics, since it ignores a registration whose
version it already knows. Reads the broker's topics from a table, and passes replies to a callback.
Invariant: after a change, every name server that replies within the registration timeout has it
before `settled` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from orbitmq.broker.config.nameserver_keys import LinkKeys
from orbitmq.broker.registration import requests as registration
from orbitmq.broker.registration.requests import BrokerIdentity, RegistrationAnswer, TopicSource
from orbitmq.common.errors import (
    OrbitError,
    RemoteError,
    RemoteTimeoutError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import QueryDataVersionResponseHeader
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.name_servers import address_server_url, look_up, parse_list, split_address
from orbitmq.remoting.slices import finish_between

FIRST_PERIOD_S: Final = (
    10.0  # after the start, so that name servers started with the broker do not wait a whole period
)
FAREWELL_TIMEOUT_MS: Final = 3000

_TOPIC_ALONE_TIMEOUT_MS: Final = 3_000

log = logging.getLogger(__name__)


class _NameServer:
    """One name server, and what is still to be sent to it."""

    __slots__ = (
        "address",
        "changed",
        "is_due",
        "is_plain",
        "is_up",
        "takes_topics_alone",
        "updated",
        "updated_next",
        "wake",
        "wants_all",
        "worker",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_up: bool | None = None  # None: not known yet
        self.is_plain = False  # set if it cannot read compressed registrations, like those of 4.9
        self.takes_topics_alone = True  # those of 4.9 do not, and some never reply to it
        self.wants_all = True  # it did not get all topics yet, or missed something since
        self.is_due = False  # a period has elapsed
        self.changed: dict[str, None] = {}
        self.wake = asyncio.Event()
        self.updated = asyncio.Event()  # set when the update under way is over
        self.updated_next = asyncio.Event()  # set when the one after that is over
        self.worker: asyncio.Task[None] | None = None

    @property
    def everything_sent(self) -> asyncio.Event:
        """Return the event that is set when everything known now has been sent; later changes are
        not waited for.
        """
        return self.updated_next if self.wake.is_set() else self.updated


class NameServerLink:
    """Registers the broker with all name servers. `answered` is called with every accepted
    registration; `filter_servers` are part of each.
    """

    def __init__(
        self,
        settings: LinkKeys,
        identity: BrokerIdentity,
        topics: TopicSource,
        client: RemotingClient,
        answered: Callable[[RegistrationAnswer], None],
        filter_servers: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._topics = topics
        self._client = client
        self._answered = answered
        self._filter_servers = filter_servers
        self._name_servers: dict[str, _NameServer] = {}
        self._timers: list[asyncio.Task[None]] = []
        self._waiting: set[asyncio.Task[None]] = set()
        self._lookup_fails = False

    @property
    def name_servers(self) -> dict[str, bool]:
        """Return the addresses of the name servers, and whether each replied last."""
        return {address: bool(each.is_up) for address, each in self._name_servers.items()}

    async def start(self) -> None:
        """Find the name servers, register with each, and wait for those that reply."""
        await self.refresh()
        if not self._name_servers:
            log.warning(
                "no_name_server hint='clients find the broker by its address only; set"
                " namesrvAddr=host:port'"
            )
        self._timers = [
            asyncio.create_task(self._register_forever()),
            asyncio.create_task(self._refresh_forever()),
        ]
        await self.settled()

    async def stop(self) -> None:
        """Unregister from every name server; one that does not reply is not waited for long."""
        leaving = list(self._name_servers)
        await self.abandon()
        await asyncio.gather(*(self._leave(address) for address in leaving))

    async def abandon(self) -> None:
        """Send nothing more to any name server."""
        workers = [each.worker for each in self._name_servers.values()]
        self._name_servers = {}
        await _end([*self._timers, *workers])
        self._timers = []
        await asyncio.gather(*self._waiting, return_exceptions=True)  # nothing delays them any more

    def topics_changed(self, names: Iterable[str]) -> None:
        """Register these topics with every name server, soon."""
        changed = dict.fromkeys(names)
        for each in self._name_servers.values():
            each.changed |= changed
            each.wake.set()

    def register_all(self) -> None:
        """Register all topics with every name server, soon: something that affects all of them has
        changed.
        """
        for each in self._name_servers.values():
            each.wants_all = True
            each.wake.set()

    def period_over(self) -> None:
        """Register again, soon, so that no name server considers the broker dead."""
        for each in self._name_servers.values():
            each.is_due = True
            each.wake.set()

    async def settled(self) -> None:
        """Wait until every name server that is not known to be down has everything so far, or did
        not reply in time.
        """
        waiting = [
            each.everything_sent.wait()
            for each in self._name_servers.values()
            if each.is_up is not False
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.register_broker_timeout_mills / 1000):
                await asyncio.gather(*waiting)

    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call back when `settled` would return, possibly at once."""
        if all(
            each.everything_sent.is_set() or each.is_up is False
            for each in self._name_servers.values()
        ):
            callback()
            return
        waiting = asyncio.get_running_loop().create_task(self._call_when_settled(callback))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _call_when_settled(self, callback: Callable[[], object]) -> None:
        await self.settled()
        callback()

    async def refresh(self) -> None:
        """Look up the name servers again; if that fails, the known ones stay."""
        try:
            addresses = await self._look_up()
        except (OrbitError, OSError) as problem:
            if not self._lookup_fails:
                log.warning(
                    "name_servers_not_found why='%s' kept=%s",
                    problem,
                    ";".join(self._name_servers) or None,
                )
            self._lookup_fails = True
            return
        self._lookup_fails = False
        if set(addresses) == set(self._name_servers):
            return
        log.info(
            "name_servers_changed old=%s new=%s",
            ";".join(self._name_servers) or None,
            ";".join(addresses) or None,
        )
        gone = [each for address, each in self._name_servers.items() if address not in addresses]
        self._name_servers = {
            address: self._name_servers.get(address) or self._begin(address)
            for address in addresses
        }
        self._client.name_servers.update(addresses)
        await _end([each.worker for each in gone])

    # -- requests to a name server

    def _begin(self, address: str) -> _NameServer:
        name_server = _NameServer(address)
        name_server.worker = asyncio.create_task(self._keep_up(name_server))
        name_server.wake.set()
        return name_server

    async def _keep_up(self, name_server: _NameServer) -> None:
        """Run the worker of one name server."""
        try:
            while True:
                await name_server.wake.wait()
                name_server.wake.clear()
                name_server.updated, name_server.updated_next = (
                    name_server.updated_next,
                    asyncio.Event(),
                )
                await self._try_to_update(name_server)
                name_server.updated.set()
        finally:  # release those that wait for a removed name server
            name_server.updated.set()
            name_server.updated_next.set()

    async def _try_to_update(self, name_server: _NameServer) -> None:
        try:
            await self._update(name_server)
        except OrbitError as problem:
            if name_server.is_up is not False:
                log.warning(
                    "name_server_lost address=%s why='%s' next_try_ms=%d",
                    name_server.address,
                    problem,
                    self._settings.register_period_ms,
                )
            name_server.is_up = False
        except Exception:
            log.exception("name_server_not_told address=%s", name_server.address)
            name_server.is_up = False
        else:
            if not name_server.is_up:
                log.info(
                    "name_server_has_us address=%s topics=%d",
                    name_server.address,
                    len(self._topics.table),
                )
            name_server.is_up = True

    async def _update(self, name_server: _NameServer) -> None:
        """Bring one name server up to date."""
        wants_all, name_server.wants_all = name_server.wants_all, False
        is_due, name_server.is_due = name_server.is_due, False
        changed, name_server.changed = name_server.changed, {}
        address, settings = name_server.address, self._settings
        try:
            has_gone = (
                not self._topics.table.keys() >= changed.keys()
            )  # only a registration of all remaining topics can remove one
            if (
                wants_all
                or has_gone
                or (is_due and (settings.force_register or await self._is_behind(address)))
            ):
                await self._register(name_server, None)
            elif changed and not (
                settings.enable_single_topic_register
                and await self._register_topics(name_server, changed)
            ):
                await self._register(name_server, changed)
        except BaseException:
            name_server.wants_all = True
            raise

    async def _register(self, name_server: _NameServer, names: Iterable[str] | None) -> None:
        if self._settings.compressed_register and not name_server.is_plain:
            try:
                await self._send(name_server.address, names, compressed=True)
            except RequestRefusedError as refused:
                log.info(
                    "registration_not_compressed address=%s why='%s'", name_server.address, refused
                )
            else:
                return
        await self._send(name_server.address, names, compressed=False)
        name_server.is_plain = self._settings.compressed_register

    async def _send(self, address: str, names: Iterable[str] | None, *, compressed: bool) -> None:
        requests = registration.registrations(
            self._settings,
            self._identity,
            self._topics,
            names,
            filter_servers=self._filter_servers(),
            compressed=compressed,
        )
        for request in requests:
            response = await self._ask(address, await finish_between(request))
            self._answered(RegistrationAnswer.decode(address, response))

    async def _register_topics(self, name_server: _NameServer, names: Iterable[str]) -> bool:
        """Register single topics. Returns False if the name server, one of 4.9, does not support
        it: it refuses, or never replies.
        """
        if not name_server.takes_topics_alone:
            return False
        timeout_ms = min(_TOPIC_ALONE_TIMEOUT_MS, self._settings.register_broker_timeout_mills)
        for request in registration.topic_registrations(
            self._settings, self._identity, self._topics, names
        ):
            try:
                await self._ask(name_server.address, request, timeout_ms)
            except RequestRefusedError as refused:
                if refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                name_server.takes_topics_alone = False
                return False
            except RemoteTimeoutError as problem:
                name_server.takes_topics_alone = False
                log.info(
                    "topics_not_registered_alone address=%s why='%s'", name_server.address, problem
                )
                await self._register(
                    name_server, None
                )  # the connection was closed, and with it what the name server knew
                return True
        return True

    async def _is_behind(self, address: str) -> bool:
        """Return whether the name server has another version of the topics; the query itself keeps
        the broker registered there.
        """
        response = await self._ask(
            address, registration.version_question(self._identity, self._topics.data_version)
        )
        return QueryDataVersionResponseHeader.from_fields(response.ext_fields).changed

    async def _ask(
        self, address: str, request: RemotingCommand, timeout_ms: int | None = None
    ) -> RemotingCommand:
        response = await self._client.invoke(
            address, request, timeout_ms or self._settings.register_broker_timeout_mills
        )
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefusedError(
                response.code,
                f"request {request.code} was answered with code {response.code}: {response.remark}",
            )
        return response

    async def _leave(self, address: str) -> None:
        try:
            response = await self._client.invoke(
                address, registration.farewell(self._identity), FAREWELL_TIMEOUT_MS
            )
        except RemoteError as problem:
            log.warning("name_server_not_left address=%s why='%s'", address, problem)
        else:
            log.info("name_server_left address=%s code=%d", address, response.code)

    # -- addresses of the name servers

    async def _look_up(self) -> list[str]:
        settings = self._settings
        if settings.namesrv_addr:
            addresses = parse_list(settings.namesrv_addr)
            return (
                await _resolved(addresses)
                if settings.fetch_name_srv_addr_by_dns_lookup
                else addresses
            )
        if settings.fetch_namesrv_addr_by_address_server:
            return await look_up(
                address_server_url(settings.address_server, settings.address_server_group)
            )
        return []

    async def _refresh_forever(self) -> None:
        settings = self._settings
        while True:
            by_name = settings.namesrv_addr or not settings.fetch_namesrv_addr_by_address_server
            await asyncio.sleep(
                (
                    settings.update_name_server_addr_period
                    if by_name
                    else settings.fetch_namesrv_addr_interval
                )
                / 1000
            )
            try:
                await self.refresh()
            except Exception:  # retried with the next period
                log.exception("name_servers_not_refreshed")

    async def _register_forever(self) -> None:
        await asyncio.sleep(FIRST_PERIOD_S)
        while True:
            self.period_over()
            await asyncio.sleep(self._settings.register_period_ms / 1000)


async def _resolved(addresses: Sequence[str]) -> list[str]:
    """Return every address of every host."""
    found: dict[str, None] = {}
    for address in addresses:
        host, port = split_address(address)
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as problem:
            raise RemoteUnavailableError(
                f"the name {host} of namesrvAddr cannot be resolved: {problem}"
            ) from problem
        found |= dict.fromkeys(
            sorted(
                f"[{info[4][0]}]:{port}" if info[0] == socket.AF_INET6 else f"{info[4][0]}:{port}"
                for info in infos
            )
        )
    return list(found)


async def _end(tasks: Iterable[asyncio.Task[None] | None]) -> None:
    """Cancel tasks, and wait until they ended."""
    ending = [task for task in tasks if task is not None]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
