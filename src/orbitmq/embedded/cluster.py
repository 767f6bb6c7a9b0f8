"""A whole cluster on this process's event loop: a name server and its brokers. Builds, starts and
stops them; has no logic of its own.

Unset ports are free ones, and a restarted broker keeps its ports; an unset store is a temporary
folder that is removed with the cluster. `make_broker` may provide another kind of broker, such as
one in its own process.
"""

from __future__ import annotations

import logging
import string
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.common.clock import Clock
from orbitmq.common.config import load
from orbitmq.common.service import Services
from orbitmq.embedded.ports import ReservedPort
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer

log = logging.getLogger(__name__)

__all__ = ["ClusterSettings", "EmbeddedBroker", "EmbeddedCluster", "broker_names"]

# Small files: an ephemeral store opens at once, and uses no more disk than its content.
_EPHEMERAL: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
    # The broker shares the loop with its tests, whose delays say nothing about the broker.
    "brokerFastFailureEnable": "false",
}
# Optional features that trials and tests expect to be on.
_COMPLETE: Final[Mapping[str, str]] = {"enablePropertyFilter": "true"}
_PORTS_APART: Final = 10  # between the ports of consecutive brokers
BROKERS_MAX: Final = len(string.ascii_lowercase)


def broker_names(count: int) -> list[str]:
    """Return broker-a, broker-b, …"""
    assert 1 <= count <= BROKERS_MAX, count
    return [f"broker-{letter}" for letter in string.ascii_lowercase[:count]]


class EmbeddedBroker(Protocol):
    """A broker of the cluster; `Broker` is one."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...


MakeBroker = Callable[[Mapping[str, str]], EmbeddedBroker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Settings of an embedded cluster; None and 0 leave the choice to the cluster."""

    name_server_port: int = 0
    broker_port: int = 0  # of the first broker; the others follow at fixed distances
    host: str = "127.0.0.1"
    second_hosts: Sequence[str] = ()  # more addresses on which found ports are reserved
    store: Path | None = None  # with several brokers, each has a subfolder with its name
    brokers: Sequence[str] = ("broker-a",)
    broker: Mapping[str, str] = field(default_factory=dict)  # more broker configuration keys
    name_server: Mapping[str, str] = field(default_factory=dict)  # more name server keys


class EmbeddedCluster:
    """One name server and its brokers, from `start` to `stop`; single brokers may be stopped,
    killed and restarted in between.
    """

    def __init__(
        self,
        settings: ClusterSettings | None = None,
        clock: Clock | None = None,
        make_broker: MakeBroker | None = None,
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.folder: Path | None = None  # of all files, while the cluster runs
        self.name_server: NameServer | None = None
        self._clock = clock
        self._make_broker = make_broker or self._in_this_process
        self._services = Services()
        self._keys: dict[str, Mapping[str, str]] = {}  # configuration of each broker
        self._running: dict[str, EmbeddedBroker] = {}
        self._reserved_ports: dict[str, ReservedPort] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def name_server_address(self) -> str:
        """The address of the name server."""
        assert self.name_server is not None, "the cluster is not started"
        return f"{self.settings.host}:{self.name_server.address[1]}"

    @property
    def broker_address(self) -> str:
        """The address of the first broker."""
        return self.address(self.settings.brokers[0])

    def address(self, name: str) -> str:
        """Return the address that a broker advertises to clients."""
        keys = self._keys[name]
        return f"{keys['brokerIP1']}:{keys['listenPort']}"

    @property
    def broker(self) -> EmbeddedBroker | None:
        """The first broker, if it is running."""
        return self._running.get(self.settings.brokers[0])

    @property
    def running(self) -> Mapping[str, EmbeddedBroker]:
        """The running brokers, by name."""
        return self._running

    @property
    def store(self) -> Path:
        """The store folder of the first broker."""
        return self.store_of(self.settings.brokers[0])

    def store_of(self, name: str) -> Path:
        """Return the store folder of a broker."""
        return Path(self._keys[name]["storePathRootDir"])

    @property
    def is_ephemeral(self) -> bool:
        """Whether the store is temporary."""
        return self.settings.store is None

    async def start(self) -> None:
        """Start the name server, then the brokers; a failure leaves nothing running."""
        services, names = self._services, self.settings.brokers
        services.add("folder", start=self._make_folder, stop=self._remove_folder)
        services.add("name server", start=self._start_name_server, stop=self._stop_name_server)
        for number, name in enumerate(names):
            services.add(
                f"ports of {name}",
                start=partial(self._assign_address, number, name),
                stop=partial(self._release_ports, name),
            )
            called = "broker" if len(names) == 1 else name
            services.add(
                called, start=partial(self.start_broker, name), stop=partial(self.stop_broker, name)
            )
        await services.start()

    async def stop(self) -> None:
        """Stop the brokers, then the name server; an ephemeral store is removed."""
        await self._services.stop()

    async def start_broker(self, name: str) -> None:
        """Start a stopped broker on its former ports and store."""
        assert name not in self._running, f"{name} runs already"
        broker = self._make_broker(self._keys[name])
        await broker.start()
        self._running[name] = broker

    async def stop_broker(self, name: str) -> None:
        """Stop a broker if it is running."""
        if (broker := self._running.pop(name, None)) is not None:
            await broker.stop()

    async def kill_broker(self, name: str) -> None:
        """Kill a broker without a shutdown, if it is running."""
        if (broker := self._running.pop(name, None)) is not None:
            await broker.kill()

    def _make_folder(self) -> None:
        if self.settings.store is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="orbitmq-")
            self.folder = Path(self._temporary.name)
        else:
            self.folder = self.settings.store

    def _remove_folder(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    async def _start_name_server(self) -> None:
        settings = self.settings
        assert self.folder is not None, "the folder is made first"
        flags = {
            "listenPort": str(settings.name_server_port),
            "bindAddress": settings.host,
            "kvConfigPath": str(self.folder / "kvConfig.json"),
            "configStorePath": str(self.folder / "namesrv.properties"),
            **settings.name_server,
        }
        self.name_server = NameServer(load(NameServerConfig, flags=flags).settings, self._clock)
        await self.name_server.start()

    async def _stop_name_server(self) -> None:
        assert self.name_server is not None, "it was started"
        await self.name_server.stop()

    def _assign_address(self, number: int, name: str) -> None:
        """Configure a broker's ports and store folder."""
        settings = self.settings
        assert self.folder is not None, "the folder is made first"
        if settings.broker_port:
            port = settings.broker_port + number * _PORTS_APART
        else:
            self._reserved_ports[name] = reserved = ReservedPort(
                settings.host, *settings.second_hosts
            )
            port = reserved.port
        folder = self.folder if len(settings.brokers) == 1 else self.folder / name
        self._keys[name] = {
            "brokerName": name,
            "brokerIP1": settings.host,
            "listenPort": str(port),
            "namesrvAddr": self.name_server_address,
            "storePathRootDir": str(folder / "store" if self.is_ephemeral else folder),
            **_COMPLETE,
            **(_EPHEMERAL if self.is_ephemeral else {}),
            **settings.broker,
        }

    def _release_ports(self, name: str) -> None:
        if (reserved := self._reserved_ports.pop(name, None)) is not None:
            reserved.close()

    def _in_this_process(self, keys: Mapping[str, str]) -> Broker:
        loaded = load_broker(flags=dict(keys))
        for warning in loaded.warnings:
            log.warning("configuration %s", warning)
        return Broker(loaded.settings, self._clock)
