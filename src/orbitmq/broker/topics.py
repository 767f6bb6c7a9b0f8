"""The topics of this broker: which there are, how they come to be, and the file topics.json that follows them.

Sans-IO but for the file, which saves itself: who must know that a change is on disk asks `when_saved`. Thread rule: the loop thread owns
it. Invariants: every topic that a broker needs for itself is there from `load` on; each change gives the table a new version, and its
topics are told by `changed`, to be registered with name servers. A topic that is new is not `is_saved` before the file has it: a message
of a topic that a restart does not know could not be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from orbitmq.broker.attributes import TOPIC_ATTRIBUTES, altered
from orbitmq.broker.config_file import ConfigFile, Encoder, SavedCallback
from orbitmq.broker.topic_names import check_topic
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefused
from orbitmq.common.topic_names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_MEMBERS_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from orbitmq.protocol.bodies.nameserver import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TOPIC_UNIT,
    TOPIC_UNIT_SUB,
    DataVersion,
    TopicConfig,
)
from orbitmq.protocol.bodies.topics import decode_topic_file, encode_topic_file, next_version
from orbitmq.protocol.codes import ResponseCode

READ_WRITE = PERM_READ | PERM_WRITE
_SCHEDULE_LEVELS = 18
_BENCHMARK_QUEUES = 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """How topics come to be on this broker; the defaults are the original's."""

    broker_name: str
    cluster_name: str = "DefaultCluster"
    auto_create: bool = True
    default_queue_count: int = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    trace_topic_name: str = TRACE_TOPIC
    revive_queue_count: int = 8
    timer_wheel_enable: bool = True
    protect_system_topics: bool = True
    mixed_message_type_enable: bool = False


