"""The name server: builds, starts and stops its components. No logic of its own."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from orbitmq.access.control import AccessControl
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.errors import RemoteError
from orbitmq.common.service import Services
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.housekeeping import Housekeeping
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.nameserver.notices import MinBrokerIdNotices
from orbitmq.nameserver.other_environment import OtherEnvironment
from orbitmq.nameserver.processor import NameServerProcessor
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.hooks import installed_hooks
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.server import RemotingServer
from orbitmq.remoting.settings import client_config, server_config
from orbitmq.remoting.slices import SliceQueue, finish_between

log = logging.getLogger(__name__)

NOTICE_TIMEOUT_MS = 300
# Requests that wait for the disk or for another name server; all others are handled in one
# iteration.
WAITING = LaneLimits(name="configuration and look-up", running_max=64, queue_max=10_000)


class NameServer:
    """One name server in this process's event loop."""

    def __init__(self, config: NameServerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._services = Services()
        self._server: RemotingServer | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The listen address, with the actual port once started."""
        return (
            self._server.address
            if self._server is not None
            else (self.config.bind_address, self.config.listen_port)
        )

    async def start(self) -> None:
        """Build everything, then listen."""
        config, clock = self.config, self._clock
        access = AccessControl(
            config,
            cluster=config.cluster_name,
            users=Path(config.auth_config_path or Path(config.kv_config_path).parent),
            now_ms=clock.now_ms,
        )
        client = RemotingClient(client_config(config), clock, hooks=access.signers)
        notices = MinBrokerIdNotices(
            config, lambda address, notice: self._spawn(_notify(client, address, notice))
        )
        kv_config = KvConfig(Path(config.kv_config_path))
        table = RouteTable()
        other_environment = OtherEnvironment(client, config) if config.cluster_test else None
        processor = NameServerProcessor(
            table=table,
            kv_config=kv_config,
            notices=notices,
            switches=config,
            configuration=config,
            updated=lambda: self._follow_config(client),
            clock=clock,
            look_up=None if other_environment is None else other_environment.route,
        )
        housekeeping = Housekeeping(table, kv_config, notices, clock)
        slices = SliceQueue()
        dispatcher = RequestDispatcher(
            clock,
            installed_hooks(),
            guards=access.guards,
            requests_in_flight_max=config.max_requests_in_flight,
            bytes_in_flight_max=config.max_request_bytes_in_flight,
        )
        waiting = dispatcher.add_lane(WAITING)
        for code, handler in processor.handlers().items():
            dispatcher.register(
                code, handler, lane=waiting if asyncio.iscoroutinefunction(handler) else None
            )
        for number, of_users in access.of_users.handlers().items():
            dispatcher.register(number, of_users)
        preambles = access.believes_preamble_of
        self._server = RemotingServer(
            server_config(config, believes_preamble_of=preambles),
            dispatcher,
            clock,
            (_BrokerConnections(housekeeping, slices),),
        )
        self._services.add("access control", start=access.load)
        self._services.add("calls to brokers", stop=client.close)
        self._services.add("work in slices", stop=slices.close)
        self._services.add("requests that wait", stop=dispatcher.close)
        self._services.add("remoting server", start=self._server.start, stop=self._server.stop)
        self._services.add(
            "housekeeping",
            start=lambda: self._spawn(self._keep_house(housekeeping, access)),
            stop=self._stop_tasks,
        )
        await self._services.start()

    async def stop(self) -> None:
        """Stop listening, close every connection."""
        await self._services.stop()

    def _follow_config(self, client: RemotingClient) -> None:
        """Apply a changed configuration."""
        assert self._server is not None, "updates come through it"
        self._server.config = server_config(
            self.config, self._server.config.port, self._server.config.believes_preamble_of
        )
        client.config = client_config(self.config)

    async def _keep_house(self, housekeeping: Housekeeping, access: AccessControl) -> None:
        while True:
            await asyncio.sleep(self.config.scan_not_active_broker_interval / 1000)
            try:
                await finish_between(housekeeping.scan())
                access.tick()
            except Exception:
                log.exception("housekeeping failed")

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _notify(client: RemotingClient, address: str, notice: RemotingCommand) -> None:
    try:
        await client.invoke_oneway(address, notice, NOTICE_TIMEOUT_MS)
    except RemoteError as problem:
        log.warning("notice not sent broker=%s why=%s", address, problem)


class _BrokerConnections:
    """Reports closed connections to housekeeping."""

    def __init__(self, housekeeping: Housekeeping, slices: SliceQueue) -> None:
        self._housekeeping = housekeeping
        self._slices = slices

    def on_connect(self, channel: Channel) -> None: ...

    def on_close(self, channel: Channel) -> None:
        self._slices.start(self._housekeeping.connection_closed(channel))

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...
