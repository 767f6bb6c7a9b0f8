"""A whole cluster in this process's event loop: a name server and brokers that know it. Builds, starts and stops; no logic of its own.

Ports that are not given are free ones, and a broker that comes back has those that it had; a store that is not given lies in a temporary
folder and goes with the cluster. What a broker is, may be somebody else's choice (`make_broker`): a process of its own, for instance.
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
from orbitmq.broker.config import load_broker
from orbitmq.common.clock import Clock
from orbitmq.common.config import load
from orbitmq.common.service import Services
from orbitmq.embedded.ports import KeptPort, free_port
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer

log = logging.getLogger(__name__)

__all__ = ["ClusterSettings", "EmbeddedBroker", "EmbeddedCluster", "broker_names", "free_port"]

# Small files: an ephemeral store is opened in no time, and takes no more of the disk than it holds.
_EPHEMERAL: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
    "brokerFastFailureEnable": "false",  # it shares a loop with those who test: how late that is says nothing of the broker
}
# Who tries a cluster out, or tests with it, should not have to know first what a broker can be told to leave out.
_COMPLETE: Final[Mapping[str, str]] = {"enablePropertyFilter": "true"}
_PORTS_APART: Final = 10  # of brokers whose ports follow from the first one's
BROKERS_MAX: Final = len(string.ascii_lowercase)


def broker_names(count: int) -> list[str]:
    """broker-a, broker-b, …"""
    assert 1 <= count <= BROKERS_MAX, count
    return [f"broker-{letter}" for letter in string.ascii_lowercase[:count]]


class EmbeddedBroker(Protocol):
    """What a broker of the cluster does; `Broker` does it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...


MakeBroker = Callable[[Mapping[str, str]], EmbeddedBroker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What is asked for; None and 0 leave it to the cluster."""

    name_server_port: int = 0
    broker_port: int = 0  # of the first; those of the others follow, at a distance
    host: str = "127.0.0.1"
    second_hosts: Sequence[str] = ()  # where ports that are found for brokers are kept free too
    store: Path | None = None  # of several brokers, each has a folder of its name in it
    brokers: Sequence[str] = ("broker-a",)
    broker: Mapping[str, str] = field(default_factory=dict)  # further keys of the brokers' configuration
    name_server: Mapping[str, str] = field(default_factory=dict)  # and of the name server's


class EmbeddedCluster:
    """One name server and its brokers, from `start` to `stop`; a broker may be stopped or killed, and started again, in between."""

    def __init__(self, settings: ClusterSettings | None = None, clock: Clock | None = None, make_broker: MakeBroker | None = None) -> None:
        self.settings = settings or ClusterSettings()
        self.folder: Path | None = None  # of everything, while it is there
        self.name_server: NameServer | None = None
        self._clock = clock
        self._make_broker = make_broker or self._in_this_process
        self._services = Services()
        self._keys: dict[str, Mapping[str, str]] = {}  # of each broker's configuration
        self._running: dict[str, EmbeddedBroker] = {}
        self._kept_ports: dict[str, KeptPort] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def name_server_address(self) -> str:
        assert self.name_server is not None, "the cluster is not started"
        return f"{self.settings.host}:{self.name_server.address[1]}"

    @property
    def broker_address(self) -> str:
        """Of the first broker."""
        return self.address(self.settings.brokers[0])

    def address(self, name: str) -> str:
        """Where clients are told to connect to a broker."""
        keys = self._keys[name]
        return f"{keys['brokerIP1']}:{keys['listenPort']}"

    @property
    def broker(self) -> EmbeddedBroker | None:
        """The first broker, while it runs."""
        return self._running.get(self.settings.brokers[0])

    @property
    def running(self) -> Mapping[str, EmbeddedBroker]:
        """The brokers that run, by name."""
        return self._running

    @property
    def store(self) -> Path:
        """Where the first broker keeps messages."""
        return self.store_of(self.settings.brokers[0])

    def store_of(self, name: str) -> Path:
        """Where a broker keeps messages."""
        return Path(self._keys[name]["storePathRootDir"])

    @property
    def is_ephemeral(self) -> bool:
        return self.settings.store is None

    async def start(self) -> None:
        """Start the name server, then the brokers; nothing stays when one of them does not start."""
        services, names = self._services, self.settings.brokers
        services.add("folder", start=self._make_folder, stop=self._remove_folder)
        services.add("name server", start=self._start_name_server, stop=self._stop_name_server)
        for number, name in enumerate(names):
            services.add(f"ports of {name}", start=partial(self._give_place, number, name), stop=partial(self._give_back_ports, name))
            called = "broker" if len(names) == 1 else name
            services.add(called, start=partial(self.start_broker, name), stop=partial(self.stop_broker, name))
        await services.start()

    async def stop(self) -> None:
        """Stop the brokers, then the name server; an ephemeral store is removed."""
        await self._services.stop()

    async def start_broker(self, name: str) -> None:
        """Start a broker that does not run, where it was."""
        assert name not in self._running, f"{name} runs already"
        broker = self._make_broker(self._keys[name])
        await broker.start()
        self._running[name] = broker

    async def stop_broker(self, name: str) -> None:
        """Stop a broker, unless it does not run."""
        if (broker := self._running.pop(name, None)) is not None:
            await broker.stop()

    async def kill_broker(self, name: str) -> None:
        """End a broker without its knowing, unless it does not run."""
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
        assert self.folder is not None, "the folder comes first"
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

    def _give_place(self, number: int, name: str) -> None:
        """Say where a broker is, on the network and on disk."""
        settings = self.settings
        assert self.folder is not None, "the folder comes first"
        if settings.broker_port:
            port = settings.broker_port + number * _PORTS_APART
        else:
            self._kept_ports[name] = kept = KeptPort(settings.host, *settings.second_hosts)
            port = kept.port
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

    def _give_back_ports(self, name: str) -> None:
        if (kept := self._kept_ports.pop(name, None)) is not None:
            kept.close()

    def _in_this_process(self, keys: Mapping[str, str]) -> Broker:
        loaded = load_broker(flags=dict(keys))
        for warning in loaded.warnings:
            log.warning("configuration %s", warning)
        return Broker(loaded.settings, self._clock)
