"""How a broker serves: a processor for every request that it knows, the servers that feed them, what happens as time passes.

Built here on the parts below, started and stopped by `Broker`. No logic but which belongs to which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from orbitmq import kernels
from orbitmq.access.control import TICK_PERIOD_S as ACCESS_PERIOD_S
from orbitmq.broker.admission import BEAT_MS
from orbitmq.broker.clients import SCAN_PERIOD_MS
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.later import CLEAN_PERIOD_S
from orbitmq.broker.figures import Figures
from orbitmq.broker.filters.bit_maps import BitMaps
from orbitmq.broker.filters.choosing import Filters
from orbitmq.broker.gauges import Gauges
from orbitmq.broker.guarded_taker import GuardedTaker
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.metric_sources import Identity
from orbitmq.broker.metrics import Metrics, parse_labels
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.parts import Parts
from orbitmq.broker.plugins.hooks import Hooks
from orbitmq.broker.processors.broker_info import BrokerInfoProcessor
from orbitmq.broker.processors.client_lists import ClientListProcessor
from orbitmq.broker.processors.clients import ClientProcessor, ClientRules
from orbitmq.broker.processors.consumer_offsets import ConsumerOffsetProcessor
from orbitmq.broker.processors.filter_servers import FilterServerProcessor
from orbitmq.broker.processors.groups import GroupProcessor
from orbitmq.broker.processors.later import LaterProcessor
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.replies import PUSH_TIMEOUT_MS, ReplyProcessor
from orbitmq.broker.processors.resets import ResetProcessor
from orbitmq.broker.processors.safe_answers import SafeAnswers
from orbitmq.broker.processors.send import SendProcessor, WaitKind
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.broker.processors.topics import TopicProcessor
from orbitmq.broker.processors.transactions import HalfPlacer, TransactionProcessor
from orbitmq.broker.slow_consumers import PERIOD_S as SLOW_CONSUMERS_PERIOD_S
from orbitmq.broker.slow_consumers import SlowConsumers
from orbitmq.broker.stats import StatName, stat_key
from orbitmq.broker.transactions.service import PERIOD_S as TRANSACTIONS_PERIOD_S
from orbitmq.broker.transactions.service import Transactions
from orbitmq.broker.upkeep import Chore, Upkeep
from orbitmq.broker.water_marks import Queue, WaterMark
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import Dispatcher, Processor
from orbitmq.remoting.endpoint import Taker
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.server import RemotingServer, budgets_of
from orbitmq.remoting.settings import server_config
from orbitmq.remoting.slices import SliceQueue

_EXPIRY_PERIOD_S: Final = 0.25  # how exactly a held pull's time is kept
_FIGURES_PERIOD_S: Final = 1.0
_FILTERS_PERIOD_S: Final = 10.0  # how often filters are looked for that are dead for long
_REPLIES_RUNNING_MAX: Final = 1_000  # brought to clients at once


class Serving:
    """See above."""

    def __init__(self, parts: Parts) -> None:
        config, clock, tables, store, figures = parts.config, parts.clock, parts.tables, parts.store, parts.figures
        self._parts = parts
        self._hooks = hooks = Hooks(clock.monotonic_ms)
        self.slices = slices = SliceQueue()
        self.dispatcher = Dispatcher(
            clock,
            hooks.around_requests,
            guards=parts.access.guards,
            requests_in_flight_max=config.max_requests_in_flight,
            bytes_in_flight_max=config.max_request_bytes_in_flight,
            answered=figures.answered,
        )
        self._sends = SendProcessor(
            config,
            tables.topics,
            tables.groups,
            store,
            parts.store_host,
            clock.now_ms,
            parts.unique_ids.next,
            figures,
            parts.random,
            lambda: parts.admission.refusal(clock.monotonic_ms()),
            parts.messages,
        )
        self._sends.placers = (HalfPlacer(parts.transactions), parts.delay)
        self._sends.quick_placers = {WaitKind.LEVEL: parts.delay.quick_level, WaitKind.TIMED: parts.delay.quick_timed}
        if isinstance(parts.transactions, Transactions):
            self._sends.quick_placers = {**self._sends.quick_placers, WaitKind.HALF: parts.transactions.quick_half}
        self._sends.window = parts.window
        self._sends.is_in_order = lambda group: parts.locks.is_locked(group, clock.monotonic_ms())
        self._pulls = PullProcessor(
            config,
            tables.topics,
            tables.groups,
            tables.offsets,
            parts.consumers,
            parts.messages.reads,
            parts.hold,
            clock,
            figures,
            Filters(config, tables.filters),
            store.reads.record_of,
            slices,
            hooks.found,
        )
        store.dispatcher.listeners.append(self._pulls.arrived)
        store.dispatcher.is_awaited = lambda: len(parts.hold) > 0
        store.dispatcher.bits_of = BitMaps(config, tables.filters).of
        self._clients = _clients(parts, slices)
        self._filter_servers = FilterServerProcessor(config, parts.filter_servers, clock)
        self._lane = lane = self.dispatcher.add_lane(_lane_limits(config))
        parts.water_marks.add("admin", Queue(read=self._administration, limits=lambda: _marks_of(lane.limits), cause=lane.limits.name))
        processors: list[Processor] = [hooks.around_sends(self._sends), self._pulls, self._clients, self._filter_servers, *self._others()]
        processors.append(self._client_lists())
        transactions = self._transactions()
        self._sends.is_undone = transactions.is_undone
        processors += [self._send_back(hooks), transactions, self._later(), parts.access.of_users]
        processors.append(parts.access.of_accounts(config.broker_name, lambda: parts.identity.address))
        for processor in processors:
            for code, handler in processor.handlers().items():
                self.dispatcher.register(code, handler, lane=lane if asyncio.iscoroutinefunction(handler) else None)
        self._serve_replies()
        self.dispatcher.register_default(_unserved)
        self.figures = figures
        self.metrics = figures.metrics = self._metrics()
        self.upkeep = Upkeep(clock, store, self._chores())
        parts.on_store_news = self.upkeep.tick_store
        self.servers = self._servers()

    def _client_lists(self) -> ClientListProcessor:
        parts = self._parts
        return ClientListProcessor(
            parts.config.broker_name,
            producers=parts.producers,
            consumers=parts.consumers,
            groups=parts.tables.groups,
            topics=parts.tables.topics,
            record_at=parts.messages.reads.record_at,
            clock=parts.clock,
            conflicts=self._clients.conflicts,
        )

    def _transactions(self) -> TransactionProcessor:
        parts = self._parts
        return TransactionProcessor(
            parts.config,
            parts.transactions,
            record_at=parts.messages.reads.record_at,
            answers=SafeAnswers(parts.store, parts.tables.topics, parts.figures),
            now_ms=parts.clock.now_ms,
        )

    def _later(self) -> LaterProcessor:
        parts = self._parts
        return LaterProcessor(
            parts.config,
            later=parts.later,
            delay=parts.delay,
            own=parts.own,
            answers=SafeAnswers(parts.store, parts.tables.topics, parts.figures),
            topics=parts.tables.topics,
            now_ms=parts.clock.now_ms,
        )

    def _send_back(self, hooks: Hooks) -> SendBackProcessor:
        parts = self._parts
        return SendBackProcessor(
            parts.config,
            topics=parts.tables.topics,
            groups=parts.tables.groups,
            own=parts.own,
            answers=SafeAnswers(parts.store, parts.tables.topics, parts.figures),
            record_at=parts.messages.reads.record_at,
            delay=parts.delay,
            listener=parts.figures,
            random=parts.random,
            busy=self._sends.busy,
            told=hooks.sent_back,
        )

    def _serve_replies(self) -> None:
        """In a lane of their own: each waits for the client that it is brought to."""
        parts = self._parts
        replies = ReplyProcessor(
            parts.config,
            sends=self._sends,
            producers=parts.producers,
            own=parts.own,
            answers=SafeAnswers(parts.store, parts.tables.topics, parts.figures),
            now_ms=parts.clock.now_ms,
        )
        self._reply_lane = self.dispatcher.add_lane(_reply_limits(parts.config))
        for code, handler in self._hooks.around_sends(replies).handlers().items():
            self.dispatcher.register(code, handler, lane=self._reply_lane)

    def _chores(self) -> list[Chore]:
        parts, offsets, config = self._parts, self._parts.tables.offsets, self._parts.config
        slow_consumers = SlowConsumers(config, offsets, parts.tables.groups, parts.store)
        return [
            Chore(BEAT_MS / 1000, self._beat),
            Chore(_EXPIRY_PERIOD_S, self._pulls.expire),
            Chore(_FIGURES_PERIOD_S, lambda: parts.figures.tick(parts.clock.now_ms())),
            Chore(lambda: config.flush_consumer_offset_interval / 1000, offsets.save_soon),
            Chore(lambda: config.flush_delay_offset_interval / 1000, parts.later.levels.save_soon),
            Chore(lambda: config.timer_flush_interval_ms / 1000, parts.later.save_timer),
            Chore(CLEAN_PERIOD_S, parts.later.clean_timer),
            Chore(TRANSACTIONS_PERIOD_S, parts.transactions.tick),
            Chore(lambda: config.transaction_metric_flush_interval / 1000, parts.half_counts.save_soon),
            Chore(SCAN_PERIOD_MS / 1000, self._clients.scan),
            Chore(_FILTERS_PERIOD_S, parts.tables.filters.clean),
            Chore(SCAN_PERIOD_MS / 1000, self._filter_servers.scan),
            Chore(SLOW_CONSUMERS_PERIOD_S, slow_consumers.check),
            *([Chore(ACCESS_PERIOD_S, parts.access.tick)] if parts.access.guards else []),
        ]

    def _others(self) -> list[Processor]:
        """What serves questions and administration."""
        parts, tables = self._parts, self._parts.tables
        config, clock, store, consumers, stats = parts.config, parts.clock, parts.store, parts.consumers, parts.figures.stats
        return [
            QueryProcessor(config, store, parts.messages.reads, consumers, tables.filters),
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
            ),
            ResetProcessor(config, topics=tables.topics, groups=tables.groups, offsets=tables.offsets, consumers=consumers, store=store),
            TopicProcessor(
                config,
                topics=tables.topics,
                offsets=tables.offsets,
                store=store,
                when_saved=parts.when_topics_are_known,
                put_tps=lambda topic: stats.tps(StatName.TOPIC_PUT_NUMS, topic),
                deleted=self._topic_deleted,
                listener=parts.figures,
            ),
            GroupProcessor(
                config,
                groups=tables.groups,
                topics=tables.topics,
                offsets=tables.offsets,
                modes=tables.modes,
                when_saved=tables.groups_file.when_saved,
                deleted=self._group_deleted,
                listener=parts.figures,
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

    def _topic_deleted(self, topic: str) -> None:
        if self._parts.config.auto_delete_unused_stats:
            self._parts.figures.delete_topic(topic)

    def _group_deleted(self, group: str) -> None:
        if self._parts.config.auto_delete_unused_stats:
            self._parts.figures.delete_group(group)

    async def drain(self) -> None:
        """Take no more requests, and answer those that wait for the disk."""
        await asyncio.gather(*(server.quiesce() for server in self.servers.values()))
        self._parts.store.flush()
        self._parts.tables.flush()
        await asyncio.sleep(0)  # answers to TLS peers leave with the next pass of the loop

    def clock_moved(self, *, hears_clients: bool) -> None:
        """The clock was moved by hand: the loop is not late because of that, and clients that it can hear had no time to speak."""
        self._parts.admission.catch_up(self._parts.clock.monotonic_ms())
        if hears_clients:
            self._clients.hear_all()

    def _follow_config(self) -> None:
        """Let those who took something over from the configuration take it over again."""
        self._parts.follow_config()
        self._clients.rules = _client_rules(self._parts)
        self._lane.limits = _lane_limits(self._parts.config)
        self._reply_lane.limits = _reply_limits(self._parts.config)
        for server in self.servers.values():
            server.config = server_config(self._parts.config, server.config.port, server.config.believes_preamble_of)

    def _beat(self) -> None:
        """See how late the loop is, and how much waits."""
        now_ms = self._parts.clock.monotonic_ms()
        hold = self._parts.admission.beat(now_ms)
        self._parts.water_marks.sample(now_ms, hold.lag_ms, hold.cause.value)

    def _administration(self, now_ms: int) -> WaterMark:
        return WaterMark(self._lane.waiting, self._lane.waited_ms(now_ms))

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
            loop_lag_ms=lambda: parts.admission.loop_lag.max_ms(parts.clock.monotonic_ms()),
            now_ms=parts.clock.now_ms,
            half_messages=parts.half_counts.rows,
            timer=parts.later.figures,
            timing_messages=parts.later.waiting,
            timer_snapshot=parts.later.snapshot,
            collect=parts.figures.collect,
        )
        identity = Identity(
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            address=parts.identity.address,
            labels=parse_labels(config.metrics_label),
        )
        return Metrics(identity, gauges.sources(parts.figures.stats, parts.info.entries, parts.water_marks.sizes))

    def _is_direct(self, code: int) -> bool:
        """Whether nothing stands between a code and its handler; pulls of retries have filters that only their processor knows."""
        filters_retries = self._parts.config.filter_support_retry and code == RequestCode.PULL_MESSAGE
        return self.dispatcher.is_direct(code, but_for_guards=bool(self._parts.access.guards)) and not filters_retries

    def _servers(self) -> dict[str, RemotingServer]:
        """The main server and the fast one, which differ in their ports only."""
        config, offsets = self._parts.config, self._parts.tables.offsets
        listeners = (_Connections(self._parts.figures, self._clients.on_close, self._filter_servers.on_close),)
        believes = self._parts.access.believes_preamble_of
        ports = {"remoting server": config.listen_port, "fast remoting server": config.fast_listen_port}
        budgets = budgets_of(server_config(config))
        servers = {
            name: RemotingServer(server_config(config, port, believes), self.dispatcher, self._parts.clock, listeners, budgets=budgets)
            for name, port in ports.items()
        }
        taker: Taker = _TurnEnd(offsets)
        if kernels.is_compiled(HotPath.__module__) and self._parts.messages is self._parts.store:
            limits = servers["remoting server"].config.frames
            transactions = self._parts.transactions if isinstance(self._parts.transactions, Transactions) else None
            taker = HotPath(
                self._sends,
                self._pulls,
                offsets,
                limits,
                self._hooks.unheard(self._is_direct, hears_sends=self._sends.window is not None),
                transactions,
            )
            if self._parts.access.guards:
                taker = GuardedTaker(taker, self._parts.access.guards, limits, None if transactions is None else transactions.topic_of_half)
        for server in servers.values():
            server.endpoint.taker = taker
        return servers


def _unserved(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
    """Refuse what no processor serves, by the name that it has in the original."""
    names = [each.name for each in RequestCode if each == request.code]
    why = f": this broker does not serve {names[0]}" if names else ""
    return request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported{why}")


class _Connections:
    """Counts what becomes of connections, and tells of those that ended whoever knows whom they reached."""

    def __init__(self, figures: Figures, *on_close: Callable[[Channel], None]) -> None:
        self._figures = figures
        self._on_close = on_close

    def on_connect(self, channel: Channel) -> None:
        self._figures.channel_event("CONNECT")

    def on_close(self, channel: Channel) -> None:
        self._figures.channel_event("CLOSE")
        for tell in self._on_close:
            tell(channel)

    def on_exception(self, channel: Channel, problem: BaseException) -> None:
        self._figures.channel_event("EXCEPTION")

    def on_idle(self, channel: Channel) -> None:
        self._figures.channel_event("IDLE")


class _TurnEnd:
    """Writes the offsets that were committed to their journal before any reply to a commit leaves."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def take(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        return start

    def end_turn(self) -> None:
        self._offsets.flush()

    def before_send(self) -> None:
        self._offsets.flush()


