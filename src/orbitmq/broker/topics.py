"""The topics of this broker: which there are, how they come to be, and the file topics.json that follows them.

Sans-IO but for the file, which saves itself: who must know that a change is on disk asks `when_saved`. Thread rule: the loop thread owns
it. Invariants: every topic that a broker needs for itself is there from `load` on; each change gives the table a new version, and its
topics are told by `changed`, to be registered with name servers. A topic that is new is not `is_saved` before the file has it: a message
of a topic that a restart does not know could not be read.

Each life of a topic has a beginning, a log offset kept in the file: after delete and create, records before it belong to the topic that
was deleted (`store.topic_lives`). A topic without one, as in an Apache broker's file, begins with the log. Topics of which the file may
lack some (it is missing, or its backup was read) are restored from the queues that the store has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

from orbitmq.broker.attributes import TOPIC_ATTRIBUTES, altered, reserve_ms, warn_of_unserved
from orbitmq.broker.config_file import ConfigFile, Encoder, SavedCallback
from orbitmq.broker.topic_names import check_topic
from orbitmq.common.clock import Clock
from orbitmq.common.errors import DamagedFile, RequestRefused
from orbitmq.common.slices import SLICE_UNITS, Slices, finish, slices_of, sorted_in_slices
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
_ENDED_TOPICS_MAX = 1_000  # deleted topics whose last records may still be on their way into queues

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


class TopicMessages(Protocol):
    """What the store knows of topics."""

    def has_messages(self, topic: str) -> bool:
        """Whether any queue of the topic has, or had, a message."""
        ...

    def log_end(self) -> int:
        """The log offset that the next message gets."""
        ...


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
        messages: TopicMessages | None = None,
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
        self._messages = messages
        self._beginnings: dict[str, int] = {}  # of lives; of topics that were deleted, where the last one ended
        self._ended: dict[str, None] = {}  # topics that were deleted, the last of them last; some came back since
        self._may_lack_topics = False

    def load(self) -> None:
        """Take over what the file says; the broker's own topics that it lacks are as `own_topics` says."""
        loaded, _ = self._file.open(decode_topic_file, self._snapshot)
        if loaded is not None:
            self._table = {**loaded.topics, **{name: own for name, own in self._table.items() if name not in loaded.topics}}
            self._version = loaded.version or self._version
            self._beginnings = {name: begin for name, begin in loaded.beginnings.items() if name in loaded.topics}
            for name, config in loaded.topics.items():
                warn_of_unserved(TOPIC_ATTRIBUTES, f"topic={name}", config.attributes)
        elif self._file.is_empty:
            raise DamagedFile(
                f"{self._file.path} is empty, and there is no backup of it: which topics exist cannot be told. Restore it, or move it away "
                "to have the topics made again that have messages in the store"
            )
        self._may_lack_topics = loaded is None or self._file.is_from_backup
        log.info("topics_loaded topics=%d version=%d", len(self._table), self._version.counter)

    def exists(self, topic: str) -> bool:
        """Whether messages of the topic are kept; of one that is not in the table, if the table may lack some."""
        return topic in self._table or self._may_lack_topics or self.is_system(topic)

    def begin_of(self, topic: str) -> int:
        """The log offset at which the present life of the topic begins, 0 when it never had another."""
        return self._beginnings.get(topic, 0)

    def knows_begin(self, topic: str) -> bool:
        """Whether the file says where the present life of the topic begins; its backup may be of an earlier one."""
        return topic in self._beginnings and not self._may_lack_topics

    def beginnings(self) -> Mapping[str, int] | None:
        """All topics with where their lives begin; None when the table may lack some."""
        return None if self._may_lack_topics else {name: self._beginnings.get(name, 0) for name in self._table}

    def restore(self, queue_counts: Mapping[str, int]) -> None:
        """Make the topics again that the table lacks and the store has messages of: so many queues each."""
        if not self._may_lack_topics:
            return
        self._may_lack_topics = False
        for topic, count in queue_counts.items():
            if topic not in self._table and not self.is_system(topic):
                log.warning("topic_restored topic=%s queues=%d file=%s", topic, count, self._file.path)
                self._put(TopicConfig(topic, count, count, READ_WRITE))

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
        return finish(self.page_in_slices(begin, count))

    def page_in_slices(self, begin: int, count: int) -> Slices[dict[str, TopicConfig]]:
        """Do what `page` does, in slices, with the topics as they are at its begin."""
        table = dict(self._table)
        names = yield from sorted_in_slices(table)
        return {name: table[name] for name in names[begin : begin + count]}

    def is_system(self, topic: str) -> bool:
        return topic in self.system_topics or topic.startswith(SYSTEM_PREFIX)

    def reserve_ms(self) -> dict[str, int]:
        """How long topics keep messages, of those that say so themselves."""
        said = ((name, reserve_ms(config.attributes)) for name, config in self._table.items() if config.attributes)
        return {name: kept_ms for name, kept_ms in said if kept_ms is not None}

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
        return finish(self.update_in_slices(wanted))

    def update_in_slices(self, wanted: Sequence[TopicConfig]) -> Slices[list[str]]:
        """Do what `update` does: check in slices, then change the table at once, so that nobody ever sees a part of it.

        A topic that somebody else changed meanwhile is checked again before anything is changed.
        """
        final: dict[str, TopicConfig] = {}
        before: dict[str, TopicConfig | None] = {}
        used: set[str] = set()  # names without a topic that have messages
        for part in slices_of(wanted):
            for config in part:
                before[config.name] = self._table.get(config.name)
                final[config.name] = self._checked(config, final.get(config.name))
                if before[config.name] is None and self._messages is not None and self._messages.has_messages(config.name):
                    used.add(config.name)
            if len(part) == SLICE_UNITS:
                yield
        stale = {name for name, current in before.items() if self._table.get(name) is not current}
        if stale:
            final = {name: config for name, config in final.items() if name not in stale}
            for config in wanted:
                if config.name in stale:
                    final[config.name] = self._checked(config, final.get(config.name))
        changed = {name: config for name, config in final.items() if config != self._table.get(name)}
        if changed:
            old = {name: self._table.get(name) for name in changed}
            self._put_all(changed, used)
            self._changed(list(changed))
            for names in slices_of(changed):
                for name in names:
                    log.info("topic_changed old=%s new=%s", old[name], changed[name])
                if len(names) == SLICE_UNITS:
                    yield
        return list(changed)

    def _checked(self, config: TopicConfig, earlier: TopicConfig | None) -> TopicConfig:
        """The topic as it is to be, after an `earlier` change of the same request; RequestRefused when it may not be."""
        check_topic(config.name)
        self._check_not_system(config.name)
        if config.attributes.get("+message.type") == "MIXED" and not self.rules.mixed_message_type_enable:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported. Set enableMixedMessageType=true to allow it"
            )
        current = earlier or self._table.get(config.name)
        attributes = altered(TOPIC_ATTRIBUTES, None if current is None else current.attributes, config.attributes)
        return config._replace(attributes=attributes)

    def _put_all(self, configs: Mapping[str, TopicConfig], used: Set[str]) -> None:
        """Put topics at once, quickly; of those that are new, the names in `used` have messages, and their lives go on."""
        new = {name for name in configs if name not in self._table}
        if self._messages is not None:
            self._beginnings.update(dict.fromkeys(new - used, self._messages.log_end()))
        self._table.update(configs)
        self._next_version(len(configs))
        self._file.changed()
        if new:
            self._unsaved |= new
            self._file.when_saved(partial(self._saved, new))

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
        self._end(topic)
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
        for name in new:
            self._begin(name)
        for config in configs:
            log.info("topic_changed old=%s new=%s", self._table.get(config.name), config)
            self._table[config.name] = config
            self._next_version()
        self._file.changed()
        if new:
            self._unsaved |= new
            self._file.when_saved(partial(self._saved, new))

    def _begin(self, topic: str) -> None:
        """Let the life of a topic begin here, unless it has messages: then it goes on, and was only missing in the table."""
        if self._messages is not None and not self._messages.has_messages(topic):
            self._beginnings[topic] = self._messages.log_end()

    def _end(self, topic: str) -> None:
        """Remember where the life of a topic ended: records before it that are not in queues yet must not come there."""
        if self._messages is None:
            return
        self._ended.pop(topic, None)  # to the end of the list
        self._ended[topic] = None
        if len(self._ended) > _ENDED_TOPICS_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            if oldest not in self._table:
                self._beginnings.pop(oldest, None)
        self._beginnings[topic] = self._messages.log_end()

    def _saved(self, names: set[str], failure: Exception | None) -> None:
        if failure is None:
            self._unsaved -= names
        else:
            self._file.when_saved(partial(self._saved, names))

    def _next_version(self, changes: int = 1) -> None:
        version = next_version(self._version, self._clock.now_ms(), self._state_version())
        self._version = replace(version, counter=version.counter + changes - 1)

    def _check_not_system(self, topic: str) -> None:
        if self.rules.protect_system_topics and self.is_system(topic):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic. Choose another name: the broker needs this one itself",
            )

    def _snapshot(self) -> Encoder:
        return partial(_encoded, dict(self._table), self._version, dict(self._beginnings))


def _encoded(topics: Mapping[str, TopicConfig], version: DataVersion, beginnings: Mapping[str, int]) -> bytes:
    """The content of the file, in which lives that ended have no place; the worker's, as it takes long."""
    return encode_topic_file(topics, version, {name: begin for name, begin in beginnings.items() if name in topics})


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
