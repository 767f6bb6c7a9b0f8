"""The broker: starts and stops its parts in order. No logic of its own.

Order: tables are loaded, the store is opened and recovered, the servers listen, the name servers hear of the broker, then time passes
(`upkeep`). It stops in the reverse order: name servers first, so that clients go elsewhere, the store and the tables last.
"""

from __future__ import annotations

import asyncio
import gc

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metrics_server import MetricsServer
from orbitmq.broker.parts import Parts
from orbitmq.broker.serving import Serving
from orbitmq.broker.settings.serving import MetricsExporter
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.service import Services
from orbitmq.store.file_layer import FileLayer, OsFileLayer


class Broker:
    """One broker in this process's event loop."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, layer: FileLayer | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._layer = layer or OsFileLayer()
        self._services = Services()

    @property
    def address(self) -> tuple[str, int]:
        """Where clients are told to connect to."""
        return self.config.broker_ip1, self.config.listen_port

    async def start(self) -> None:
        """Build everything, then start it part by part; StartFailed names the part that did not start, and nothing stays half-started."""
        config, services = self.config, self._services
        parts = Parts(config, self._clock, self._layer, asyncio.get_running_loop())
        serving = Serving(parts)
        services.add("calls to name servers and clients", stop=parts.client.close)
        services.add("topics, groups and offsets", start=parts.tables.load, stop=parts.tables.save)
        services.add("store", start=parts.store.open, stop=parts.store.close)
        services.add("requests that wait", stop=serving.dispatcher.close)
        services.add("upkeep", start=serving.upkeep.start, stop=serving.upkeep.stop)
        for name, server in serving.servers.items():
            services.add(f"{name} on port {server.config.port}", start=server.start, stop=server.stop)
        if config.metrics_exporter_type is MetricsExporter.PROM:
            host = config.metrics_prom_exporter_host or config.bind_address
            exporter = MetricsServer(serving.metrics.render, host, config.metrics_prom_exporter_port)
            services.add(f"metrics on port {config.metrics_prom_exporter_port}", start=exporter.start, stop=exporter.stop)
        services.add("name servers", start=parts.link.start, stop=parts.link.stop)
        await services.start()
        gc.collect()
        gc.freeze()  # what is there now stays: full collections need not look at it

    async def stop(self) -> None:
        """Unregister, stop listening, bring everything to disk."""
        await self._services.stop()
