"""The filters of consumer groups: the expression by which each group filters a topic, and
consumerFilter.json.

They arrive with heartbeats. A filter whose group left, or no longer subscribes that way, is dead
and is removed some time later: its bits in ext files of queues stay valid until then. Filters
loaded from the file are dead until their group sends a heartbeat.

A slave takes over the filters of its master, dead or alive, with the bits of its own Bloom filter.

Sans-IO except for the file, which saves itself. Thread rule: the loop thread owns it. Invariant:
each known filter has a usable expression, and its version only grows, except by a take-over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder
from orbitmq.common.change_log import ChangeLog
from orbitmq.common.clock import Clock
from orbitmq.common.errors import InvalidExpressionError
from orbitmq.common.slices import Slices, slices_of
from orbitmq.message.sql.expression import Expression, compiled, shown
from orbitmq.protocol.bodies.consumer_filters import (
    BloomPositions,
    FilterData,
    decode_filters,
    encode_filters,
)
from orbitmq.protocol.bodies.metadata_rows import GroupTopic
from orbitmq.protocol.bodies.subscriptions import SQL92, SubscriptionData, is_tag_type

LOADED_DEAD_MS: Final = 30_000  # how long loaded filters count as dead already

EXPRESSION_CHARACTERS_PER_SLICE: Final = 1_000  # characters to compile

log = logging.getLogger(__name__)


class ConsumerFilter(NamedTuple):
    """The data of a group's filter, and its compiled expression."""

    data: FilterData
    expression: Expression


def usable(expression_type: str, text: str | None) -> Expression:
    """Return the compiled expression. Raises InvalidExpressionError, which says what is wrong."""
    if expression_type != SQL92:
        raise InvalidExpressionError(
            f"expression type {expression_type} is not supported: use {SQL92}, or tags with TAG"
        )
    if not text:
        raise InvalidExpressionError(
            "the expression is empty: write one, or subscribe by tags to get all messages"
        )
    return compiled(text)


def expression_problem(expression_type: str, text: str | None) -> str | None:
    """Return what is wrong with an expression; None if it can be used."""
    try:
        usable(expression_type, text)
    except InvalidExpressionError as problem:
        return (
            f"the {expression_type} expression {None if text is None else shown(text)!r} cannot be"
            f" used: {problem}"
        )
    return None


