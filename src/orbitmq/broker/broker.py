"""The broker: builds its parts, starts and stops them in order. No logic of its own.

Order: tables are loaded, the store is opened and recovered, the servers listen, the name servers hear of the broker, then time passes
(`upkeep`). It stops in the reverse order: name servers first, so that clients go elsewhere, the store and the tables last.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Protocol

from orbitmq import kernels
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.config_file import ConfigFile
from orbitmq.broker.consumers import Consumers
from orbitmq.broker.figures import Figures
from orbitmq.broker.gauges import Gauges
from orbitmq.broker.groups import GroupRules, Groups
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.long_polling import LongPollingConfig, PullHold
from orbitmq.broker.metric_sources import Identity
from orbitmq.broker.metrics import Metrics, parse_labels
from orbitmq.broker.metrics_server import MetricsServer
from orbitmq.broker.nameserver_link import NameServerLink
from orbitmq.broker.offset_journal import OffsetJournal
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.processors.broker_info import BrokerInfoProcessor
from orbitmq.broker.processors.clients import ClientProcessor, ClientRules
from orbitmq.broker.processors.consumer_offsets import ConsumerOffsetProcessor
from orbitmq.broker.processors.groups import GroupProcessor
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.resets import ResetProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.topics import TopicProcessor
from orbitmq.broker.producers import Producers
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.registration import BrokerIdentity, RegistrationAnswer
from orbitmq.broker.settings.serving import MetricsExporter
from orbitmq.broker.stats import StatName, stat_key
from orbitmq.broker.store_settings import store_config
from orbitmq.broker.system_info import RuntimeInfo
from orbitmq.broker.topics import TopicRules, Topics
from orbitmq.broker.upkeep import Upkeep
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.errors import ConfigurationError
from orbitmq.common.service import Services
from orbitmq.message import hosts
from orbitmq.message.message_id import UniqueIds
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.dispatch import Dispatcher, Handler, LaneLimits
from orbitmq.remoting.endpoint import Taker
from orbitmq.remoting.hooks import installed_hooks
from orbitmq.remoting.server import RemotingServer
from orbitmq.remoting.settings import client_config, server_config
from orbitmq.store.file_layer import FileLayer, OsFileLayer
from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# What waits for a client's answer or for the disk; everything else is answered within its turn.
WAITING = LaneLimits(name="administration", running_max=64, queue_max=10_000)


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
        config, clock, services = self.config, self._clock, self._services
        loop = asyncio.get_running_loop()
        worker = ThreadPoolExecutor(1, thread_name_prefix="configuration")
        folder = Path(config.store_path_root_dir) / "config"
        files = {name: ConfigFile(folder / name, worker, loop) for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")}
        dispatcher = Dispatcher(clock, installed_hooks(), requests_in_flight_max=config.max_requests_in_flight)
        client = RemotingClient(client_config(config), clock)
        topics = Topics(_topic_rules(config), files["topics.json"], clock, lambda names: link.topics_changed(names))
        identity = BrokerIdentity.of(config, config.listen_port)
        link = NameServerLink(config, identity, topics, client, lambda answer: _answered(answer, topics))
        groups = Groups(_group_rules(config), files["subscriptionGroup.json"], clock)
        offsets = Offsets(
            files["consumerOffset.json"],
            OffsetJournal(folder / "consumerOffset.journal", self._layer),
            clock,
            server_side_reset=config.use_server_side_reset_offset,
            version_step=config.consumer_offset_update_version_step,
        )
        store_host = _store_host(config)
        store = MessageStore(
            self._layer, clock, store_config(config), store_host, notify=lambda: loop.call_soon_threadsafe(upkeep.tick_store)
        )
        store.retention.queues.is_system_topic = topics.is_system
        producers, consumers, locks = Producers(), Consumers(), QueueLocks()
        hold = PullHold(LongPollingConfig(long_polling=config.long_polling_enable, short_polling_ms=config.short_polling_time_mills))

        def updated() -> None:
            """Let those who took something over from the configuration take it over again."""
            topics.rules, groups.rules = _topic_rules(config), _group_rules(config)
            offsets.server_side_reset = config.use_server_side_reset_offset
            store.retention.config = store_config(config)

        def permission_changed() -> None:
            topics.renew()
            link.register_all()

        random = Random()
        unique_ids = UniqueIds(address=store_host[:-4], pid=os.getpid(), process_number=random.getrandbits(32), now_ms=clock.now_ms)
        figures = Figures(clock.now_ms(), config.broker_cluster_name, topics.is_system)
        sends = SendProcessor(config, topics, groups, store, store_host, clock.now_ms, unique_ids.next, figures, random)
        pulls = PullProcessor(config, topics, groups, offsets, consumers, store.reads, hold, clock.monotonic_ms, figures)
        store.dispatcher.listeners.append(pulls.arrived)
        store.dispatcher.is_awaited = lambda: len(hold) > 0
        clients = ClientProcessor(
            ClientRules(
                broker_name=config.broker_name,
                notify_consumer_ids_changed=config.notify_consumer_ids_changed_enable,
                reject_pull_consumers=config.reject_pull_consumer_enable,
                enable_property_filter=config.enable_property_filter,
            ),
            producers=producers,
            consumers=consumers,
            locks=locks,
            hold=hold,
            groups=groups,
            topics=topics,
            expression_problem=lambda kind, _text: f"expressions of type {kind} are not supported by this broker; subscribe by tags",
            record_at=store.reads.record_at,
            clock=clock,
        )
        info = RuntimeInfo(config, store, figures.store, clock)
        gauges = Gauges(
            topics=topics,
            groups=groups,
            offsets=offsets,
            producers=producers,
            consumers=consumers,
            store=store,
            permission=lambda: config.broker_permission,
            now_ms=clock.now_ms,
        )
        metrics = Metrics(
            Identity(
                cluster=config.broker_cluster_name,
                broker_name=config.broker_name,
                address=identity.address,
                labels=parse_labels(config.metrics_label),
            ),
            gauges.sources(figures.stats, info.entries, lambda: [(WAITING.name, dispatcher.in_flight)]),
        )
        figures.metrics = metrics
        upkeep = Upkeep(clock, store, offsets, pulls, clients, figures)
        lane = dispatcher.add_lane(WAITING)
        processors: list[Processor] = [
            sends,
            pulls,
            clients,
            QueryProcessor(config, store, consumers),
            ConsumerOffsetProcessor(
                config,
                topics=topics,
                groups=groups,
                offsets=offsets,
                consumers=consumers,
                store=store,
                clock=clock,
                address=lambda: identity.address,
                get_tps=lambda topic, group: figures.stats.tps(StatName.GROUP_GET_NUMS, stat_key(topic, group)),
                delay_file=folder / "delayOffset.json",
            ),
            ResetProcessor(config, topics=topics, groups=groups, offsets=offsets, consumers=consumers, store=store),
            TopicProcessor(
                config,
                topics=topics,
                offsets=offsets,
                store=store,
                when_saved=files["topics.json"].when_saved,
                put_tps=lambda topic: figures.stats.tps(StatName.TOPIC_PUT_NUMS, topic),
                deleted=figures.delete_topic,
            ),
            GroupProcessor(
                config,
                groups=groups,
                offsets=offsets,
                when_saved=files["subscriptionGroup.json"].when_saved,
                deleted=figures.delete_group,
                modes_file=folder / "messageRequestMode.json",
            ),
            BrokerInfoProcessor(
                config,
                info=info,
                stats=figures.stats,
                store=store,
                clock=clock,
                updated=updated,
                permission_changed=permission_changed,
            ),
        ]
        for processor in processors:
            for code, handler in processor.handlers().items():
                dispatcher.register(code, handler, lane=lane if asyncio.iscoroutinefunction(handler) else None)
        listeners = (_Connections(clients),)
        servers = [
            RemotingServer(settings, dispatcher, clock, listeners)
            for settings in (server_config(config), server_config(config, port=config.fast_listen_port))
        ]
        taker: Taker = _TurnEnd(offsets)
        if kernels.is_compiled(HotPath.__module__):
            taker = HotPath(sends, pulls, offsets, servers[0].config.frames, dispatcher.is_direct)
        for server in servers:
            server.endpoint.taker = taker

        def load() -> None:
            for table in (topics, groups, offsets):
                table.load()

        def save() -> None:
            offsets.close()
            for file in files.values():
                file.save_now()
            worker.shutdown()

        services.add("calls to name servers and clients", stop=client.close)
        services.add("topics, groups and offsets", start=load, stop=save)
        services.add("store", start=store.open, stop=store.close)
        services.add("requests that wait", stop=dispatcher.close)
        services.add("upkeep", start=upkeep.start, stop=upkeep.stop)
        for name, server in zip(("remoting server", "fast remoting server"), servers, strict=True):
            services.add(f"{name} on port {server.config.port}", start=server.start, stop=server.stop)
        if config.metrics_exporter_type is MetricsExporter.PROM:
            host = config.metrics_prom_exporter_host or config.bind_address
            exporter = MetricsServer(metrics.render, host, config.metrics_prom_exporter_port)
            services.add(f"metrics on port {config.metrics_prom_exporter_port}", start=exporter.start, stop=exporter.stop)
        services.add("name servers", start=link.start, stop=link.stop)
        await services.start()
        gc.collect()
        gc.freeze()  # what is there now stays: full collections need not look at it

    async def stop(self) -> None:
        """Unregister, stop listening, bring everything to disk."""
        await self._services.stop()


class Processor(Protocol):
    """Serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]: ...