class Topics:
    """See above. `rules` may be replaced while the broker runs."""

    def __init__(
        self,
        rules: TopicRules,
        file: ConfigFile,
        clock: Clock,
        changed: Callable[[Sequence[str]], None],
        *,
        state_version: Callable[[], int] = int,
    ) -> None:
        own = own_topics(rules)
        self.rules = rules
        self.system_topics = SYSTEM_TOPICS.union(own)
        self._file = file
        self._clock = clock
        self._changed = changed
        self._state_version = state_version
        self._table: dict[str, TopicConfig] = own
        self._unsaved: set[str] = set()
        self._version = DataVersion(timestamp=clock.now_ms())

    def load(self) -> None:
        """Take over what the file says; the broker's own topics that it lacks are as `own_topics` says."""
        loaded, _ = self._file.open(decode_topic_file, self._snapshot)
        if loaded is not None:
            topics, version = loaded
            self._table = {**topics, **{name: own for name, own in self._table.items() if name not in topics}}
            self._version = version or self._version
        log.info("topics_loaded topics=%d version=%d", len(self._table), self._version.counter)

    def find(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    def find_saved(self, topic: str) -> TopicConfig | None:
        """The topic, if a restart would know it too."""
        return None if topic in self._unsaved else self._table.get(topic)

    def is_saved(self, topic: str) -> bool:
        """Whether a restart would know the topic."""
        return topic not in self._unsaved

    def when_saved(self, callback: SavedCallback) -> None:
        """Call back when all changes so far are on disk, or could not be brought there."""
        self._file.when_saved(callback)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """All topics by name, as they are at any time."""
        return MappingProxyType(self._table)

    @property
    def data_version(self) -> DataVersion:
        return self._version

    def page(self, begin: int, count: int) -> dict[str, TopicConfig]:
        """At most `count` topics by name, in the order of their names, from the one of that number on."""
        return {name: self._table[name] for name in sorted(self._table)[begin : begin + count]}

    def is_system(self, topic: str) -> bool:
        return topic in self.system_topics or topic.startswith(SYSTEM_PREFIX)

    def for_send(self, topic: str, default_topic: str, default_queue_count: int, *, unit_mode: bool = False) -> TopicConfig | None:
        """The topic to send to, created after the default topic if need be; None when it may not be created."""
        if (found := self._table.get(topic)) is not None:
            return found
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (TOPIC_UNIT_SUB if is_retry else TOPIC_UNIT) if unit_mode else 0
        template = self._template(default_topic)
        if template is not None:
            queues = max(min(default_queue_count, template.write_queue_nums), 0)
            return self._create(TopicConfig(topic, queues, queues, template.perm & ~PERM_INHERIT, template.filter_type, sys_flag))
        if is_retry:
            return self._create(TopicConfig(topic, 1, 1, READ_WRITE, sys_flag=sys_flag))
        log.warning("topic_not_created topic=%s default_topic=%s", topic, default_topic)
        return None

    def for_send_back(self, topic: str, queue_count: int, perm: int, *, order: bool = False, sys_flag: int = 0) -> TopicConfig:
        """The broker's own topic of that name (retry, dead letter …), created if need be, with that order."""
        found = self._table.get(topic)
        if found is None:
            return self._create(TopicConfig(topic, queue_count, queue_count, perm, sys_flag=sys_flag, order=order))
        if found.order != order:
            found = found._replace(order=order)
            self._put(found)
        return found

    def update(self, *wanted: TopicConfig) -> list[str]:
        """Create or change topics, all or none; their attributes are changes (`+name`, `-name`). The names of those that changed."""
        final: dict[str, TopicConfig] = {}
        for config in wanted:
            check_topic(config.name)
            self._check_not_system(config.name)
            if config.attributes.get("+message.type") == "MIXED" and not self.rules.mixed_message_type_enable:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported. Set enableMixedMessageType=true to allow it"
                )
            current = final.get(config.name) or self._table.get(config.name)
            attributes = altered(TOPIC_ATTRIBUTES, None if current is None else current.attributes, config.attributes)
            final[config.name] = config._replace(attributes=attributes)
        changed = [config for name, config in final.items() if config != self._table.get(name)]
        names = [config.name for config in changed]
        if names:
            self._put(*changed)
            self._changed(names)
        return names

    def renew(self) -> None:
        """Give the table a new version although no topic changed, so that name servers take the next registration for news."""
        self._next_version()
        self._file.changed()

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """Mark those of the topics that are here as ordered: a name server said so."""
        changed = [found for topic in topics if (found := self._table.get(topic)) is not None and not found.order]
        for config in changed:
            log.info("topic_ordered topic=%s", config.name)
            self._table[config.name] = config._replace(order=True)
        if changed:
            self._next_version()
            self._file.changed()

    def delete(self, topic: str) -> bool:
        """Forget a topic; whether it was there."""
        if not topic or topic.isspace():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank. Name the topic to delete")
        self._check_not_system(topic)
        config = self._table.pop(topic, None)
        if config is None:
            log.warning("topic_not_deleted topic=%s reason=unknown", topic)
            return False
        log.info("topic_deleted config=%s", config)
        self._next_version()
        self._file.changed()
        self._changed([topic])
        return True

    def encode(self) -> bytes:
        """The content of the file as the table is now."""
        return self._snapshot()()

    def _template(self, default_topic: str) -> TopicConfig | None:
        """The topic that new ones are made after, if it may be inherited from."""
        template = self._table.get(default_topic)
        if template is not None and default_topic == AUTO_CREATE_TOPIC and not self.rules.auto_create:
            template = self._table[default_topic] = template._replace(perm=READ_WRITE)  # an earlier run may have left it inheritable
        return template if template is not None and template.perm & PERM_INHERIT else None

    def _create(self, config: TopicConfig) -> TopicConfig:
        self._put(config)
        self._changed([config.name])
        return config

    def _put(self, *configs: TopicConfig) -> None:
        new = {config.name for config in configs if config.name not in self._table}
        for config in configs:
            log.info("topic_changed old=%s new=%s", self._table.get(config.name), config)
            self._table[config.name] = config
            self._next_version()
        self._file.changed()
        if new:
            self._unsaved |= new
            self._file.when_saved(partial(self._saved, new))

    def _saved(self, names: set[str], failure: Exception | None) -> None:
        if failure is None:
            self._unsaved -= names
        else:
            self._file.when_saved(partial(self._saved, names))

    def _next_version(self) -> None:
        self._version = next_version(self._version, self._clock.now_ms(), self._state_version())

    def _check_not_system(self, topic: str) -> None:
        if self.rules.protect_system_topics and self.is_system(topic):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic. Choose another name: the broker needs this one itself",
            )

    def _snapshot(self) -> Encoder:
        return partial(encode_topic_file, dict(self._table), self._version)


def own_topics(rules: TopicRules) -> dict[str, TopicConfig]:
    """The topics that a broker has from the start, whether or not its file says so."""
    inherited = PERM_INHERIT | READ_WRITE
    single = [SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC]
    single.append(rules.cluster_name + REPLY_SUFFIX)
    if rules.trace_topic_enable:
        single.append(rules.trace_topic_name)
    if rules.timer_wheel_enable:
        single.append(TIMER_TOPIC)
    own = [
        *(TopicConfig(name, 1, 1) for name in single),
        TopicConfig(BENCHMARK_TOPIC, _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
        TopicConfig(rules.cluster_name, perm=inherited if rules.cluster_topic_enable else PERM_INHERIT),
        TopicConfig(rules.broker_name, 1, 1, inherited if rules.broker_topic_enable else PERM_INHERIT),
        TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_LEVELS, _SCHEDULE_LEVELS),
        TopicConfig(REVIVE_PREFIX + rules.cluster_name, rules.revive_queue_count, rules.revive_queue_count),
        TopicConfig(SYNC_MEMBERS_PREFIX + rules.broker_name, 1, 1, PERM_INHERIT),
    ]
    if rules.auto_create:
        own.append(TopicConfig(AUTO_CREATE_TOPIC, rules.default_queue_count, rules.default_queue_count, inherited))
    return {topic.name: topic for topic in own}