class ConsumerFilters:
    """The filters of all groups and topics. `clean_ms` is how long a dead filter is kept."""

    def __init__(self, bloom: Bloom, file: ConfigFile, clock: Clock, clean_ms: int) -> None:
        self.bloom = bloom
        self.clean_ms = clean_ms
        self._file = file
        self._clock = clock
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # by group
        self.changes = ChangeLog[GroupTopic]()  # for slaves
        self.cost_max = 1  # the highest cost of any expression so far

    def __iter__(self) -> Iterator[ConsumerFilter]:
        return (each for groups in self._topics.values() for each in groups.values())

    def load(self) -> None:
        """Load the file; its filters are discarded if their Bloom filter differs from ours."""
        found, _ = self._file.open(decode_filters, self._snapshot)
        loaded = found or []
        if not all(self._is_ours(data.bloom) for data in loaded):
            log.warning(
                "filters_discarded count=%d why=the file was written with another Bloom filter;"
                " this one is %s",
                len(loaded),
                self.bloom,
            )
            return
        for data in loaded:
            try:
                expression = usable(data.expression_type, data.expression)
            except InvalidExpressionError as problem:
                log.warning(
                    "filter_discarded topic=%s group=%s why=%s", data.topic, data.group, problem
                )
                continue
            dead_ms = data.dead_time_ms or max(
                self._clock.now_ms() - LOADED_DEAD_MS, data.born_time_ms
            )
            self._keep(ConsumerFilter(data._replace(dead_time_ms=dead_ms), expression))
            self.changes.put((data.topic, data.group))
        log.info("filters_loaded count=%d", len(loaded))
        if not all(
            data.dead_time_ms for data in loaded
        ):  # otherwise an unused filter would be newly dead after each start
            self._file.changed()

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the present or past filter of a group for a topic."""
        return self._topics.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Iterable[ConsumerFilter]:
        """Return all filters of a topic."""
        return self._topics.get(topic, {}).values()

    def heard(self, group: str, subscriptions: Iterable[SubscriptionData]) -> Slices[None]:
        """Apply all subscriptions of a group's member: filters are added, changed or marked dead.
        In slices, since expressions take long to compile.
        """
        wanted = {each.topic: each for each in subscriptions}
        work = 0
        for subscription in wanted.values():
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
                work += len(subscription.sub_string)
                if work > EXPRESSION_CHARACTERS_PER_SLICE:
                    work = 0
                    yield
        for part in slices_of(
            [topic for topic in self._topics_of.get(group, ()) if topic not in wanted]
        ):
            for topic in part:
                self._die(topic, group)
            yield

    def left(self, group: str) -> None:
        """Mark the filters of a group dead that has no members any more."""
        for topic in self._topics_of.get(group, ()):
            self._die(topic, group)

    def clean(self) -> None:
        """Remove the filters that have been dead for long."""
        now_ms = self._clock.now_ms()
        for data in [
            each.data
            for each in self
            if each.data.is_dead and now_ms - each.data.dead_time_ms >= self.clean_ms
        ]:
            self._remove(data.topic, data.group, "it has been dead for too long")

    @property
    def keys(self) -> list[GroupTopic]:
        """The topic and group of every filter."""
        return [(topic, group) for topic, groups in self._topics.items() for group in groups]

    def take_over_in_slices(
        self, rows: Sequence[FilterData], removed: Iterable[GroupTopic]
    ) -> Slices[None]:
        """Apply a master's changes at once, after the expressions were compiled in slices."""
        usable_rows: list[ConsumerFilter] = []
        gone = dict.fromkeys(removed)
        work = 0
        for data in rows:
            key = data.topic, data.group
            try:
                expression = usable(data.expression_type, data.expression)
            except InvalidExpressionError as problem:
                log.warning("filter_not_taken_over topic=%s group=%s why=%s", *key, problem)
                gone[key] = None
                continue
            usable_rows.append(
                ConsumerFilter(data._replace(bloom=self._positions(*key)), expression)
            )
            work += len(data.expression)
            if work > EXPRESSION_CHARACTERS_PER_SLICE:
                work = 0
                yield
        known = [key for key in gone if self._drop(*key)]
        for row in usable_rows:
            self._keep(row)
        self.changes.take_over([(row.data.topic, row.data.group) for row in usable_rows], known)
        if known or usable_rows:
            log.info("filters_taken_over changed=%d removed=%d", len(usable_rows), len(known))
            self._file.changed()

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, text, version = (
            subscription.topic,
            subscription.sub_string or "",
            subscription.sub_version,
        )
        kind, known = subscription.expression_type or "", self.find(topic, group)
        if known is not None:
            data = known.data
            is_same = (data.expression_type, data.expression) == (kind, text)
            if version <= data.client_version:
                if not is_same:
                    log.info(
                        "filter_ignored topic=%s group=%s expression=%r version=%d known=%d",
                        topic,
                        group,
                        shown(text),
                        version,
                        data.client_version,
                    )
                if version == data.client_version and data.is_dead:
                    self._put(known._replace(data=data._replace(dead_time_ms=0)))
                return
            if is_same:
                self._put(
                    known._replace(
                        data=data._replace(
                            client_version=version,
                            dead_time_ms=0 if data.is_dead else data.dead_time_ms,
                        )
                    )
                )
                return
        try:
            expression = usable(kind, text)
        except InvalidExpressionError as problem:
            log.warning(
                "filter_refused topic=%s group=%s expression=%r why=%s",
                topic,
                group,
                shown(text),
                problem,
            )
            self._remove(topic, group, "its replacement cannot be used")
            return
        if expression.unread:
            unread = shown(expression.unread)
            log.warning(
                "filter_ends_early topic=%s group=%s expression=%r unread=%r",
                topic,
                group,
                shown(text),
                unread,
            )
        positions = self._positions(topic, group)
        self._put(
            ConsumerFilter(
                FilterData(topic, group, text, kind, version, self._clock.now_ms(), positions),
                expression,
            )
        )
        log.info(
            "filter_registered topic=%s group=%s expression=%r version=%d",
            topic,
            group,
            shown(text),
            version,
        )

    def _positions(self, topic: str, group: str) -> BloomPositions:
        return BloomPositions(self.bloom.bit_count, self.bloom.positions(f"{group}#{topic}"))

    def _put(self, changed: ConsumerFilter) -> None:
        self._keep(changed)
        self.changes.put((changed.data.topic, changed.data.group))
        self._file.changed()

    def _keep(self, changed: ConsumerFilter) -> None:
        data = changed.data
        self._topics.setdefault(data.topic, {})[data.group] = changed
        self._topics_of.setdefault(data.group, {})[data.topic] = None
        self.cost_max = max(self.cost_max, changed.expression.cost)

    def _die(self, topic: str, group: str) -> None:
        known = self.find(topic, group)
        if known is not None and not known.data.is_dead:
            self._put(known._replace(data=known.data._replace(dead_time_ms=self._clock.now_ms())))
            log.info("filter_dead topic=%s group=%s", topic, group)

    def _remove(self, topic: str, group: str, why: str) -> None:
        if self._drop(topic, group):
            self.changes.remove((topic, group))
            self._file.changed()
            log.info("filter_removed topic=%s group=%s why=%s", topic, group, why)

    def _drop(self, topic: str, group: str) -> bool:
        """Remove a filter from the table; return whether it was there."""
        groups = self._topics.get(topic, {})
        if groups.pop(group, None) is None:
            return False
        if not groups:
            del self._topics[topic]
        topics = self._topics_of[group]
        del topics[topic]
        if not topics:
            del self._topics_of[group]
        return True

    def _is_ours(self, positions: BloomPositions | None) -> bool:
        return positions is not None and (positions.bit_count, len(positions.positions)) == (
            self.bloom.bit_count,
            self.bloom.hash_count,
        )

    def _snapshot(self) -> Encoder:
        return partial(encode_filters, [each.data for each in self])