class _Connections:
    """Tells the client processor of connections that ended."""

    def __init__(self, clients: ClientProcessor) -> None:
        self._clients = clients

    def on_connect(self, channel: Channel) -> None: ...

    def on_close(self, channel: Channel) -> None:
        self._clients.on_close(channel)

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...


class _TurnEnd:
    """Brings what a turn committed into the journal before any of its answers leaves."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def take(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        return start

    def end_turn(self) -> None:
        self._offsets.flush()


def _answered(answer: RegistrationAnswer, topics: Topics) -> None:
    """Hear what a name server says of ordered topics."""
    if answer.order_topics:
        topics.mark_ordered(answer.order_topics)


def _topic_rules(config: BrokerConfig) -> TopicRules:
    return TopicRules(
        broker_name=config.broker_name,
        cluster_name=config.broker_cluster_name,
        auto_create=config.auto_create_topic_enable,
        default_queue_count=config.default_topic_queue_nums,
        cluster_topic_enable=config.cluster_topic_enable,
        broker_topic_enable=config.broker_topic_enable,
        trace_topic_enable=config.trace_topic_enable,
        trace_topic_name=config.msg_trace_topic_name,
        revive_queue_count=config.revive_queue_num,
        protect_system_topics=config.validate_system_topic_when_update_topic,
        mixed_message_type_enable=config.enable_mixed_message_type,
    )


def _group_rules(config: BrokerConfig) -> GroupRules:
    return GroupRules(auto_create=config.auto_create_subscription_group, system_groups_enable=config.enable_create_sys_group)


def _store_host(config: BrokerConfig) -> bytes:
    """The address that clients are told, as records hold it; a name is looked up."""
    try:
        found = socket.getaddrinfo(config.broker_ip1, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(
            f"brokerIP1={config.broker_ip1} is not known here: {error}; name an address that clients can connect to"
        ) from error
    return hosts.pack(str(found[0][4][0]), config.listen_port)
