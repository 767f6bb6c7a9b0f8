"""What a broker is made of below its requests: tables, store, the clients that are known, the link to the name servers, figures.

Built and connected here, started and stopped by `Broker`. No logic but what follows from the configuration.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from orbitmq.access.control import AccessControl
from orbitmq.access.requests import TopicAt
from orbitmq.broker.admission import Admission, Cause, Meters
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.config_file import SavedCallback
from orbitmq.broker.consumers import Consumers
from orbitmq.broker.delay.later import Later, TimerParts
from orbitmq.broker.delay.level_delivery import LevelDelivery
from orbitmq.broker.delay.level_progress import LevelProgress
from orbitmq.broker.delay.levels import Levels
from orbitmq.broker.delay.placing import DelayPlacer
from orbitmq.broker.delay.timer import Timer
from orbitmq.broker.delay.timer_files import TimerFiles
from orbitmq.broker.delay.timer_rules import safe_window
from orbitmq.broker.delay.timer_windows import RollWindows
from orbitmq.broker.figures import Figures
from orbitmq.broker.filter_servers import FilterServers
from orbitmq.broker.guards.dedup import DedupWindow
from orbitmq.broker.long_polling import LongPollingConfig, PullHold
from orbitmq.broker.nameserver_link import NameServerLink
from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.plugins.interfaces import TransactionService
from orbitmq.broker.plugins.store import plugged
from orbitmq.broker.plugins.transactions import checks_in_force, service_in_force
from orbitmq.broker.producers import Producers
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.registration import BrokerIdentity, RegistrationAnswer
from orbitmq.broker.store_settings import store_config
from orbitmq.broker.system_info import RuntimeInfo
from orbitmq.broker.tables import Tables
from orbitmq.broker.topics import READ_WRITE
from orbitmq.broker.transactions.asking import ProducerChecks
from orbitmq.broker.transactions.counts import HalfCounts
from orbitmq.broker.transactions.service import Transactions
from orbitmq.broker.water_marks import Queue, WaterMark, WaterMarks
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ConfigurationError, StoreError
from orbitmq.common.topic_names import WAITING_TOPICS
from orbitmq.message import hosts, properties, record
from orbitmq.message.message_id import UniqueIds
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.settings import client_config
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.message_store import MessageStore
from orbitmq.store.queue_retention import QueueRetention
from orbitmq.store.types import LogOffset


class _TopicMessages:
    """What topics ask of the store, which is built after them."""

    def __init__(self, store: Callable[[], MessageStore]) -> None:
        self._store = store

    def has_messages(self, topic: str) -> bool:
        return self._store().queues.has_messages(topic)

    def log_end(self) -> int:
        log = self._store().log
        return max(log.end_offset, log.batch.end)


class Parts:
    """See above. `on_store_news` is called on the loop thread when a thread of the store has something to tell."""

    on_store_news: Callable[[], None]

    def __init__(self, config: BrokerConfig, clock: Clock, layer: FileLayer, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.clock = clock
        self.layer = layer
        self.random = Random()
        self.access = _access(config, clock, lambda offset: self._topic_at(LogOffset(offset)))
        self.client = RemotingClient(client_config(config), clock, hooks=self.access.signers)
        self.tables = Tables(config, clock, layer, loop, lambda names: self.link.topics_changed(names), _TopicMessages(lambda: self.store))
        self.identity = BrokerIdentity.of(config, config.listen_port)
        self.filter_servers = FilterServers()
        self.link = NameServerLink(
            config, self.identity, self.tables.topics, self.client, self._registered, lambda: self.filter_servers.addresses
        )
        self.store_host = _store_host(config)
        self.store = MessageStore(
            layer,
            clock,
            store_config(config),
            self.store_host,
            notify=lambda: loop.call_soon_threadsafe(self.on_store_news),
            lives=self.tables.topics,
        )
        self.messages = plugged(self.store, config.message_store_plug_in)
        self.store.log.files.read_ahead(config.data_read_ahead_enable)
        _tell_retention(self.store.retention.queues, self.tables)
        self.producers, self.consumers, self.locks = Producers(), Consumers(), QueueLocks()
        self.hold = PullHold(_long_polling(config))
        self.unique_ids = UniqueIds(
            address=self.store_host[:-4], pid=os.getpid(), process_number=self.random.getrandbits(32), now_ms=clock.now_ms
        )
        self.figures = Figures(clock, config.broker_cluster_name, self.tables.topics.is_system)
        self.admission, self.water_marks = _admission(config, self.store)
        self.info = RuntimeInfo(config, self.store, self.figures.store, clock, self.water_marks.of)
        self.own = OwnMessages(self.store, self.messages, self.figures)
        self.delay = DelayPlacer(config, clock.now_ms)
        self.later = _later(self)
        self.half_counts = HalfCounts(self.tables.transactions_file, clock, lambda: self.figures.metrics)
        self.transactions = _transactions(self)
        self.window = DedupWindow(config.dedup_window_ms, config.dedup_window_keys_max) if config.dedup_window_ms else None

    def close_store(self) -> None:
        """Stop the store; StoreError when it could not bring everything to disk, and the next start has to recover it."""
        self.store.close()
        if self.store.unclean_reason is not None:
            raise StoreError(f"the store was not stopped cleanly, and is recovered at the next start: {self.store.unclean_reason}")

    def load_tables(self) -> None:
        """Read topics, groups and offsets; topics that their file lacks are made again from the store's queues."""
        self.tables.load()
        counts: dict[str, int] = {}
        for key in (*self.store.queues.plain, *self.store.queues.batch):
            counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
        self.tables.topics.restore(counts)

    def learn_sent(self) -> None:
        """Read from the log which messages are not to be stored twice."""
        if self.window is not None:
            self.window.learn(self.store.log, self.clock.now_ms(), self.delay.handle_of)

    def follow_config(self) -> None:
        """Take over what of the configuration changed."""
        self.tables.follow_config()
        self.hold.config = _long_polling(self.config)
        self.store.follow(store_config(self.config))
        self.client.config = client_config(self.config)
        self.later.levels.progress.version_step = self.config.delay_offset_update_version_step
        self.store.log.files.read_ahead(self.config.data_read_ahead_enable)

    def when_topics_are_known(self, callback: SavedCallback) -> None:
        """Call back when all changes of topics so far are on disk, or could not be saved, and name servers that are up know them."""
        self.tables.topics.when_saved(lambda failure: self.link.when_settled(lambda: callback(failure)))

    def permission_changed(self) -> None:
        """Let every name server hear of it."""
        self.tables.topics.renew()
        self.link.register_all()

    def _topic_at(self, offset: LogOffset) -> str | None:
        """The topic of the message at a place in the log; of one that waits there for whatever, the one that it is meant for."""
        found = self.messages.reads.record_at(offset) if offset >= 0 else None
        if found is None:
            return None
        stored = record.decode(found)
        return stored.properties().get(properties.REAL_TOPIC, stored.topic) if stored.topic in WAITING_TOPICS else stored.topic

    def _registered(self, answer: RegistrationAnswer) -> None:
        """Hear what a name server says of ordered topics."""
        if answer.order_topics:
            self.tables.topics.mark_ordered(answer.order_topics)


