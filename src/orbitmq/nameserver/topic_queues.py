"""Which queues each topic has on which broker, indexed both ways.

Knows nothing of addresses, liveness or the rules of registration. Both directions are kept, so that
removing a broker costs what that broker has, not what all have. Equal queue data of a broker is one
object: with 10,000 topics on each of 100 brokers that is a million references to some hundred
tuples.

Invariants, also between two slices: a topic is here while some broker has queues for it; both
directions agree; queue mappings of a static topic leave with the topic; every topic whose queues or
mappings changed since the last `take_changed` is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from itertools import count
from sys import intern
from typing import Final

from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol.bodies.nameserver import QueueData, TopicQueueMappingInfo

TOPICS_PER_SLICE: Final = 1000  # each costs a microsecond or two


class TopicQueues:
    """topic -> broker -> queues, and broker -> topics."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._topics: dict[str, _TopicsOfBroker] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._changed: set[str] = set()
        self._editions = count(1)

    @property
    def topics(self) -> Collection[str]:
        return self._queues.keys()

    def queues(self, topic: str) -> Mapping[str, QueueData]:
        """Return the topic's queues by broker; empty for an unknown topic."""
        return self._queues.get(topic, {})

    def topics_of(self, broker: str) -> Set[str]:
        """Return the topics that have queues on the broker."""
        known = self._topics.get(broker)
        return known.topics if known is not None else frozenset()

    def edition_of(self, broker: str) -> int:
        """Return a number that changes with the set of the broker's topics; 0 while it has none."""
        known = self._topics.get(broker)
        return 0 if known is None else known.edition

    def mappings(self, topic: str) -> Mapping[str, TopicQueueMappingInfo] | None:
        """Return a static topic's queue mappings by broker."""
        return self._mappings.get(topic)

    def first_flag(self, topic: str) -> int | None:
        """Return the topic's system flag from its first broker; None for an unknown topic."""
        queues = self._queues.get(topic)
        return None if queues is None else next(iter(queues.values())).topic_sys_flag

    def put(self, topic: str, queues: QueueData) -> None:
        """Set the topic's queues on the broker that `queues` names."""
        broker = queues.broker_name
        by_broker = self._queues.get(topic)
        present = None if by_broker is None else by_broker.get(broker)
        if present == queues:
            return
        known = self._topics.get(broker)
        if known is None:
            known = self._topics[broker] = _TopicsOfBroker()
        if present is None:
            topic = intern(topic)  # every registration has its own copy of the name
            known.topics.add(topic)
            known.edition = next(self._editions)
        if by_broker is None:
            by_broker = self._queues[topic] = {}
        shared = known.shared(queues)
        by_broker[shared.broker_name] = shared
        self._changed.add(topic)

    def put_mapping(self, topic: str, mapping: TopicQueueMappingInfo) -> None:
        """Set the queue mapping of a static topic on the broker that `mapping` names; a topic
        without queues has none.
        """
        if topic in self._queues:
            self._mappings.setdefault(topic, {})[mapping.broker_name] = mapping
            self._changed.add(topic)

    def discard(self, topic: str, broker: str) -> None:
        """Remove the topic's queues on the broker; the topic leaves with its last queues."""
        by_broker = self._queues.get(topic)
        if by_broker is None or by_broker.pop(broker, None) is None:
            return
        self._changed.add(topic)
        known = self._topics[broker]
        known.topics.remove(topic)
        known.edition = next(self._editions)
        if not known.topics:
            del self._topics[broker]
        if not by_broker:
            del self._queues[topic]
            self._mappings.pop(topic, None)

    def discard_topic(self, topic: str) -> None:
        """Remove the topic from every broker."""
        for broker in list(self.queues(topic)):
            self.discard(topic, broker)

    def discard_broker(self, broker: str) -> Slices[None]:
        """Remove the broker's queues of every topic, in slices."""
        for part in slices_of(list(self.topics_of(broker)), TOPICS_PER_SLICE):
            for topic in part:
                self.discard(topic, broker)
            if len(part) == TOPICS_PER_SLICE:
                yield

    def change_perm(self, broker: str, change: Callable[[int], int]) -> Slices[int]:
        """Change the permission of all queues of the broker, in slices; return the number of topics
        it had at first.
        """
        topics = list(self.topics_of(broker))
        for part in slices_of(topics, TOPICS_PER_SLICE):
            changed: dict[QueueData, QueueData] = {}
            for topic in part:
                by_broker = self._queues.get(topic)
                queues = None if by_broker is None else by_broker.get(broker)
                if by_broker is None or queues is None:
                    continue  # deleted meanwhile
                if queues not in changed:
                    changed[queues] = self._topics[broker].shared(
                        queues._replace(perm=change(queues.perm))
                    )
                by_broker[broker] = changed[queues]
                self._changed.add(topic)
            if len(part) == TOPICS_PER_SLICE:
                yield
        return len(topics)

    def mark_changed(self, broker: str) -> None:
        """Mark the routes of the broker's topics as changed, because the broker itself changed."""
        self._changed.update(self.topics_of(broker))

    def take_changed(self) -> Set[str]:
        """Return the topics whose routes changed since the last call."""
        if not self._changed:
            return frozenset()
        changed, self._changed = self._changed, set()
        return changed


class _TopicsOfBroker:
    """A broker's topics, and one shared object for equal queue data."""

    __slots__ = ("_shared", "edition", "topics")

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.edition = 0
        self._shared: dict[QueueData, QueueData] = {}

    def shared(self, queues: QueueData) -> QueueData:
        if len(self._shared) > len(self.topics):  # mostly unused shapes; sharing only saves memory
            self._shared.clear()
        return self._shared.setdefault(queues, queues)
