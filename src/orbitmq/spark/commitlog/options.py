"""The options of the `rocketmq-commitlog` source as typed values. Pure: touches no file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.common.topic_names import BENCHMARK_TOPIC, SYSTEM_PREFIX, SYSTEM_TOPICS
from orbitmq.spark.option_reader import OptionReader

COMMIT_LOG_OPTIONS: Final = (
    "config",
    "brokerName",
    "topics",
    "topicPattern",
    "startTimestamp",
    "endTimestamp",
    "includeSystemTopics",
    "onDamage",
    "damageReport",
    "checkBody",
    "maxPartitionBytes",
)
PART_SIZE_MAX: Final = 128 << 20
_FOREVER_MS: Final = 1 << 62
_SEPARATOR: Final = ","
_LOCAL: Final = re.compile(r"file:(//)?(?=/)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """The topics to read: named ones, those that match a pattern, or all; system topics only on
    request.
    """

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    with_system: bool = False

    def __contains__(self, topic: str) -> bool:
        if self.names:
            return topic in self.names
        if self.pattern is not None and not self.pattern.fullmatch(topic):
            return False
        is_system = (topic in SYSTEM_TOPICS and topic != BENCHMARK_TOPIC) or topic.startswith(
            SYSTEM_PREFIX
        )
        return self.with_system or not is_system


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    """The options of one read. Times are store times, in [begin_ms, end_ms)."""

    paths: tuple[str, ...]
    config: str | None = None
    broker_names: tuple[str, ...] = ()
    topics: TopicFilter = TopicFilter()
    begin_ms: int = 0
    end_ms: int = _FOREVER_MS
    skips_damage: bool = False
    damage_report: str | None = None
    check_body: bool = True
    part_size_max: int = PART_SIZE_MAX

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CommitLogOptions:
        """Parse and check the options of a read."""
        reader = OptionReader(options)
        reader.check_names(COMMIT_LOG_OPTIONS)
        begin_ms = reader.time_ms("startTimestamp") if reader.has("startTimestamp") else 0
        end_ms = reader.time_ms("endTimestamp") if reader.has("endTimestamp") else _FOREVER_MS
        if begin_ms >= end_ms:
            raise reader.invalid(
                "endTimestamp", f"must be after startTimestamp, which is {begin_ms}"
            )
        skips_damage = _on_damage(reader) == "skip"
        report = reader.text("damageReport") or None
        if report and not skips_damage:
            raise reader.invalid(
                "damageReport", "needs onDamage=skip: otherwise damage ends the read"
            )
        return cls(
            paths=_paths(reader),
            config=reader.text("config") or None,
            broker_names=_list(reader, "brokerName"),
            topics=_topics(reader),
            begin_ms=begin_ms,
            end_ms=end_ms,
            skips_damage=skips_damage,
            damage_report=report,
            check_body=reader.flag("checkBody", True),
            part_size_max=reader.number("maxPartitionBytes", 1) or PART_SIZE_MAX,
        )


def _paths(reader: OptionReader) -> tuple[str, ...]:
    """Return the paths given to `load`: one, several separated by commas, or a list."""
    found = _list(reader, "path")
    if reader.has("paths"):
        found += tuple(json.loads(reader.text("paths")))
    if not found and not reader.has("config"):
        raise ConfigurationError(
            "no store is given: pass load() the directory that contains commitlog/ (the broker's"
            " storePathRootDir), or several of them"
        )
    return tuple(_LOCAL.sub("", path) for path in found)


def _topics(reader: OptionReader) -> TopicFilter:
    reader.only_one(("topics", "topicPattern"))
    with_system = reader.flag("includeSystemTopics", False)
    if not reader.has("topicPattern"):
        return TopicFilter(names=frozenset(_list(reader, "topics")), with_system=with_system)
    try:
        return TopicFilter(pattern=re.compile(reader.text("topicPattern")), with_system=with_system)
    except re.error as problem:
        raise reader.invalid("topicPattern", f"is not a regular expression: {problem}") from problem


def _on_damage(reader: OptionReader) -> str:
    text = reader.text("onDamage", "fail").lower()
    if text not in ("fail", "skip"):
        raise reader.invalid("onDamage", "must be fail or skip")
    return text


def _list(reader: OptionReader, name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in reader.text(name).split(_SEPARATOR) if part.strip())
