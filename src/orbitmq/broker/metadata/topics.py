"""The topics of this broker, how they are created, and the file topics.json.

Sans-IO except for the file, which saves itself: `when_saved` tells callers when a change is on
disk. Thread rule: the loop thread owns it. Invariants: every topic that a broker needs for itself
exists from `load` on; each change gives the table a new version, and its topics are reported by
`changed`, to be registered with name servers. A new topic is not `is_saved` before the file has it:
a message of a topic that a restart forgets could not be read.

Each life of a topic has a beginning, a log offset kept in the file: after delete and create,
records before it belong to the deleted topic (`store.topic_lives`). A topic without one, as in an
Apache broker's file, begins with the log. The manifest of the queues may prove that the file is
older than the log: then the later beginning counts (`learn`). If the file may lack topics (it is
missing or older, or its backup was read), they are restored from the store's queues.

A slave makes no changes of its own: `take_over` applies those of its master, with the master's
version and beginnings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

from orbitmq.broker.metadata.attributes import (
    TOPIC_ATTRIBUTES,
    altered,
    reserve_ms,
    warn_of_unserved,
)
from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder, SavedCallback
from orbitmq.broker.metadata.topic_names import check_topic
from orbitmq.common.change_log import ChangeLog
from orbitmq.common.clock import Clock
from orbitmq.common.errors import CorruptFileError, Refusal, RefusedError
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
from orbitmq.protocol.bodies.metadata_rows import TopicRow
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
from orbitmq.store.topic_lives import LivesProof

READ_WRITE = PERM_READ | PERM_WRITE
_SCHEDULE_LEVELS = 18
_BENCHMARK_QUEUES = 1024
_ENDED_TOPICS_MAX = 1_000  # deleted topics whose last records may not be dispatched yet

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """How topics are created on this broker; the defaults are those of Apache RocketMQ."""

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
    follows_master: bool = False  # topics come from the master, some after their messages


class TopicMessages(Protocol):
    """What the store knows of topics."""

    def has_messages(self, topic: str) -> bool:
        """Return whether any queue of the topic has, or had, a message."""
        ...

    def log_end(self) -> int:
        """Return the log offset of the next message."""
        ...


class Topics:
    """The table of topics. `rules` may be replaced while the broker runs."""

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
        self.changes = ChangeLog[str]()  # for slaves
        self._unsaved: set[str] = set()
        self._version = DataVersion(timestamp=clock.now_ms())
        self._messages = messages
        self._beginnings: dict[
            str, int
        ] = {}  # beginnings of lives; for deleted topics, the end of the last life
        self._ended: dict[
            str, None
        ] = {}  # deleted topics in order of deletion; some may exist again
        self._may_lack_topics = False
        self._is_corrected = False  # differs from the file
        self._begin_of_unknown = (
            0  # beginning of topics that are not in the table, while it may lack some
        )

    def load(self) -> None:
        """Load the file; topics of the broker's own that it lacks are created as in
        `own_topics`.
        """
        loaded, _ = self._file.open(decode_topic_file, self._snapshot)
        if loaded is not None:
            self._table = {
                **loaded.topics,
                **{name: own for name, own in self._table.items() if name not in loaded.topics},
            }
            self._version = loaded.version or self._version
            self._beginnings = {
                name: begin for name, begin in loaded.beginnings.items() if name in loaded.topics
            }
            for name, config in loaded.topics.items():
                warn_of_unserved(TOPIC_ATTRIBUTES, f"topic={name}", config.attributes)
        elif self._file.is_empty:
            raise CorruptFileError(
                f"{self._file.path} is empty and has no backup, so the topics are unknown."
                " Restore it, or move it away to recreate the topics that have messages in the"
                " store"
            )
        self._may_lack_topics = (
            loaded is None or self._file.is_from_backup or self.rules.follows_master
        )
        self.changes.put_all(self._table)
        log.info("topics_loaded topics=%d version=%d", len(self._table), self._version.counter)

    def exists(self, topic: str) -> bool:
        """Return whether messages of the topic are kept; for an unknown topic, whether the table
        may lack some.
        """
        return topic in self._table or self._may_lack_topics or self.is_system(topic)

    def begin_of(self, topic: str) -> int:
        """Return the log offset at which the topic's present life begins; 0 if it is the first."""
        is_known = topic in self._table or self.is_system(topic)
        return self._beginnings.get(topic, 0 if is_known else self._begin_of_unknown)

    def beginnings(self) -> Mapping[str, int] | None:
        """Return all topics with the beginnings of their lives; None if the table may lack some."""
        return (
            None
            if self._may_lack_topics
            else {name: self._beginnings.get(name, 0) for name in self._table}
        )

    def begin_again(self, topic: str, log_offset: int) -> None:
        """Take it that a topic was deleted, and created again at a log offset: the file was not
        saved since, or is an older copy.
        """
        log.warning(
            "topic_begin_corrected topic=%s file=%s begin=%d corrected=%d reason=the log has a"
            " second message 0 of a queue: the topic was deleted and created again",
            topic,
            self._file.path,
            self.begin_of(topic),
            log_offset,
        )
        self._beginnings[topic] = log_offset
        self._is_corrected = True

    def learn(self, proven: LivesProof, log_end: int) -> None:
        """Correct the beginnings of lives: not before what a manifest proves, and not after the end
        of the log. A file older than the manifest may lack topics.
        """
        is_older = proven.is_last and any(
            topic not in self._table and not self.is_system(topic) for topic in proven.beginnings
        )
        if is_older and not self._may_lack_topics:
            log.warning(
                "topics_file_older file=%s log_offset=%d reason=the manifest of the last stop"
                " lists topics that it lacks: those with messages are recreated",
                self._file.path,
                proven.log_offset,
            )
        for topic in [topic for topic in self._table if not self.is_system(topic)]:
            begin, recorded = self._beginnings.get(topic, 0), topic in self._beginnings
            proven_begin = proven.begin_of(topic)
            corrected = min(proven_begin if proven.is_last else max(begin, proven_begin), log_end)
            if corrected == begin:
                continue
            self._beginnings[topic] = corrected
            self._is_corrected = True
            if recorded or topic not in proven.beginnings:
                is_older = is_older or (recorded and corrected > begin)
                log.warning(
                    "topic_begin_corrected topic=%s file=%s begin=%d corrected=%d reason=%s",
                    topic,
                    self._file.path,
                    begin,
                    corrected,
                    "the log ends there"
                    if corrected == log_end < begin
                    else "the manifest of the queues proves that the file is of another life"
                    if topic in proven.beginnings
                    else "the topic did not exist when the manifest of the queues was written",
                )
        self._may_lack_topics = self._may_lack_topics or is_older
        if self._may_lack_topics:
            self._begin_of_unknown = min(proven.log_offset, log_end)
            self._beginnings.update(
                (topic, min(begin, log_end))
                for topic, begin in proven.beginnings.items()
                if topic not in self._table
            )
            if not proven.beginnings and log_end:
                log.warning(
                    "topic_begins_unproven file=%s reason=it is missing, or its backup was read,"
                    " and no manifest says since when topics exist: messages of deleted topics may"
                    " reappear",
                    self._file.path,
                )

    def restore(self, queue_counts: Mapping[str, int]) -> None:
        """Recreate topics that the table lacks and the store has messages of, with that many queues
        each. Log a warning if the store has more queues of a topic than the table.
        """
        for topic, count in queue_counts.items():
            found = self._table.get(topic)
            if found is not None and count > max(found.read_queue_nums, found.write_queue_nums):
                log.warning(
                    "topic_queues_hidden topic=%s queues=%d found=%d reason=messages of"
                    " queues that the topic does not have are not read: orbitmq topic update %s"
                    " --queues %d",
                    topic,
                    max(found.read_queue_nums, found.write_queue_nums),
                    count,
                    topic,
                    count,
                )
            if self._may_lack_topics and found is None and not self.is_system(topic):
                log.warning(
                    "topic_restored topic=%s queues=%d file=%s", topic, count, self._file.path
                )
                begin = self.begin_of(topic)
                self._put(TopicConfig(topic, count, count, READ_WRITE))
                self._beginnings[topic] = begin
        self._may_lack_topics = False
        if self._is_corrected:
            self._is_corrected = False
            self._file.changed()

    def find(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    def find_saved(self, topic: str) -> TopicConfig | None:
        """Return the topic, if it would survive a restart."""
        return None if topic in self._unsaved else self._table.get(topic)

    def is_saved(self, topic: str) -> bool:
        """Return whether the topic would survive a restart."""
        return topic not in self._unsaved

    def when_saved(self, callback: SavedCallback) -> None:
        """Call back when all changes so far are on disk, or could not be saved."""
        self._file.when_saved(callback)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """All topics by name; a live view."""
        return MappingProxyType(self._table)

    @property
    def data_version(self) -> DataVersion:
        return self._version

    def page(self, begin: int, count: int) -> dict[str, TopicConfig]:
        """Return at most `count` topics, ordered by name, from that number on."""
        return finish(self.page_in_slices(begin, count))

    def page_in_slices(self, begin: int, count: int) -> Slices[dict[str, TopicConfig]]:
        """Do what `page` does, in slices, with the topics as they are at its start."""
        table = dict(self._table)
        names = yield from sorted_in_slices(table)
        return {name: table[name] for name in names[begin : begin + count]}

    def is_system(self, topic: str) -> bool:
        return topic in self.system_topics or topic.startswith(SYSTEM_PREFIX)

    def reserve_ms(self) -> dict[str, int]:
        """Return the retention time of each topic that sets its own."""
        said = (
            (name, reserve_ms(config.attributes))
            for name, config in self._table.items()
            if config.attributes
        )
        return {name: kept_ms for name, kept_ms in said if kept_ms is not None}

    def for_send(
        self, topic: str, default_topic: str, default_queue_count: int, *, unit_mode: bool = False
    ) -> TopicConfig | None:
        """Return the topic to send to, created from the default topic if needed; None if it may not
        be created.
        """
        if (found := self._table.get(topic)) is not None:
            return found
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (TOPIC_UNIT_SUB if is_retry else TOPIC_UNIT) if unit_mode else 0
        template = self._template(default_topic)
        if template is not None:
            queues = max(min(default_queue_count, template.write_queue_nums), 0)
            return self._create(
                TopicConfig(
                    topic,
                    queues,
                    queues,
                    template.perm & ~PERM_INHERIT,
                    template.filter_type,
                    sys_flag,
                )
            )
        if is_retry:
            return self._create(TopicConfig(topic, 1, 1, READ_WRITE, sys_flag=sys_flag))
        log.warning("topic_not_created topic=%s default_topic=%s", topic, default_topic)
        return None

    def for_send_back(
        self, topic: str, queue_count: int, perm: int, *, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        """Return the broker's own topic of that name (retry, dead letter …), created if needed,
        with that order flag.
        """
        found = self._table.get(topic)
        if found is None:
            return self._create(
                TopicConfig(topic, queue_count, queue_count, perm, sys_flag=sys_flag, order=order)
            )
        if found.order != order:
            found = found._replace(order=order)
            self._put(found)
        return found

    def update(self, *wanted: TopicConfig) -> list[str]:
        """Create or change topics, all or none; their attributes are changes (`+name`, `-name`).
        Return the names of those that changed.
        """
        return finish(self.update_in_slices(wanted))

    def update_in_slices(self, wanted: Sequence[TopicConfig]) -> Slices[list[str]]:
        """Do what `update` does: check in slices, then change the table at once, so that readers
        never see a part of it.

        A topic that was changed meanwhile is checked again before the table is changed.
        """
        final: dict[str, TopicConfig] = {}
        before: dict[str, TopicConfig | None] = {}
        used: set[str] = set()  # names without a topic that have messages
        for part in slices_of(wanted):
            for config in part:
                before[config.name] = self._table.get(config.name)
                final[config.name] = self._checked(config, final.get(config.name))
                if (
                    before[config.name] is None
                    and self._messages is not None
                    and self._messages.has_messages(config.name)
                ):
                    used.add(config.name)
            if len(part) == SLICE_UNITS:
                yield
        stale = {name for name, current in before.items() if self._table.get(name) is not current}
        if stale:
            final = {name: config for name, config in final.items() if name not in stale}
            for config in wanted:
                if config.name in stale:
                    final[config.name] = self._checked(config, final.get(config.name))
        changed = {
            name: config for name, config in final.items() if config != self._table.get(name)
        }
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
        """Return the new topic, after an `earlier` change in the same request. Raises
        RefusedError if it is not allowed.
        """
        check_topic(config.name)
        self._check_not_system(config.name)
        if (
            config.attributes.get("+message.type") == "MIXED"
            and not self.rules.mixed_message_type_enable
        ):
            raise RefusedError(
                Refusal.INVALID_PARAMETER,
                "MIXED message type is not supported. Set enableMixedMessageType=true to allow it",
            )
        current = earlier or self._table.get(config.name)
        attributes = altered(
            TOPIC_ATTRIBUTES, None if current is None else current.attributes, config.attributes
        )
        return config._replace(attributes=attributes)

    def _put_all(self, configs: Mapping[str, TopicConfig], used: Set[str]) -> None:
        """Put topics into the table at once, quickly; new ones whose names are in `used` have
        messages, and continue their lives.
        """
        new = {name for name in configs if name not in self._table}
        if self._messages is not None:
            self._beginnings.update(dict.fromkeys(new - used, self._messages.log_end()))
        self._table.update(configs)
        self.changes.put_all(configs)
        self._next_version(len(configs))
        self._file.changed()
        if new:
            self._unsaved |= new
            self._file.when_saved(partial(self._saved, new))

    def renew(self) -> None:
        """Give the table a new version although no topic changed, so that name servers accept the
        next registration as new.
        """
        self._next_version()
        self._file.changed()

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """Mark the existing ones of these topics as ordered, as a name server said."""
        changed = [
            found
            for topic in topics
            if (found := self._table.get(topic)) is not None and not found.order
        ]
        for config in changed:
            log.info("topic_ordered topic=%s", config.name)
            self._table[config.name] = config._replace(order=True)
            self.changes.put(config.name)
        if changed:
            self._next_version()
            self._file.changed()

    def delete(self, topic: str) -> bool:
        """Delete a topic; return whether it existed."""
        if not topic or topic.isspace():
            raise RefusedError(
                Refusal.INVALID_PARAMETER,
                "The specified topic is blank. Name the topic to delete",
            )
        self._check_not_system(topic)
        config = self._table.pop(topic, None)
        if config is None:
            log.warning("topic_not_deleted topic=%s reason=unknown", topic)
            return False
        log.info("topic_deleted config=%s", config)
        self.changes.remove(topic)
        if self._messages is not None:
            self._end(topic, self._messages.log_end())
        self._next_version()
        self._file.changed()
        self._changed([topic])
        return True

    def take_over(
        self,
        rows: Sequence[TopicRow],
        removed: Iterable[str],
        *,
        version: DataVersion,
        log_end: int,
    ) -> None:
        """Apply a master's changes at once, with its version. The lives of removed topics end at
        `log_end`; system topics stay, since this broker needs them itself.
        """
        configs = {row.config.name: row.config for row in rows}
        gone = [name for name in removed if name in self._table and not self.is_system(name)]
        new = configs.keys() - self._table.keys()
        changed = [name for name, config in configs.items() if config != self._table.get(name)]
        for config, begin in rows:
            self._beginnings.pop(config.name, None)
            if begin:
                self._beginnings[config.name] = begin
        self._table.update(configs)
        for name in gone:
            del self._table[name]
            self._end(name, log_end)
        self.changes.take_over(configs, gone)
        self._version = replace(version)  # a new object: the fast path looks at its identity
        self._file.changed()
        if new:
            self._unsaved |= new
            self._file.when_saved(partial(self._saved, new))
        if changed or gone:
            log.info(
                "topics_taken_over changed=%d removed=%d version=%d",
                len(changed),
                len(gone),
                version.counter,
            )
            self._changed([*changed, *gone])

    def encode(self) -> bytes:
        """Return the current content of the file."""
        return self._snapshot()()

    def _template(self, default_topic: str) -> TopicConfig | None:
        """Return the topic from which new ones are created, if it may be inherited."""
        template = self._table.get(default_topic)
        if (
            template is not None
            and default_topic == AUTO_CREATE_TOPIC
            and not self.rules.auto_create
            and template.perm != READ_WRITE  # an earlier run may have left it inheritable
        ):
            template = self._table[default_topic] = template._replace(perm=READ_WRITE)
            self.changes.put(default_topic)
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
            self.changes.put(config.name)
            self._next_version()
        self._file.changed()
        if new:
            self._unsaved |= new
            self._file.when_saved(partial(self._saved, new))

    def _begin(self, topic: str) -> None:
        """Begin the life of a topic here, unless it has messages: then its life continues, and it
        was only missing in the table.
        """
        if self._messages is not None and not self._messages.has_messages(topic):
            self._beginnings[topic] = self._messages.log_end()

    def _end(self, topic: str, log_end: int) -> None:
        """Remember where the life of a topic ended: earlier records that are not dispatched yet
        must not enter its queues.
        """
        self._ended.pop(topic, None)  # moves it to the end of the list
        self._ended[topic] = None
        if len(self._ended) > _ENDED_TOPICS_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            if oldest not in self._table:
                self._beginnings.pop(oldest, None)
        self._beginnings[topic] = log_end

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
            raise RefusedError(
                Refusal.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic. Choose another name: the broker"
                " needs this one itself",
            )

    def _snapshot(self) -> Encoder:
        return partial(_encoded, dict(self._table), self._version, dict(self._beginnings))


def _encoded(
    topics: Mapping[str, TopicConfig], version: DataVersion, beginnings: Mapping[str, int]
) -> bytes:
    """Return the content of the file, without ended lives; runs in the worker, as it takes long."""
    return encode_topic_file(
        topics, version, {name: begin for name, begin in beginnings.items() if name in topics}
    )


def own_topics(rules: TopicRules) -> dict[str, TopicConfig]:
    """Return the topics that a broker always has, whether or not its file lists them."""
    inherited = PERM_INHERIT | READ_WRITE
    single = [
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    ]
    single.append(rules.cluster_name + REPLY_SUFFIX)
    if rules.trace_topic_enable:
        single.append(rules.trace_topic_name)
    if rules.timer_wheel_enable:
        single.append(TIMER_TOPIC)
    own = [
        *(TopicConfig(name, 1, 1) for name in single),
        TopicConfig(BENCHMARK_TOPIC, _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
        TopicConfig(
            rules.cluster_name, perm=inherited if rules.cluster_topic_enable else PERM_INHERIT
        ),
        TopicConfig(
            rules.broker_name, 1, 1, inherited if rules.broker_topic_enable else PERM_INHERIT
        ),
        TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_LEVELS, _SCHEDULE_LEVELS),
        TopicConfig(
            REVIVE_PREFIX + rules.cluster_name, rules.revive_queue_count, rules.revive_queue_count
        ),
        TopicConfig(SYNC_MEMBERS_PREFIX + rules.broker_name, 1, 1, PERM_INHERIT),
    ]
    if rules.auto_create:
        own.append(
            TopicConfig(
                AUTO_CREATE_TOPIC, rules.default_queue_count, rules.default_queue_count, inherited
            )
        )
    return {topic.name: topic for topic in own}
