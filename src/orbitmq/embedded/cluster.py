"""A whole cluster in this process's event loop: a name server and a broker that knows it. Builds, starts and stops; no logic of its own.

Ports that are not given are free ones; a store that is not given lies in a temporary folder and goes with the cluster.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, load_broker
from orbitmq.common.config import load
from orbitmq.common.errors import ConfigurationError
from orbitmq.common.service import Services
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer

# Small files: an ephemeral store is opened in no time, and takes no more of the disk than it holds.
_EPHEMERAL: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
    "brokerFastFailureEnable": "false",  # it shares a loop with those who test: how late that is says nothing of the broker
}
_PORT_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What is asked for; None and 0 leave it to the cluster."""

    name_server_port: int = 0
    broker_port: int = 0
    host: str = "127.0.0.1"
    store: Path | None = None
    broker: Mapping[str, str] = field(default_factory=dict)  # further keys of the broker's configuration


class EmbeddedCluster:
    """One name server and one broker, from `start` to `stop`."""

    def __init__(self, settings: ClusterSettings | None = None) -> None:
        self.settings = settings or ClusterSettings()
        self._services = Services()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.name_server: NameServer | None = None
        self.broker: Broker | None = None

    @property
    def name_server_address(self) -> str:
        assert self.name_server is not None, "the cluster is not started"
        return f"{self.settings.host}:{self.name_server.address[1]}"

    @property
    def broker_address(self) -> str:
        assert self.broker is not None, "the cluster is not started"
        return "{}:{}".format(*self.broker.address)

    @property
    def store(self) -> Path:
        """Where messages are kept."""
        assert self.broker is not None, "the cluster is not started"
        return Path(self.broker.config.store_path_root_dir)

    @property
    def is_ephemeral(self) -> bool:
        return self.settings.store is None

    async def start(self) -> None:
        """Start the name server, then the broker; nothing stays when one of them does not start."""
        settings = self.settings
        self._folder = tempfile.TemporaryDirectory(prefix="orbitmq-") if settings.store is None else None
        root = Path(self._folder.name) if self._folder is not None else settings.store
        assert root is not None, "one of both"
        flags = {"listenPort": str(settings.name_server_port), "bindAddress": settings.host, "kvConfigPath": str(root / "kvConfig.json")}
        self.name_server = NameServer(load(NameServerConfig, flags=flags).settings)
        self._services.add("temporary folder", stop=None if self._folder is None else self._folder.cleanup)
        self._services.add("name server", start=self.name_server.start, stop=self.name_server.stop)
        self._services.add("broker", start=lambda: self._start_broker(root), stop=self._stop_broker)
        await self._services.start()

    async def stop(self) -> None:
        """Stop the broker, then the name server; an ephemeral store is removed."""
        await self._services.stop()

    async def _start_broker(self, root: Path) -> None:
        self.broker = Broker(self._broker_config(root))
        await self.broker.start()

    async def _stop_broker(self) -> None:
        assert self.broker is not None
        await self.broker.stop()

    def _broker_config(self, root: Path) -> BrokerConfig:
        settings = self.settings
        flags = {
            "brokerName": "broker-a",
            "brokerIP1": settings.host,
            "listenPort": str(settings.broker_port or free_port(settings.host)),
            "namesrvAddr": self.name_server_address,
            "storePathRootDir": str(root / "store" if self.is_ephemeral else root),
            **(_EPHEMERAL if self.is_ephemeral else {}),
            **settings.broker,
        }
        return load_broker(flags=flags).settings


def free_port(host: str) -> int:
    """A port on which nothing listens, nor on the two that a broker takes beside it."""
    for _ in range(_PORT_TRIES):
        with socket.create_server((host, 0)) as probe:
            port: int = probe.getsockname()[1]
            try:
                for beside in (port - 2, port + 1):
                    socket.create_server((host, beside)).close()
            except (OSError, OverflowError):
                continue
        return port
    raise ConfigurationError(f"no free port was found on {host} in {_PORT_TRIES} tries; give one with --broker-port")
