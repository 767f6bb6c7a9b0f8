"""The broker: starts and stops its parts in order. No logic of its own.

Start order: lock the store, load the topics, recover the store; load the other metadata; listen;
register with the name servers; start the periodic tasks. It stops in the reverse order: unregister
first, so that clients go elsewhere; then accept no more requests and reply to those that wait for
the disk; close the connections; metadata and the store come last. Without the store's lock, none of
its files is touched.
"""

from __future__ import annotations

import asyncio

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.server_keys import MetricsExporter
from orbitmq.broker.observability.metrics import Metrics
from orbitmq.broker.observability.metrics_server import MetricsServer
from orbitmq.broker.observability.recorder import StatsRecorder
from orbitmq.broker.registration.address_check import AdvertisedAddressCheck
from orbitmq.broker.wiring.components import build_components
from orbitmq.broker.wiring.request_layer import RequestLayer
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.config.tls import TlsMode
from orbitmq.common.service import Services
from orbitmq.remoting.settings import client_config
from orbitmq.store.file_layer import FileLayer, OsFileLayer


class Broker:
    """One broker in this process's event loop."""

    def __init__(
        self, config: BrokerConfig, clock: Clock | None = None, layer: FileLayer | None = None
    ) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._layer = layer or OsFileLayer()
        self._services = Services()
        self._requests: RequestLayer | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The address advertised to clients."""
        return self.config.broker_ip1, self.config.listen_port

    @property
    def figures(self) -> StatsRecorder | None:
        """The statistics; None before the start."""
        return None if self._requests is None else self._requests.recorder

    @property
    def metrics(self) -> Metrics | None:
        """The metrics; None before the start."""
        return None if self._requests is None else self._requests.metrics

    async def start(self) -> None:
        """Build all parts, then start them in order. StartFailedError names the part that failed;
        in that case nothing stays running.
        """
        config, services = self.config, self._services
        components = build_components(config, self._clock, self._layer, asyncio.get_running_loop())
        requests = self._requests = RequestLayer(components)
        services.add("calls to name servers and clients", stop=components.client.close)
        services.add(
            "store",
            start=components.store.open,
            stop=components.close_store,
            kill=components.store.abandon,
        )
        services.add("deduplication window", start=components.fill_window)
        services.add(
            "topics, groups and offsets",
            start=components.load_metadata,
            stop=components.metadata.save,
            kill=components.metadata.abandon,
        )
        services.add(
            "scheduled delivery",
            start=components.delay.load if config.is_slave else components.delay.start,
            stop=components.delay.stop,
            kill=components.delay.abandon,
        )
        services.add(
            "half messages by topic",
            start=components.half_counts.load,
            stop=components.half_counts.save_soon,
            kill=lambda: None,
        )
        if not config.is_slave:
            services.add("transactions", start=components.transactions.load)
        services.add("access control", start=components.access.load)
        services.add("pending requests", stop=requests.dispatcher.close)
        services.add(
            "ticks of the store",
            start=components.store_ticks.start,
            stop=components.store_ticks.stop,
        )
        services.add("upkeep", start=requests.upkeep.start, stop=requests.upkeep.stop)
        for name, server in requests.servers.items():
            services.add(
                f"{name} on port {server.config.port}", start=server.start, stop=server.stop
            )
        replication = components.replication
        services.add(
            f"slaves on port {config.ha_listen_port}",
            start=replication.server.start,
            stop=replication.server.stop,
        )
        services.add("draining requests", stop=requests.drain, kill=lambda: None)
        if config.metrics_exporter_type is MetricsExporter.PROM:
            host = config.metrics_prom_exporter_host or config.bind_address
            exporter = MetricsServer(
                requests.metrics.render, host, config.metrics_prom_exporter_port
            )
            services.add(
                f"metrics on port {config.metrics_prom_exporter_port}",
                start=exporter.start,
                stop=exporter.stop,
            )
        services.add(
            "name servers",
            start=components.link.start,
            stop=components.link.stop,
            kill=components.link.abandon,
        )
        if replication.following is not None:
            services.add(
                "the master's log",
                start=replication.following.link.start,
                stop=replication.following.link.stop,
            )
        if components.slave_sync is not None:
            services.add(
                "the master's metadata",
                start=components.slave_sync.start,
                stop=components.slave_sync.stop,
            )
        check = AdvertisedAddressCheck(
            components.identity.address,
            client_config(config),
            self._clock,
            lambda: requests.info.entries()["bootTimestamp"],
            speaks_plaintext=config.tls_server_mode is not TlsMode.ENFORCING,
            hooks=components.access.signers,
            may_ask=not components.access.is_silent,
        )
        services.add("check of the advertised address", start=check.start, stop=check.stop)
        await services.start()

    async def stop(self) -> None:
        """Unregister, accept no more requests, reply to those accepted, flush everything to
        disk.
        """
        await self._services.stop()

    async def kill(self) -> None:
        """Stop like a killed process: connections break, no peer is notified, nothing more is
        written. For tests.
        """
        await self._services.kill()

    def clock_moved(self, *, hears_clients: bool) -> None:
        """Adjust to a clock that was moved by hand: nothing is late because of it, and clients that
        can be heard do not count as silent. For tests.
        """
        if self._requests is not None:
            self._requests.clock_moved(hears_clients=hears_clients)