def _clients(parts: Parts, slices: SliceQueue) -> ClientProcessor:
    return ClientProcessor(
        _client_rules(parts),
        producers=parts.producers,
        consumers=parts.consumers,
        locks=parts.locks,
        hold=parts.hold,
        groups=parts.tables.groups,
        topics=parts.tables.topics,
        filters=parts.tables.filters,
        clock=parts.clock,
        access=parts.access,
        listener=parts.figures,
        slices=slices,
    )


def _lane_limits(config: BrokerConfig) -> LaneLimits:
    """Of what waits for a client's answer or for the disk; everything else is answered within its turn."""
    return LaneLimits(
        name="administration",
        running_max=64,
        queue_max=config.admin_broker_thread_pool_queue_capacity,
        wait_ms_max=config.wait_time_mills_in_admin_broker_queue,
    )


def _reply_limits(config: BrokerConfig) -> LaneLimits:
    return LaneLimits(
        name="replies", running_max=_REPLIES_RUNNING_MAX, queue_max=config.reply_thread_pool_queue_capacity, wait_ms_max=PUSH_TIMEOUT_MS
    )


def _marks_of(limits: LaneLimits) -> WaterMark:
    return WaterMark(limits.queue_max, limits.wait_ms_max)


def _client_rules(parts: Parts) -> ClientRules:
    config = parts.config
    return ClientRules(
        notify_consumer_ids_changed=config.notify_consumer_ids_changed_enable,
        reject_pull_consumers=config.reject_pull_consumer_enable,
        enable_property_filter=config.enable_property_filter,
        subscription_conflict=config.subscription_conflict,
    )
