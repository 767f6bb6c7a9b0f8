"""The broker's persistent tables, topics, groups and consumer offsets, and the rules that the
configuration gives them.

Knows which file belongs to which table, not its content. One worker thread writes all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.consume_modes import RequestModes
from orbitmq.broker.metadata.consumer_filters import ConsumerFilters
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import GroupRules, Groups
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile, Loop
from orbitmq.broker.metadata.topics import TopicMessages, TopicRules, Topics
from orbitmq.common.clock import Clock
from orbitmq.store.file_layer import FileLayer


class BrokerMetadata:
    """The persistent tables, from `load` to `save`. `topics_changed` receives the names of topics
    to register with name servers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        layer: FileLayer,
        loop: Loop,
        topics_changed: Callable[[Iterable[str]], None],
        messages: TopicMessages | None = None,
    ) -> None:
        self._config = config
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="configuration")
        self.folder = Path(config.store_path_root_dir) / "config"
        self.delay_file = ConfigFile(self.folder / "delayOffset.json", self._worker, loop)
        self.delay_journal = OffsetJournal(self.folder / "delayOffset.journal", layer)
        self._files = self.topics_file, self.groups_file, self.modes_file, self.offsets_file = (
            tuple(
                ConfigFile(self.folder / name, self._worker, loop)
                for name in (
                    "topics.json",
                    "subscriptionGroup.json",
                    "messageRequestMode.json",
                    "consumerOffset.json",
                )
            )
        )
        self.transactions_file = ConfigFile(self.folder / "transactionMetrics", self._worker, loop)
        self._files += (self.transactions_file,)
        filters_file = ConfigFile(self.folder / "consumerFilter.json", self._worker, loop)
        self._files += (filters_file,)
        bloom = Bloom.of(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self.filters = ConsumerFilters(
            bloom, filters_file, clock, config.filter_data_clean_time_span
        )
        self.topics = Topics(
            _topic_rules(config), self.topics_file, clock, topics_changed, messages=messages
        )
        self.groups = Groups(_group_rules(config), self.groups_file, clock)
        self.modes = RequestModes(self.modes_file)
        self.offsets = Offsets(
            self.offsets_file,
            OffsetJournal(self.folder / "consumerOffset.journal", layer),
            clock,
            server_side_reset=config.use_server_side_reset_offset,
            version_step=config.consumer_offset_update_version_step,
        )

    def load(self) -> None:
        """Load everything except the topics, which the store loads before its recovery."""
        for table in (self.groups, self.modes, self.offsets, self.filters):
            table.load()

    def flush(self) -> None:
        """Save all changes, and notify everything that waits for it; blocks."""
        self.offsets.save_soon()
        for file in self._files:
            file.save_now()

    def save(self) -> None:
        """Save everything, and end."""
        try:
            self.flush()
        finally:
            self.offsets.close()
            self._worker.shutdown()

    def abandon(self) -> None:
        """End without saving anything."""
        for file in self._files:
            file.abandon()
        self.offsets.abandon()
        self._worker.shutdown(cancel_futures=True)

    def follow_config(self) -> None:
        """Apply changes of the configuration."""
        self.topics.rules, self.groups.rules = (
            _topic_rules(self._config),
            _group_rules(self._config),
        )
        self.offsets.server_side_reset = self._config.use_server_side_reset_offset
        self.offsets.version_step = self._config.consumer_offset_update_version_step
        self.filters.clean_ms = self._config.filter_data_clean_time_span


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
        timer_wheel_enable=config.timer_wheel_enable,
        protect_system_topics=config.validate_system_topic_when_update_topic,
        mixed_message_type_enable=config.enable_mixed_message_type,
        follows_master=config.is_slave,
    )


def _group_rules(config: BrokerConfig) -> GroupRules:
    return GroupRules(
        auto_create=config.auto_create_subscription_group,
        system_groups_enable=config.enable_create_sys_group,
    )
