"""The components of a broker below its request layer: metadata, store, client registry, services,
the link to the name servers, statistics.

`build_components` builds and connects them; `Broker` starts and stops them. No logic except what
follows from the configuration. Where two components need each other, the one built
first gets a function that looks up the other; it is not called before both exist.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from orbitmq.access.control import AccessControl
from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.clients.filter_servers import FilterServers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.replication_keys import BrokerRole
from orbitmq.broker.config.store_config import store_config
from orbitmq.broker.consume.filters.bit_maps import BitMaps
from orbitmq.broker.consume.filters.resolver import FilterResolver
from orbitmq.broker.consume.membership import ClientRules, MembershipService
from orbitmq.broker.consume.offset_service import OffsetService
from orbitmq.broker.consume.pending_pulls import LongPollingConfig, PendingPulls
from orbitmq.broker.consume.service import PullService
from orbitmq.broker.delay.levels.delivery import LevelDelivery
from orbitmq.broker.delay.levels.levels import Levels
from orbitmq.broker.delay.levels.progress import LevelProgress
from orbitmq.broker.delay.rewriter import DelayRewriter
from orbitmq.broker.delay.service import DelayService, TimerParts
from orbitmq.broker.delay.timer.files import TimerFiles
from orbitmq.broker.delay.timer.rules import safe_window
from orbitmq.broker.delay.timer.timer import Timer
from orbitmq.broker.delay.timer.windows import RollWindows
from orbitmq.broker.metadata.metadata import BrokerMetadata
from orbitmq.broker.metadata.persistent_file import SavedCallback
from orbitmq.broker.metadata.topics import READ_WRITE
from orbitmq.broker.observability.instruments import Instruments
from orbitmq.broker.observability.metric_sources import Identity
from orbitmq.broker.observability.metrics import parse_labels
from orbitmq.broker.observability.recorder import StatsRecorder
from orbitmq.broker.observability.watermarks import WaterMark
from orbitmq.broker.periodic_tasks import StoreTicks
from orbitmq.broker.plugins.interfaces import PluggableStore, TransactionService
from orbitmq.broker.plugins.store import plugged
from orbitmq.broker.plugins.transactions import checks_in_force, service_in_force
from orbitmq.broker.processors.check_sender import CheckSender
from orbitmq.broker.processors.clients import notify_member
from orbitmq.broker.produce.admission import Admission, Meters
from orbitmq.broker.produce.deduplication import DedupWindow
from orbitmq.broker.produce.deferral import QuickRewriter
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.produce.send_back import SendBackService
from orbitmq.broker.produce.service import SendService
from orbitmq.broker.registration.link import NameServerLink
from orbitmq.broker.registration.members import GroupMembers
from orbitmq.broker.registration.requests import BrokerIdentity, RegistrationAnswer
from orbitmq.broker.roles.slave_sync import SlaveSync
from orbitmq.broker.transactions.ending import HalfMessageRewriter, TransactionEnding
from orbitmq.broker.transactions.metrics import HalfCounts
from orbitmq.broker.transactions.service import Transactions
from orbitmq.broker.wiring.replication import Replication, build_replication
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ConfigurationError, StoreError
from orbitmq.common.topic_names import WAITING_TOPICS
from orbitmq.message import hosts, properties, record
from orbitmq.message.message_id import UniqueIds
from orbitmq.message.property_rules import DeferralKind
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.settings import client_config
from orbitmq.remoting.slices import SliceQueue
from orbitmq.replication.quorum import Quorum
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.message_store import MessageStore
from orbitmq.store.queue_retention import RetentionRules
from orbitmq.store.types import LogOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerComponents:
    """All components of a broker below its request layer."""

    config: BrokerConfig
    clock: Clock
    random: Random
    slices: SliceQueue
    access: AccessControl
    client: RemotingClient
    metadata: BrokerMetadata
    identity: BrokerIdentity
    link: NameServerLink
    store: MessageStore
    store_ticks: StoreTicks
    replication: Replication
    slave_sync: SlaveSync | None  # of a slave
    messages: PluggableStore  # the store as plug-ins present it
    producers: Producers
    consumers: Consumers
    locks: QueueLocks
    filter_servers: FilterServers
    metrics_identity: Identity
    instruments: Instruments
    recorder: StatsRecorder
    admission: Admission
    writer: InternalMessageWriter
    delay: DelayService
    delay_rewriter: DelayRewriter
    half_counts: HalfCounts
    transactions: TransactionService
    ending: TransactionEnding
    window: DedupWindow | None
    sends: SendService
    send_backs: SendBackService
    pulls: PullService
    offsets: OffsetService
    membership: MembershipService

    def close_store(self) -> None:
        """Stop the store. Raises StoreError if it could not flush everything and the next start has
        to recover it.
        """
        self.store.close()
        if self.store.unclean_reason is not None:
            raise StoreError(
                "the store was not stopped cleanly and will be recovered at the next start:"
                f" {self.store.unclean_reason}"
            )

    def load_metadata(self) -> None:
        """Load topics, groups and offsets; recreate topics that their file lacks from the store's
        queues.
        """
        self.metadata.load()
        counts: dict[str, int] = {}
        for key in (*self.store.queues.plain, *self.store.queues.batch):
            counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
        self.metadata.topics.restore(counts)

    def fill_window(self) -> None:
        """Fill the deduplication window from the log."""
        if self.window is not None:
            self.window.learn(self.store.log, self.clock.now_ms(), self.delay_rewriter.handle_of)

    def follow_config(self) -> None:
        """Apply changes of the configuration."""
        self.metadata.follow_config()
        self.pulls.pending.config = _long_polling(self.config)
        self.membership.rules = _client_rules(self.config)
        self.store.follow(store_config(self.config))
        self.client.config = client_config(self.config)
        self.delay.levels.progress.version_step = self.config.delay_offset_update_version_step
        self.store.log.files.read_ahead(self.config.data_read_ahead_enable)

    def when_topics_are_known(self, callback: SavedCallback) -> None:
        """Call back when all topic changes so far are saved, or failed to be, and the name servers
        that are up know them.
        """
        self.metadata.topics.when_saved(
            lambda failure: self.link.when_settled(lambda: callback(failure))
        )

    def permission_changed(self) -> None:
        """Register the changed permission with every name server."""
        self.metadata.topics.renew()
        self.link.register_all()


def build_components(
    config: BrokerConfig, clock: Clock, layer: FileLayer, loop: asyncio.AbstractEventLoop
) -> BrokerComponents:
    """Build all components of a broker; nothing is opened or started yet."""
    random, slices = Random(), SliceQueue()
    access = AccessControl(
        config,
        cluster=config.broker_cluster_name,
        users=Path(config.auth_config_path),
        accounts=Path(config.acl_folder) if config.acl_enable else None,
        now_ms=clock.now_ms,
        topic_at=lambda offset: _topic_at(messages, LogOffset(offset)),
    )
    client = RemotingClient(client_config(config), clock, hooks=access.signers)
    metadata = BrokerMetadata(
        config,
        clock,
        layer,
        loop,
        lambda names: link.topics_changed(names),
        _TopicMessages(lambda: store),
    )
    topics, groups, offsets = metadata.topics, metadata.groups, metadata.offsets
    identity = BrokerIdentity.of(config, config.listen_port)
    filter_servers = FilterServers()

    def registered(answer: RegistrationAnswer) -> None:
        if answer.order_topics:
            topics.mark_ordered(answer.order_topics)
        if replication.following is not None:
            replication.following.master.learn(answer)

    link = NameServerLink(
        config, identity, topics, client, registered, lambda: filter_servers.addresses
    )
    store_host = _store_host(config)
    members = GroupMembers(
        broker_name=config.broker_name,
        own_address=identity.address,
        configured=config.ha_peers,
        client=client,
        name_servers=lambda: link.name_servers,
        monotonic_ms=clock.monotonic_ms,
    )
    quorum = Quorum(
        config,
        is_sync_master=config.broker_role is BrokerRole.SYNC_MASTER,
        log_end=lambda: store.log.end_offset,
        members_at=members.count_at,
    )
    store = MessageStore(
        layer,
        clock,
        store_config(config),
        store_host,
        notify=lambda: loop.call_soon_threadsafe(store_ticks.tick),
        lives=topics,
        retention_rules=RetentionRules(
            is_system_topic=topics.is_system,
            topic_reserve=topics.reserve_ms,
            consumed_offset=offsets.consumed_by_all,
        ),
        filter_bits=BitMaps(config, metadata.filters).of,
        replicas=quorum,
    )
    replication = build_replication(
        config,
        clock=clock,
        loop=loop,
        store=store,
        quorum=quorum,
        members=members,
        find_master=lambda: link.register_all(),
    )
    store.log.files.read_ahead(config.data_read_ahead_enable)
    store_ticks = StoreTicks(clock, store)
    messages = plugged(store, config.message_store_plug_in)
    producers, consumers, locks = Producers(), Consumers(), QueueLocks()
    metrics_identity = Identity(
        cluster=config.broker_cluster_name,
        broker_name=config.broker_name,
        address=identity.address,
        labels=parse_labels(config.metrics_label),
    )
    instruments = Instruments(metrics_identity, topics.is_system)
    recorder = StatsRecorder(clock, config.broker_cluster_name, topics.is_system, instruments)
    writer = InternalMessageWriter(store, messages, recorder)
    admission = _admission(config, store, replication)
    delay = _delay(config, clock, layer, metadata, store, messages, writer, recorder)
    following = replication.following
    slave_sync = (
        None
        if following is None
        else SlaveSync(
            client=client,
            metadata=metadata,
            delay=delay,
            locks=locks,
            store=store,
            clock=clock,
            master_address=lambda: following.master.requests,
            own_address=identity.address,
            topic_deleted=recorder.delete_topic,
        )
    )
    delay_rewriter = DelayRewriter(config, clock.now_ms, delay)
    half_counts = HalfCounts(metadata.transactions_file, clock, instruments)
    checks = checks_in_force(CheckSender(producers, config.broker_name))
    own_transactions = Transactions(
        config,
        store=store,
        reads=messages.reads,
        own=writer,
        offsets=offsets,
        delay=delay_rewriter,
        checks=checks,
        store_host=store_host,
        clock=clock,
        listener=half_counts,
        ensure_topic=lambda topic: topics.for_send_back(topic, 1, READ_WRITE),
    )
    transactions = service_in_force(own_transactions, checks)
    quick_rewriters: dict[int, QuickRewriter] = {
        DeferralKind.LEVEL: delay_rewriter.quick_level,
        DeferralKind.TIMED: delay_rewriter.quick_timed,
    }
    if transactions is own_transactions:
        quick_rewriters[DeferralKind.HALF] = own_transactions.quick_half
    ending = TransactionEnding(
        settings=config,
        service=transactions,
        record_at=messages.reads.record_at,
        now_ms=clock.now_ms,
    )
    window = (
        DedupWindow(config.dedup_window_ms, config.dedup_window_keys_max)
        if config.dedup_window_ms
        else None
    )
    unique_ids = UniqueIds(
        address=store_host[:-4],
        pid=os.getpid(),
        process_number=random.getrandbits(32),
        now_ms=clock.now_ms,
    )
    sends = SendService(
        settings=config,
        topics=topics,
        groups=groups,
        store=store,
        messages=messages,
        store_host=store_host,
        now_ms=clock.now_ms,
        new_unique_key=unique_ids.next,
        listener=recorder,
        random=random,
        busy=lambda: admission.refusal(clock.monotonic_ms()),
        window=window,
        is_undone=ending.is_undone,
        is_in_order=lambda group: locks.is_locked(group, clock.monotonic_ms()),
        rewriters=(HalfMessageRewriter(transactions), delay_rewriter),
        quick_rewriters=quick_rewriters,
    )
    send_backs = SendBackService(
        settings=config,
        topics=topics,
        groups=groups,
        own=writer,
        record_at=messages.reads.record_at,
        delay=delay_rewriter,
        listener=recorder,
        random=random,
        busy=sends.busy,
    )
    pulls = PullService(
        settings=config,
        topics=topics,
        groups=groups,
        offsets=offsets,
        consumers=consumers,
        reads=messages.reads,
        pending=PendingPulls(_long_polling(config)),
        clock=clock,
        listener=recorder,
        filters=FilterResolver(config, metadata.filters),
        record_of=store.reads.record_of,
        slices=slices,
    )
    store.dispatcher.add_listener(pulls.arrived, pulls.is_awaiting)
    membership = MembershipService(
        _client_rules(config),
        producers=producers,
        consumers=consumers,
        locks=locks,
        pending=pulls.pending,
        groups=groups,
        topics=topics,
        filters=metadata.filters,
        clock=clock,
        listener=recorder,
        slices=slices,
        notify=notify_member,
    )
    return BrokerComponents(
        config=config,
        clock=clock,
        random=random,
        slices=slices,
        access=access,
        client=client,
        metadata=metadata,
        identity=identity,
        link=link,
        store=store,
        store_ticks=store_ticks,
        replication=replication,
        slave_sync=slave_sync,
        messages=messages,
        producers=producers,
        consumers=consumers,
        locks=locks,
        filter_servers=filter_servers,
        metrics_identity=metrics_identity,
        instruments=instruments,
        recorder=recorder,
        admission=admission,
        writer=writer,
        delay=delay,
        delay_rewriter=delay_rewriter,
        half_counts=half_counts,
        transactions=transactions,
        ending=ending,
        window=window,
        sends=sends,
        send_backs=send_backs,
        pulls=pulls,
        offsets=OffsetService(topics=topics, groups=groups, offsets=offsets, store=store),
        membership=membership,
    )


class _TopicMessages:
    """Answers what topics need to know of the store, which is built after them."""

    def __init__(self, store: Callable[[], MessageStore]) -> None:
        self._store = store

    def has_messages(self, topic: str) -> bool:
        return self._store().queues.has_messages(topic)

    def log_end(self) -> int:
        log = self._store().log
        return max(log.end_offset, log.batch.end)


def _topic_at(messages: PluggableStore, offset: LogOffset) -> str | None:
    """Return the topic of the message at a log offset; for a deferred message, the topic it is
    meant for.
    """
    found = messages.reads.record_at(offset) if offset >= 0 else None
    if found is None:
        return None
    stored = record.decode(found)
    return (
        stored.properties().get(properties.REAL_TOPIC, stored.topic)
        if stored.topic in WAITING_TOPICS
        else stored.topic
    )


def _delay(
    config: BrokerConfig,
    clock: Clock,
    layer: FileLayer,
    metadata: BrokerMetadata,
    store: MessageStore,
    messages: PluggableStore,
    writer: InternalMessageWriter,
    recorder: StatsRecorder,
) -> DelayService:
    """Build the delivery of delayed messages."""
    progress = LevelProgress(
        metadata.delay_file,
        metadata.delay_journal,
        clock,
        lambda: store.flushing.settled_offset,
        version_step=config.delay_offset_update_version_step,
    )
    levels = LevelDelivery(
        Levels(store.config.delay_levels_ms),
        progress,
        store.queues,
        messages.reads,
        writer,
        recorder,
    )
    timed = None
    if config.timer_wheel_enable:
        files = TimerFiles(
            layer,
            store.config.root,
            log_file_size=config.mapped_file_size_timer_log,
            precision_ms=config.timer_precision_ms,
            flushed_offset=lambda: store.flushing.settled_offset,
            worker=store.flushing.run_in_worker,
        )
        slots, reserved_ms = config.timer_roll_window_slot, store.config.reserved_ms
        windows = RollWindows(
            store.config.root / "config" / "timerwindows.json",
            config.timer_precision_ms,
            slots=safe_window(slots, reserved_ms, config.timer_precision_ms),
            slots_before=slots,
        )
        timer = Timer(config, windows, files, store, messages.reads, writer, recorder)
        timed = TimerParts(timer, files)
    return DelayService(
        clock=clock,
        store=store,
        levels=levels,
        timed=timed,
        slot_max=lambda: config.timer_congest_num_each_slot,
    )


def _client_rules(config: BrokerConfig) -> ClientRules:
    return ClientRules(
        notify_consumer_ids_changed=config.notify_consumer_ids_changed_enable,
        reject_pull_consumers=config.reject_pull_consumer_enable,
        enable_property_filter=config.enable_property_filter,
        subscription_conflict=config.subscription_conflict,
    )


def _long_polling(config: BrokerConfig) -> LongPollingConfig:
    return LongPollingConfig(
        long_polling=config.long_polling_enable, short_polling_ms=config.short_polling_time_mills
    )


def _admission(config: BrokerConfig, store: MessageStore, replication: Replication) -> Admission:
    meters = Meters(
        write_ms=lambda: store.log_write_ms,
        cpu_ms=lambda: time.thread_time_ns() // 1_000_000,
        waiting=lambda now_ms: WaterMark(
            store.flushing.waiting_count, store.flushing.waited_ms(now_ms)
        ),
        slow_replica=lambda: replication.slow_replica(store),
    )
    return Admission(config, meters)


def _store_host(config: BrokerConfig) -> bytes:
    """Return the advertised address as records store it; a host name is resolved."""
    try:
        found = socket.getaddrinfo(config.broker_ip1, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(
            f"brokerIP1={config.broker_ip1} cannot be resolved: {error}; set it to an address"
            " that clients can connect to"
        ) from error
    address = min(found, key=lambda each: each[0] != socket.AF_INET)[
        4
    ]  # a host name is bound by IPv4
    return hosts.pack(str(address[0]), config.listen_port)
