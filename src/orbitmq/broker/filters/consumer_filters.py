"""The filters of consumer groups: by which expression each group chooses among the messages of a topic, and consumerFilter.json.

They come with heartbeats. A filter of a group that left, or that no longer subscribes so, is dead, and forgotten some time later: bits
that stand for it in ext files of queues are good until then. Those of the file are dead until their group is heard again.

Sans-IO but for the file, which saves itself. Thread rule: the loop thread owns it. Invariant: each filter that is known has an expression
that can be used, and its version only grows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from orbitmq.broker.config_file import ConfigFile, Encoder
from orbitmq.broker.filters.bloom import Bloom
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ExpressionIllegal
from orbitmq.common.slices import Slices, slices_of
from orbitmq.message.sql.expression import Expression, compiled, shown
from orbitmq.protocol.bodies.consumer_filters import BloomPositions, FilterData, decode_filters, encode_filters
from orbitmq.protocol.bodies.subscriptions import SQL92, SubscriptionData, is_tag_type

LOADED_DEAD_MS: Final = 30_000  # how long those that were loaded are taken to be dead already

EXPRESSION_CHARACTERS_PER_SLICE: Final = 1_000  # that are compiled

log = logging.getLogger(__name__)


class ConsumerFilter(NamedTuple):
    """What is known of a group's filter, and its expression, ready for use."""

    data: FilterData
    expression: Expression


def usable(expression_type: str, text: str | None) -> Expression:
    """The expression of a text of some type; ExpressionIllegal says what is wrong with it."""
    if expression_type != SQL92:
        raise ExpressionIllegal(f"there are no expressions of type {expression_type}: choose messages by {SQL92}, or by tags with TAG")
    if not text:
        raise ExpressionIllegal("an expression is needed, and there is none: write one, or subscribe by tags to get all messages")
    return compiled(text)


def expression_problem(expression_type: str, text: str | None) -> str | None:
    """What is wrong with an expression, None when it can be used."""
    try:
        usable(expression_type, text)
    except ExpressionIllegal as problem:
        return f"the {expression_type} expression {None if text is None else shown(text)!r} cannot be used: {problem}"
    return None


class ConsumerFilters:
    """See above. `clean_ms` is how long a dead filter is kept."""

    def __init__(self, bloom: Bloom, file: ConfigFile, clock: Clock, clean_ms: int) -> None:
        self.bloom = bloom
        self.clean_ms = clean_ms
        self._file = file
        self._clock = clock
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # by group
        self.cost_max = 1  # of the expressions that were ever known

    def __iter__(self) -> Iterator[ConsumerFilter]:
        return (each for groups in self._topics.values() for each in groups.values())

    def load(self) -> None:
        """Take over what the file says; nothing when its bits have other places than ours would have."""
        found, _ = self._file.open(decode_filters, self._snapshot)
        loaded = found or []
        if not all(self._is_ours(data.bloom) for data in loaded):
            log.warning(
                "filters_discarded count=%d why=the file is of other keys of the Bloom filter, which is %s", len(loaded), self.bloom
            )
            return
        for data in loaded:
            try:
                expression = usable(data.expression_type, data.expression)
            except ExpressionIllegal as problem:
                log.warning("filter_discarded topic=%s group=%s why=%s", data.topic, data.group, problem)
                continue
            dead_ms = data.dead_time_ms or max(self._clock.now_ms() - LOADED_DEAD_MS, data.born_time_ms)
            self._keep(ConsumerFilter(data._replace(dead_time_ms=dead_ms), expression))
        log.info("filters_loaded count=%d", len(loaded))
        if not all(data.dead_time_ms for data in loaded):  # or one that nobody wants any more would be newly dead with each start
            self._file.changed()

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """The filter that a group has, or had, for a topic."""
        return self._topics.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Iterable[ConsumerFilter]:
        """All filters of a topic."""
        return self._topics.get(topic, {}).values()

    def heard(self, group: str, subscriptions: Iterable[SubscriptionData]) -> Slices[None]:
        """Hear all that a member of a group subscribes: filters come, change and die by it. In slices: expressions are long to compile."""
        wanted = {each.topic: each for each in subscriptions}
        work = 0
        for subscription in wanted.values():
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
                work += len(subscription.sub_string)
                if work > EXPRESSION_CHARACTERS_PER_SLICE:
                    work = 0
                    yield
        for part in slices_of([topic for topic in self._topics_of.get(group, ()) if topic not in wanted]):
            for topic in part:
                self._die(topic, group)
            yield

    def left(self, group: str) -> None:
        """Hear that nobody of a group is there any more."""
        for topic in self._topics_of.get(group, ()):
            self._die(topic, group)

    def clean(self) -> None:
        """Forget the filters that are dead for long."""
        now_ms = self._clock.now_ms()
        for data in [each.data for each in self if each.data.is_dead and now_ms - each.data.dead_time_ms >= self.clean_ms]:
            self._remove(data.topic, data.group, "it is dead for long")

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, text, version = subscription.topic, subscription.sub_string or "", subscription.sub_version
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
                self._put(known._replace(data=data._replace(client_version=version, dead_time_ms=0 if data.is_dead else data.dead_time_ms)))
                return
        try:
            expression = usable(kind, text)
        except ExpressionIllegal as problem:
            log.warning("filter_refused topic=%s group=%s expression=%r why=%s", topic, group, shown(text), problem)
            self._remove(topic, group, "a newer one cannot be used")
            return
        if expression.unread:
            unread = shown(expression.unread)
            log.warning("filter_ends_early topic=%s group=%s expression=%r unread=%r", topic, group, shown(text), unread)
        positions = BloomPositions(self.bloom.bit_count, self.bloom.positions(f"{group}#{topic}"))
        self._put(ConsumerFilter(FilterData(topic, group, text, kind, version, self._clock.now_ms(), positions), expression))
        log.info("filter_registered topic=%s group=%s expression=%r version=%d", topic, group, shown(text), version)

    def _put(self, changed: ConsumerFilter) -> None:
        self._keep(changed)
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
        groups = self._topics.get(topic, {})
        if groups.pop(group, None) is None:
            return
        if not groups:
            del self._topics[topic]
        topics = self._topics_of[group]
        del topics[topic]
        if not topics:
            del self._topics_of[group]
        self._file.changed()
        log.info("filter_removed topic=%s group=%s why=%s", topic, group, why)

    def _is_ours(self, positions: BloomPositions | None) -> bool:
        return positions is not None and (positions.bit_count, len(positions.positions)) == (self.bloom.bit_count, self.bloom.hash_count)

    def _snapshot(self) -> Encoder:
        return partial(encode_filters, [each.data for each in self])
