"""The request layer of a broker: a processor for every request code, the servers that feed them,
and the periodic tasks.

Built here on the components below, started and stopped by `Broker`. Contains wiring only, no logic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from orbitmq import kernels
from orbitmq.access.control import TICK_PERIOD_S as ACCESS_PERIOD_S
from orbitmq.broker.clients.registry import SCAN_PERIOD_MS
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.consume.slow_consumers import PERIOD_S as SLOW_CONSUMERS_PERIOD_S
from orbitmq.broker.consume.slow_consumers import SlowConsumers
from orbitmq.broker.delay.service import CLEAN_PERIOD_S
from orbitmq.broker.fast_path.authorization import AuthorizingFastPath
from orbitmq.broker.fast_path.path import BrokerFastPath
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.observability.gauges import Gauges
from orbitmq.broker.observability.metrics import Metrics
from orbitmq.broker.observability.recorder import StatsRecorder
from orbitmq.broker.observability.runtime_info import RuntimeInfo
from orbitmq.broker.observability.stats import StatName, stat_key
from orbitmq.broker.observability.watermarks import Queue, WaterMark, WaterMarks
from orbitmq.broker.periodic_tasks import DISPATCH_PERIOD_S, PeriodicTask, PeriodicTasks
from orbitmq.broker.processors.broker_info import BrokerInfoProcessor
from orbitmq.broker.processors.client_lists import ClientListProcessor
from orbitmq.broker.processors.clients import ClientProcessor
from orbitmq.broker.processors.consumer_offsets import ConsumerOffsetProcessor
from orbitmq.broker.processors.delay import DelayProcessor
from orbitmq.broker.processors.filter_servers import FilterServerProcessor
from orbitmq.broker.processors.groups import GroupProcessor
from orbitmq.broker.processors.metadata_changes import MetadataChangesProcessor
from orbitmq.broker.processors.plugin_hooks import Hooks
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.replies import PUSH_TIMEOUT_MS, ReplyProcessor
from orbitmq.broker.processors.resets import ResetProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.broker.processors.slave_rules import refusals
from orbitmq.broker.processors.topics import TopicProcessor
from orbitmq.broker.processors.transactions import TransactionProcessor
from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.produce.admission import BEAT_MS, Cause
from orbitmq.broker.produce.durable_replies import DurableReplies
from orbitmq.broker.transactions.service import PERIOD_S as TRANSACTIONS_PERIOD_S
from orbitmq.broker.transactions.service import Transactions
from orbitmq.broker.wiring.components import BrokerComponents
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import Processor, RequestDispatcher
from orbitmq.remoting.endpoint import FastPath
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.server import RemotingServer, budgets_of
from orbitmq.remoting.settings import server_config

_EXPIRY_PERIOD_S: Final = 0.25  # how precisely the deadline of a held pull is kept
_FIGURES_PERIOD_S: Final = 1.0
_FILTERS_PERIOD_S: Final = 10.0  # how often filters that died long ago are removed
_REPLIES_RUNNING_MAX: Final = 1_000  # replies forwarded to clients at the same time


class RequestLayer:
    """Processors, servers and periodic tasks of a broker."""

    def __init__(self, components: BrokerComponents) -> None:
        config, clock, store = components.config, components.clock, components.store
        self._components = components
        self._hooks = hooks = Hooks(clock.monotonic_ms)
        self.recorder = recorder = components.recorder
        self.dispatcher = RequestDispatcher(
            clock,
            hooks.around_requests,
            guards=components.access.guards,
            requests_in_flight_max=config.max_requests_in_flight,
            bytes_in_flight_max=config.max_request_bytes_in_flight,
            on_replied=recorder.answered,
        )
        self._lane = self.dispatcher.add_lane(_lane_limits(config))
        self._reply_lane = self.dispatcher.add_lane(_reply_limits(config))
        self._water_marks = self._new_water_marks()
        self.info = RuntimeInfo(
            config,
            store,
            recorder.store,
            clock,
            self._water_marks.of,
            components.delay.runtime_info,
        )
        self._write_replies = WriteReplies(
            DurableReplies(store, components.metadata.topics), recorder
        )
        self._pulls = PullProcessor(components.pulls, found=hooks.found)
        self._filter_servers = FilterServerProcessor(config, components.filter_servers, clock)
        refused = refusals() if config.is_slave else {}
        for processor in self._processors():
            for code, served in processor.handlers().items():
                handler = refused.get(code, served)
                self.dispatcher.register(
                    code, handler, lane=self._lane if asyncio.iscoroutinefunction(handler) else None
                )
        for code, served in self._replies().handlers().items():  # each waits for a client
            handler = refused.get(code, served)
            lane = self._reply_lane if handler is served else None
            self.dispatcher.register(code, handler, lane=lane)
        self.dispatcher.register_default(_unserved)
        self.metrics = self._metrics()
        self.upkeep = PeriodicTasks(self._periodic_tasks())
        self.servers = self._servers()

    def _new_water_marks(self) -> WaterMarks:
        """Build the water marks of pending requests."""
        config, flushing = self._components.config, self._components.store.flushing

        def sends_waiting(now_ms: int) -> WaterMark:
            return WaterMark(flushing.waiting_count, flushing.waited_ms(now_ms))

        def sends_max() -> WaterMark:
            return WaterMark(
                config.send_thread_pool_queue_capacity, config.wait_time_mills_in_send_queue
            )

        return WaterMarks(
            {
                "send": Queue(read=sends_waiting, limits=sends_max, cause=Cause.DISK_SYNC.value),
                **dict.fromkeys(("pull", "lite_pull", "query_message"), Queue()),
                "admin": Queue(
                    read=self._administration,
                    limits=lambda: _marks_of(self._lane.limits),
                    cause=self._lane.limits.name,
                ),
            }
        )

    def _processors(self) -> list[Processor]:
        components, config = self._components, self._components.config
        return [
            SendProcessor(components.sends, replies=self._write_replies, hooks=self._hooks.sends),
            self._pulls,
            ClientProcessor(components.membership, components.access),
            self._filter_servers,
            *self._administrative(),
            self._client_lists(),
            SendBackProcessor(
                components.send_backs,
                replies=self._write_replies,
                sent_back=self._hooks.sent_back,
            ),
            TransactionProcessor(components.ending, self._write_replies),
            self._delay(),
            MetadataChangesProcessor(
                metadata=components.metadata,
                delay=components.delay,
                locks=components.locks,
                store=components.store,
                clock=components.clock,
                random=components.random,
            ),
            components.access.of_users,
            components.access.of_accounts(config.broker_name, lambda: components.identity.address),
        ]

    def _client_lists(self) -> ClientListProcessor:
        components = self._components
        return ClientListProcessor(
            components.config.broker_name,
            producers=components.producers,
            consumers=components.consumers,
            groups=components.metadata.groups,
            topics=components.metadata.topics,
            record_at=components.messages.reads.record_at,
            clock=components.clock,
            conflicts=components.membership.conflicts,
        )

    def _delay(self) -> DelayProcessor:
        components = self._components
        return DelayProcessor(
            components.config,
            later=components.delay,
            delay=components.delay_rewriter,
            own=components.writer,
            replies=self._write_replies,
            topics=components.metadata.topics,
            now_ms=components.clock.now_ms,
        )

    def _replies(self) -> ReplyProcessor:
        components = self._components
        return ReplyProcessor(
            components.config,
            sends=components.sends,
            producers=components.producers,
            own=components.writer,
            replies=self._write_replies,
            now_ms=components.clock.now_ms,
            hooks=self._hooks.sends,
        )

    def _periodic_tasks(self) -> list[PeriodicTask]:
        components, offsets, config = (
            self._components,
            self._components.metadata.offsets,
            self._components.config,
        )
        slow_consumers = SlowConsumers(
            config, offsets, components.metadata.groups, components.store
        )
        return [
            PeriodicTask(BEAT_MS / 1000, self._beat),
            PeriodicTask(_EXPIRY_PERIOD_S, components.pulls.expire),
            PeriodicTask(
                _FIGURES_PERIOD_S, lambda: components.recorder.tick(components.clock.now_ms())
            ),
            PeriodicTask(lambda: config.flush_consumer_offset_interval / 1000, offsets.save_soon),
            PeriodicTask(
                lambda: config.flush_delay_offset_interval / 1000, components.delay.levels.save_soon
            ),
            PeriodicTask(
                lambda: config.timer_flush_interval_ms / 1000, components.delay.save_timer
            ),
            PeriodicTask(CLEAN_PERIOD_S, components.delay.clean_timer),
            *(
                []
                if config.is_slave
                else [PeriodicTask(TRANSACTIONS_PERIOD_S, components.transactions.tick)]
            ),
            PeriodicTask(
                lambda: config.transaction_metric_flush_interval / 1000,
                components.half_counts.save_soon,
            ),
            PeriodicTask(SCAN_PERIOD_MS / 1000, components.membership.scan),
            PeriodicTask(_FILTERS_PERIOD_S, components.metadata.filters.clean),
            PeriodicTask(SCAN_PERIOD_MS / 1000, self._filter_servers.scan),
            PeriodicTask(SLOW_CONSUMERS_PERIOD_S, slow_consumers.check),
            PeriodicTask(DISPATCH_PERIOD_S, components.store_ticks.log_dispatch),
            *(
                [PeriodicTask(ACCESS_PERIOD_S, components.access.tick)]
                if components.access.guards
                else []
            ),
        ]

    def _administrative(self) -> list[Processor]:
        """Return the processors of queries and administration."""
        components, metadata = self._components, self._components.metadata
        config, clock, store, consumers, stats = (
            components.config,
            components.clock,
            components.store,
            components.consumers,
            components.recorder.stats,
        )
        return [
            QueryProcessor(config, store, components.messages.reads, consumers, metadata.filters),
            ConsumerOffsetProcessor(
                config,
                components.offsets,
                topics=metadata.topics,
                groups=metadata.groups,
                offsets=metadata.offsets,
                consumers=consumers,
                store=store,
                clock=clock,
                address=lambda: components.identity.address,
                get_tps=lambda topic, group: stats.tps(
                    StatName.GROUP_GET_NUMS, stat_key(topic, group)
                ),
            ),
            ResetProcessor(
                config,
                topics=metadata.topics,
                groups=metadata.groups,
                offsets=metadata.offsets,
                consumers=consumers,
                store=store,
            ),
            TopicProcessor(
                config,
                topics=metadata.topics,
                offsets=metadata.offsets,
                store=store,
                when_saved=components.when_topics_are_known,
                put_tps=lambda topic: stats.tps(StatName.TOPIC_PUT_NUMS, topic),
                deleted=self._topic_deleted,
                listener=components.recorder,
            ),
            GroupProcessor(
                config,
                groups=metadata.groups,
                topics=metadata.topics,
                offsets=metadata.offsets,
                modes=metadata.modes,
                when_saved=metadata.groups_file.when_saved,
                deleted=self._group_deleted,
                listener=components.recorder,
            ),
            BrokerInfoProcessor(
                config,
                info=self.info,
                stats=stats,
                store=store,
                clock=clock,
                updated=self._follow_config,
                permission_changed=components.permission_changed,
            ),
        ]

    def _topic_deleted(self, topic: str) -> None:
        if self._components.config.auto_delete_unused_stats:
            self._components.recorder.delete_topic(topic)

    def _group_deleted(self, group: str) -> None:
        if self._components.config.auto_delete_unused_stats:
            self._components.recorder.delete_group(group)

    async def drain(self) -> None:
        """Stop accepting requests, and reply to those that wait for the disk."""
        await asyncio.gather(*(server.quiesce() for server in self.servers.values()))
        self._components.store.flush()
        self._components.metadata.flush()
        await asyncio.sleep(0)  # replies to TLS peers leave with the next pass of the loop

    def clock_moved(self, *, hears_clients: bool) -> None:
        """Adjust to a clock that was moved by hand: the loop is not late because of it, and clients
        that can be heard had no time to send a heartbeat.
        """
        self._components.admission.catch_up(self._components.clock.monotonic_ms())
        if hears_clients:
            self._components.membership.hear_all()

    def _follow_config(self) -> None:
        """Reload the components that copied values from the configuration."""
        self._components.follow_config()
        self._lane.limits = _lane_limits(self._components.config)
        self._reply_lane.limits = _reply_limits(self._components.config)
        for server in self.servers.values():
            server.config = server_config(
                self._components.config, server.config.port, server.config.believes_preamble_of
            )

    def _beat(self) -> None:
        """Measure how late the loop is and how many requests are pending."""
        now_ms = self._components.clock.monotonic_ms()
        hold = self._components.admission.beat(now_ms)
        self._water_marks.sample(now_ms, hold.lag_ms, hold.cause.value)

    def _administration(self, now_ms: int) -> WaterMark:
        return WaterMark(self._lane.waiting, self._lane.waited_ms(now_ms))

    def _metrics(self) -> Metrics:
        components, metadata, config = (
            self._components,
            self._components.metadata,
            self._components.config,
        )
        gauges = Gauges(
            topics=metadata.topics,
            groups=metadata.groups,
            offsets=metadata.offsets,
            producers=components.producers,
            consumers=components.consumers,
            store=components.store,
            permission=lambda: config.broker_permission,
            loop_lag_ms=lambda: components.admission.loop_lag.max_ms(
                components.clock.monotonic_ms()
            ),
            now_ms=components.clock.now_ms,
            half_messages=components.half_counts.rows,
            timer=components.delay.figures,
            timing_messages=components.delay.waiting,
            timer_snapshot=components.delay.snapshot,
            collect=components.recorder.collect,
        )
        return Metrics(
            components.metrics_identity,
            gauges.sources(components.recorder.stats, self.info.entries, self._water_marks.sizes),
            components.instruments,
        )

    def _is_direct(self, code: int) -> bool:
        """Return whether a request code reaches its handler directly. With filterSupportRetry no
        pull does: only the processor knows the filters of retry topics.
        """
        filters_retries = (
            self._components.config.filter_support_retry and code == RequestCode.PULL_MESSAGE
        )
        return (
            self.dispatcher.is_direct(code, but_for_guards=bool(self._components.access.guards))
            and not filters_retries
        )

    def _servers(self) -> dict[str, RemotingServer]:
        """Build the main server and the fast one, which differ only in their ports."""
        config = self._components.config
        listeners = (
            _Connections(
                self._components.recorder,
                self._components.membership.on_close,
                self._filter_servers.on_close,
            ),
        )
        believes = self._components.access.believes_preamble_of
        ports = {
            "remoting server": config.listen_port,
            "fast remoting server": config.fast_listen_port,
        }
        budgets = budgets_of(server_config(config))
        fast_path = self._fast_path()
        return {
            name: RemotingServer(
                server_config(config, port, believes),
                self.dispatcher,
                self._components.clock,
                listeners,
                budgets=budgets,
                fast_path=fast_path,
            )
            for name, port in ports.items()
        }

    def _fast_path(self) -> FastPath:
        """Build the fast path, if it is compiled and no plug-in stands before the store."""
        components = self._components
        if not (
            kernels.is_compiled(BrokerFastPath.__module__)
            and components.messages is components.store
        ):
            return _IterationEnd(components.metadata.offsets)
        limits = server_config(components.config).frames
        transactions = (
            components.transactions if isinstance(components.transactions, Transactions) else None
        )
        fast_path = BrokerFastPath(
            components.sends,
            components.pulls,
            self._pulls.resume,
            components.metadata.offsets,
            limits,
            self._hooks.unheard(self._is_direct, hears_sends=components.window is not None),
            transactions,
        )
        if not components.access.guards:
            return fast_path
        return AuthorizingFastPath(
            fast_path,
            components.access.guards,
            limits,
            None if transactions is None else transactions.topic_of_half,
        )


def _unserved(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
    """Refuse a request that no processor serves, with the name that Apache RocketMQ gives it."""
    names = [each.name for each in RequestCode if each == request.code]
    why = f": this broker does not serve {names[0]}" if names else ""
    return request.reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported{why}"
    )


class _Connections:
    """Counts connection events, and notifies the listeners of closed connections."""

    def __init__(self, recorder: StatsRecorder, *on_close: Callable[[Channel], None]) -> None:
        self._recorder = recorder
        self._on_close = on_close

    def on_connect(self, channel: Channel) -> None:
        self._recorder.channel_event("CONNECT")

    def on_close(self, channel: Channel) -> None:
        self._recorder.channel_event("CLOSE")
        for tell in self._on_close:
            tell(channel)

    def on_exception(self, channel: Channel, problem: BaseException) -> None:
        self._recorder.channel_event("EXCEPTION")

    def on_idle(self, channel: Channel) -> None:
        self._recorder.channel_event("IDLE")


class _IterationEnd:
    """Writes committed offsets to their journal before any reply to a commit leaves."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    def try_handle(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        return start

    def end_of_iteration(self) -> None:
        self._offsets.flush()

    def before_send(self) -> None:
        self._offsets.flush()


def _lane_limits(config: BrokerConfig) -> LaneLimits:
    """Return the limits for requests that wait for a client's reply or for the disk; all others
    are answered within their loop iteration.
    """
    return LaneLimits(
        name="administration",
        running_max=64,
        queue_max=config.admin_broker_thread_pool_queue_capacity,
        wait_ms_max=config.wait_time_mills_in_admin_broker_queue,
    )


def _reply_limits(config: BrokerConfig) -> LaneLimits:
    return LaneLimits(
        name="replies",
        running_max=_REPLIES_RUNNING_MAX,
        queue_max=config.reply_thread_pool_queue_capacity,
        wait_ms_max=PUSH_TIMEOUT_MS,
    )


def _marks_of(limits: LaneLimits) -> WaterMark:
    return WaterMark(limits.queue_max, limits.wait_ms_max)