def _tell_retention(retention: QueueRetention, tables: Tables) -> None:
    """What the retention has to know about topics and groups."""
    retention.is_system_topic = tables.topics.is_system
    retention.topic_reserve = tables.topics.reserve_ms
    retention.consumed_offset = tables.offsets.consumed_by_all


def _later(parts: Parts) -> Later:
    """Who delivers the messages that `parts.delay` lets wait."""
    config, store = parts.config, parts.store
    progress = LevelProgress(
        parts.tables.delay_file,
        parts.tables.delay_journal,
        parts.clock,
        lambda: store.log.flushed_offset,
        version_step=config.delay_offset_update_version_step,
    )
    levels = Levels(store.config.delay_levels_ms)
    delivery = LevelDelivery(levels, progress, store.queues, parts.messages.reads, parts.own, parts.figures)
    later = Later(parts.clock, store, delivery, _timed(parts) if config.timer_wheel_enable else None)
    parts.delay.level_expected, parts.delay.timed_expected = later.expect_level, later.expect_timed
    parts.info.of_later = later.runtime_info
    parts.delay.is_congested = lambda slot_ms: later.is_congested(slot_ms, config.timer_congest_num_each_slot)
    return later


def _timed(parts: Parts) -> TimerParts:
    config, store = parts.config, parts.store
    files = TimerFiles(
        parts.layer,
        store.config.root,
        log_file_size=config.mapped_file_size_timer_log,
        precision_ms=config.timer_precision_ms,
        flushed_offset=lambda: store.log.flushed_offset,
        worker=store.flushing.run_in_worker,
    )
    slots, reserved_ms = config.timer_roll_window_slot, store.config.reserved_ms
    windows = RollWindows(
        store.config.root / "config" / "timerwindows.json",
        config.timer_precision_ms,
        slots=safe_window(slots, reserved_ms, config.timer_precision_ms),
        slots_before=slots,
    )
    return TimerParts(Timer(config, windows, files, store, parts.messages.reads, parts.own, parts.figures), files)


