"""The broker: starts and stops its parts in order. No logic of its own.

Order: the store is locked, reads which topics exist and is recovered; the other tables are loaded, the servers listen, the name servers
hear of the broker, then time passes (`upkeep`). It stops in the reverse order: name servers first, so that clients go elsewhere; then no
more requests are taken, and those that wait for the disk are answered; connections are closed; the tables and the store come last. Whoever
does not have the store's lock touches no file of it.
"""

from __future__ import annotations

import asyncio
import logging

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.figures import Figures
from orbitmq.broker.metrics import Metrics
from orbitmq.broker.metrics_server import MetricsServer
from orbitmq.broker.own_address import AddressCheck
from orbitmq.broker.parts import Parts
from orbitmq.broker.serving import Serving
from orbitmq.broker.settings.serving import MetricsExporter
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.config.tls import TlsMode
from orbitmq.common.service import Services
from orbitmq.remoting.settings import client_config
from orbitmq.store.file_layer import FileLayer, OsFileLayer

log = logging.getLogger(__name__)


class Broker:
    """One broker in this process's event loop."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, layer: FileLayer | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._layer = layer or OsFileLayer()
        self._services = Services()
        self._serving: Serving | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients are told to connect to."""
        return self.config.broker_ip1, self.config.listen_port

    @property
    def figures(self) -> Figures | None:
        """What it counted, once it was started."""
        return None if self._serving is None else self._serving.figures

    @property
    def metrics(self) -> Metrics | None:
        """What it measures, once it was started."""
        return None if self._serving is None else self._serving.metrics

    async def start(self) -> None:
        """Build everything, then start it part by part; StartFailed names the part that did not start, and nothing stays half-started."""
        config, services = self.config, self._services
        for name, value in config.rows():
            log.info("config %s=%s", name, value)
        parts = Parts(config, self._clock, self._layer, asyncio.get_running_loop())
        serving = self._serving = Serving(parts)
        services.add("calls to name servers and clients", stop=parts.client.close)
        services.add("store", start=parts.store.open, stop=parts.close_store, kill=parts.store.abandon)
        services.add("messages that may be sent twice", start=parts.learn_sent)
        services.add("topics, groups and offsets", start=parts.load_tables, stop=parts.tables.save, kill=parts.tables.abandon)
        services.add("messages that come later", start=parts.later.start, stop=parts.later.stop, kill=parts.later.abandon)
        services.add("half messages by topic", start=parts.half_counts.load, stop=parts.half_counts.save_soon, kill=lambda: None)
        services.add("transactions", start=parts.transactions.load)
        services.add("access control", start=parts.access.load)
        services.add("requests that wait", stop=serving.dispatcher.close)
        services.add("upkeep", start=serving.upkeep.start, stop=serving.upkeep.stop)
        for name, server in serving.servers.items():
            services.add(f"{name} on port {server.config.port}", start=server.start, stop=server.stop)
        services.add("taking requests", stop=serving.drain, kill=lambda: None)
        if config.metrics_exporter_type is MetricsExporter.PROM:
            host = config.metrics_prom_exporter_host or config.bind_address
            exporter = MetricsServer(serving.metrics.render, host, config.metrics_prom_exporter_port)
            services.add(f"metrics on port {config.metrics_prom_exporter_port}", start=exporter.start, stop=exporter.stop)
        services.add("name servers", start=parts.link.start, stop=parts.link.stop, kill=parts.link.abandon)
        check = AddressCheck(
            parts.identity.address,
            client_config(config),
            self._clock,
            lambda: parts.info.entries()["bootTimestamp"],
            speaks_plaintext=config.tls_server_mode is not TlsMode.ENFORCING,
            hooks=parts.access.signers,
            may_ask=not parts.access.is_silent,
        )
        services.add("check of the own address", start=check.start, stop=check.stop)
        await services.start()

    async def stop(self) -> None:
        """Unregister, take no more requests, answer what was taken, bring everything to disk."""
        await self._services.stop()

    async def kill(self) -> None:
        """End as a process does that is killed: connections break, nobody is told anything, nothing more is written; for tests."""
        await self._services.kill()

    def clock_moved(self, *, hears_clients: bool) -> None:
        """Hear that the clock was moved by hand: nothing is late because of that, nor are clients that can be heard silent; for tests."""
        if self._serving is not None:
            self._serving.clock_moved(hears_clients=hears_clients)
