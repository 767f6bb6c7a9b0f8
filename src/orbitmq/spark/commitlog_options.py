"""What users say of the stores they read without a broker, and of what they want from them, as values. Pure: no file is looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.common.topic_names import BENCHMARK_TOPIC, SYSTEM_PREFIX, SYSTEM_TOPICS
from orbitmq.spark.option_texts import OptionTexts

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
class TopicChoice:
    """Which topics are wanted: those named, those that fit a pattern, or all; what brokers store for themselves only on demand."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    with_system: bool = False

    def __contains__(self, topic: str) -> bool:
        if self.names:
            return topic in self.names
        if self.pattern is not None and not self.pattern.fullmatch(topic):
            return False
        is_system = (topic in SYSTEM_TOPICS and topic != BENCHMARK_TOPIC) or topic.startswith(SYSTEM_PREFIX)
        return self.with_system or not is_system


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    """One read. Times are those at which messages were stored, in [begin_ms, end_ms)."""

    paths: tuple[str, ...]
    config: str | None = None
    broker_names: tuple[str, ...] = ()
    topics: TopicChoice = TopicChoice()
    begin_ms: int = 0
    end_ms: int = _FOREVER_MS
    skips_damage: bool = False
    damage_report: str | None = None
    check_body: bool = True
    part_size_max: int = PART_SIZE_MAX

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CommitLogOptions:
        texts = OptionTexts(options)
        texts.check_names(COMMIT_LOG_OPTIONS)
        begin_ms = texts.time_ms("startTimestamp") if texts.has("startTimestamp") else 0
        end_ms = texts.time_ms("endTimestamp") if texts.has("endTimestamp") else _FOREVER_MS
        if begin_ms >= end_ms:
            raise texts.refused("endTimestamp", f"it is behind startTimestamp, which is {begin_ms}")
        skips_damage = _on_damage(texts) == "skip"
        report = texts.text("damageReport") or None
        if report and not skips_damage:
            raise texts.refused("damageReport", "it goes with onDamage=skip: otherwise damage ends the read")
        return cls(
            paths=_paths(texts),
            config=texts.text("config") or None,
            broker_names=_list(texts, "brokerName"),
            topics=_topics(texts),
            begin_ms=begin_ms,
            end_ms=end_ms,
            skips_damage=skips_damage,
            damage_report=report,
            check_body=texts.flag("checkBody", True),
            part_size_max=texts.number("maxPartitionBytes", 1) or PART_SIZE_MAX,
        )


def _paths(texts: OptionTexts) -> tuple[str, ...]:
    """What `load` was given: one path, several with commas between, or a list."""
    found = _list(texts, "path")
    if texts.has("paths"):
        found += tuple(json.loads(texts.text("paths")))
    if not found and not texts.has("config"):
        raise ConfigurationError(
            "no store is named: give load() the directory that holds commitlog/ (storePathRootDir of the broker), or several of them"
        )
    return tuple(_LOCAL.sub("", path) for path in found)


def _topics(texts: OptionTexts) -> TopicChoice:
    texts.only_one(("topics", "topicPattern"))
    with_system = texts.flag("includeSystemTopics", False)
    if not texts.has("topicPattern"):
        return TopicChoice(names=frozenset(_list(texts, "topics")), with_system=with_system)
    try:
        return TopicChoice(pattern=re.compile(texts.text("topicPattern")), with_system=with_system)
    except re.error as problem:
        raise texts.refused("topicPattern", f"it is a regular expression, and this is none: {problem}") from problem


def _on_damage(texts: OptionTexts) -> str:
    text = texts.text("onDamage", "fail").lower()
    if text not in ("fail", "skip"):
        raise texts.refused("onDamage", "it is fail or skip")
    return text


def _list(texts: OptionTexts, name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in texts.text(name).split(_SEPARATOR) if part.strip())
