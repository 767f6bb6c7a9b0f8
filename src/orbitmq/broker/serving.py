"""How a broker serves: a processor for every request that it knows, the servers that feed them, what happens as time passes.

Built here on the parts below, started and stopped by `Broker`. No logic but which belongs to which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from orbitmq import kernels
from orbitmq.broker.gauges import Gauges
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.metric_sources import Identity
from orbitmq.broker.metrics import Metrics, parse_labels
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.parts import Parts
from orbitmq.broker.processors.broker_info import BrokerInfoProcessor
from orbitmq.broker.processors.clients import ClientProcessor, ClientRules
from orbitmq.broker.processors.consumer_offsets import ConsumerOffsetProcessor
from orbitmq.broker.processors.groups import GroupProcessor
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.resets import ResetProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.topics import TopicProcessor
from orbitmq.broker.stats import StatName, stat_key
from orbitmq.broker.upkeep import Upkeep
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import Dispatcher, Handler, LaneLimits
from orbitmq.remoting.endpoint import Taker
from orbitmq.remoting.hooks import installed_hooks
from orbitmq.remoting.server import RemotingServer
from orbitmq.remoting.settings import server_config

# What waits for a client's answer or for the disk; everything else is answered within its turn.
WAITING = LaneLimits(name="administration", running_max=64, queue_max=10_000)


class Processor(Protocol):
    """Serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]: ...


class Serving:
    """See above."""

    def __init__(self, parts: Parts) -> None:
        config, clock, tables, store, figures = parts.config, parts.clock, parts.tables, parts.store, parts.figures
        self._parts = parts
        self.dispatcher = Dispatcher(clock, installed_hooks(), requests_in_flight_max=config.max_requests_in_flight)
        self._sends = SendProcessor(
            config, tables.topics, tables.groups, store, parts.store_host, clock.now_ms, parts.unique_ids.next, figures, parts.random
        )
        self._pulls = PullProcessor(
            config, tables.topics, tables.groups, tables.offsets, parts.consumers, store.reads, parts.hold, clock.monotonic_ms, figures
        )
        store.dispatcher.listeners.append(self._pulls.arrived)
        store.dispatcher.is_awaited = lambda: len(parts.hold) > 0
        self._clients = _clients(parts)
        lane = self.dispatcher.add_lane(WAITING)
        processors: list[Processor] = [self._sends, self._pulls, self._clients, *self._others()]
        for processor in processors:
            for code, handler in processor.handlers().items():
                self.dispatcher.register(code, handler, lane=lane if asyncio.iscoroutinefunction(handler) else None)
        self.metrics = figures.metrics = self._metrics()
        self.upkeep = Upkeep(clock, store, tables.offsets, self._pulls, self._clients, figures)
        parts.on_store_news = self.upkeep.tick_store
        self.servers = self._servers()

    def _others(self) -> list[Processor]:
        """What serves questions and administration."""
        parts, tables = self._parts, self._parts.tables
        config, clock, store, consumers, stats = parts.config, parts.clock, parts.store, parts.consumers, parts.figures.stats
        return [
            QueryProcessor(config, store, consumers),
            ConsumerOffsetProcessor(
                config,
                topics=tables.topics,
                groups=tables.groups,
                offsets=tables.offsets,
                consumers=consumers,
                store=store,
                clock=clock,
                address=lambda: parts.identity.address,
                get_tps=lambda topic, group: stats.tps(StatName.GROUP_GET_NUMS, stat_key(topic, group)),
                delay_file=tables.folder / "delayOffset.json",
            ),
            ResetProcessor(config, topics=tables.topics, groups=tables.groups, offsets=tables.offsets, consumers=consumers, store=store),
            TopicProcessor(
                config,
                topics=tables.topics,
                offsets=tables.offsets,
                store=store,
                when_saved=tables.topics_file.when_saved,
                put_tps=lambda topic: stats.tps(StatName.TOPIC_PUT_NUMS, topic),
                deleted=parts.figures.delete_topic,
            ),
            GroupProcessor(
                config,
                groups=tables.groups,
                offsets=tables.offsets,
                when_saved=tables.groups_file.when_saved,
                deleted=parts.figures.delete_group,
                modes_file=tables.folder / "messageRequestMode.json",
            ),
            BrokerInfoProcessor(
                config,
                info=parts.info,
                stats=stats,
                store=store,
                clock=clock,
                updated=self._follow_config,
                permission_changed=parts.permission_changed,
            ),
        ]

    def _follow_config(self) -> None:
        """Let those who took something over from the configuration take it over again."""
        self._parts.follow_config()
        self._clients.rules = _client_rules(self._parts)

    def _metrics(self) -> Metrics:
        parts, tables, config = self._parts, self._parts.tables, self._parts.config
        gauges = Gauges(
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            producers=parts.producers,
            consumers=parts.consumers,
            store=parts.store,
            permission=lambda: config.broker_permission,
            now_ms=parts.clock.now_ms,
        )
        identity = Identity(
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            address=parts.identity.address,
            labels=parse_labels(config.metrics_label),
        )
        return Metrics(
            identity, gauges.sources(parts.figures.stats, parts.info.entries, lambda: [(WAITING.name, self.dispatcher.in_flight)])
        )

    def _servers(self) -> dict[str, RemotingServer]:
        """The main server and the fast one, which differ in their ports only."""
        config, offsets = self._parts.config, self._parts.tables.offsets
        listeners = (_Connections(self._clients),)
        ports = {"remoting server": config.listen_port, "fast remoting server": config.fast_listen_port}
        servers = {
            name: RemotingServer(server_config(config, port=port), self.dispatcher, self._parts.clock, listeners)
            for name, port in ports.items()
        }
        taker: Taker = _TurnEnd(offsets)
        if kernels.is_compiled(HotPath.__module__):
            limits = servers["remoting server"].config.frames
            taker = HotPath(self._sends, self._pulls, offsets, limits, self.dispatcher.is_direct)
        for server in servers.values():
            server.endpoint.taker = taker
        return servers


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


def _clients(parts: Parts) -> ClientProcessor:
    return ClientProcessor(
        _client_rules(parts),
        producers=parts.producers,
        consumers=parts.consumers,
        locks=parts.locks,
        hold=parts.hold,
        groups=parts.tables.groups,
        topics=parts.tables.topics,
        expression_problem=lambda kind, _text: f"expressions of type {kind} are not supported by this broker; subscribe by tags",
        record_at=parts.store.reads.record_at,
        clock=parts.clock,
    )


def _client_rules(parts: Parts) -> ClientRules:
    config = parts.config
    return ClientRules(
        broker_name=config.broker_name,
        notify_consumer_ids_changed=config.notify_consumer_ids_changed_enable,
        reject_pull_consumers=config.reject_pull_consumer_enable,
        enable_property_filter=config.enable_property_filter,
    )