def _transactions(parts: Parts) -> TransactionService:
    """Who serves transactions: this broker, unless a package that is installed does."""
    checks = checks_in_force(ProducerChecks(parts.producers, parts.config.broker_name))
    topics = parts.tables.topics
    own = Transactions(
        parts.config,
        store=parts.store,
        reads=parts.messages.reads,
        own=parts.own,
        offsets=parts.tables.offsets,
        delay=parts.delay,
        checks=checks,
        store_host=parts.store_host,
        clock=parts.clock,
        listener=parts.half_counts,
        ensure_topic=lambda topic: topics.for_send_back(topic, 1, READ_WRITE),
    )
    return service_in_force(own, checks)


def _access(config: BrokerConfig, clock: Clock, topic_at: TopicAt) -> AccessControl:
    """Who may do what here, and how this broker signs what it asks of others."""
    return AccessControl(
        config,
        cluster=config.broker_cluster_name,
        users=Path(config.auth_config_path),
        accounts=Path(config.acl_folder) if config.acl_enable else None,
        now_ms=clock.now_ms,
        topic_at=topic_at,
    )


def _long_polling(config: BrokerConfig) -> LongPollingConfig:
    return LongPollingConfig(long_polling=config.long_polling_enable, short_polling_ms=config.short_polling_time_mills)


def _admission(config: BrokerConfig, store: MessageStore) -> tuple[Admission, WaterMarks]:
    """What sends wait for, and what refuses them."""

    def waiting(now_ms: int) -> WaterMark:
        return WaterMark(store.flushing.waiting_count, store.flushing.waited_ms(now_ms))

    def limits() -> WaterMark:
        return WaterMark(config.send_thread_pool_queue_capacity, config.wait_time_mills_in_send_queue)

    meters = Meters(write_ms=lambda: store.log_write_ms, cpu_ms=lambda: time.thread_time_ns() // 1_000_000, waiting=waiting)
    queues = {"send": Queue(read=waiting, limits=limits, cause=Cause.DISK_SYNC.value)}
    return Admission(config, meters), WaterMarks(queues | dict.fromkeys(("pull", "lite_pull", "query_message"), Queue()))


def _store_host(config: BrokerConfig) -> bytes:
    """The address that clients are told, as records hold it; a name is looked up."""
    try:
        found = socket.getaddrinfo(config.broker_ip1, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(
            f"brokerIP1={config.broker_ip1} is not known here: {error}; name an address that clients can connect to"
        ) from error
    address = min(found, key=lambda each: each[0] != socket.AF_INET)[4]  # a name is listened on by IPv4
    return hosts.pack(str(address[0]), config.listen_port)
