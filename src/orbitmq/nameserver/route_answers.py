"""Routes as encoded reply bodies, the usual ones cached until the route changes.

Knows the table and the two JSON dialects, nothing of requests. The cache holds what most clients
request: the route as the table has it. Routes that depend on more (acting masters, order
configuration, zones) are encoded for each reply.

Topics with the same queues on the same brokers have the same route, and share one body: a cluster
has many topics and few shapes.

Invariants: a cached body equals a freshly encoded one; each dialect caches at most `kept_bytes_max`
of bodies, and is cleared when they do not suffice.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import replace
from typing import Final

from orbitmq.nameserver.route_table import RouteTable
from orbitmq.protocol.bodies.nameserver import MASTER_ID, PERM_WRITE, BrokerData, TopicRouteData

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
_FORGOTTEN_MAX: Final = 10_000  # topics that are invalidated one by one
_NO_ACTING_MASTER: Final = "rmq_sys_SYNC_BROKER_MEMBER_"  # for brokers, about their own group


class RouteAnswers:
    """The reply bodies of GET_ROUTEINFO_BY_TOPIC."""

    def __init__(self, table: RouteTable, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._table = table
        self._standard = _KeptBodies(kept_bytes_max)
        self._default = _KeptBodies(kept_bytes_max)

    def body(self, topic: str, *, standard_keys: bool) -> bytes | None:
        """Return the topic's encoded route, from the cache if possible; None if there is no
        route.
        """
        changed = self._table.take_changed_topics()
        if changed:
            self._standard.forget(changed)
            self._default.forget(changed)
        kept = self._standard if standard_keys else self._default
        body = kept.get(topic)
        if body is None:
            shape = self._table.shape(topic)
            if shape is None:
                return None
            body = kept.of_shape(shape)
            if body is None:
                route = self._table.route(topic)
                assert route is not None, f"topic {topic} has a shape and no route"
                body = route.encode(standard_keys=standard_keys)
            kept.keep(topic, shape, body)
        return body

    def route(
        self, topic: str, *, order_topic_conf: str | None, acting_masters: bool
    ) -> TopicRouteData | None:
        """Return the topic's route with what the table does not have, uncached."""
        route = self._table.route(topic)
        if route is None:
            return None
        if acting_masters and not topic.startswith(_NO_ACTING_MASTER):
            route = with_acting_masters(route)
        return replace(route, order_topic_conf=order_topic_conf)


def with_acting_masters(route: TopicRouteData) -> TopicRouteData:
    """Return the route with the first slave of a broker without a master as its master, if its
    queues are not writable.
    """
    read_only = {queues.broker_name for queues in route.queue_datas if not queues.perm & PERM_WRITE}
    return replace(
        route,
        broker_datas=[
            _acting(broker) if broker.broker_name in read_only else broker
            for broker in route.broker_datas
        ],
    )


def _acting(broker: BrokerData) -> BrokerData:
    if (
        not broker.enable_acting_master
        or not broker.broker_addrs
        or MASTER_ID in broker.broker_addrs
    ):
        return broker
    (_, first_slave), *others = sorted(broker.broker_addrs.items())
    return replace(broker, broker_addrs={MASTER_ID: first_slave, **dict(others)})


def within_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Return the route without the brokers of other zones; those without a master stay, so that
    their slaves can be read everywhere.
    """
    foreign = {
        broker.broker_name: broker
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs
        and (broker.zone_name or "").lower() != zone_name.lower()
    }
    foreign_addresses = {
        address for broker in foreign.values() for address in broker.broker_addrs.values()
    }
    return replace(
        route,
        broker_datas=[broker for broker in route.broker_datas if broker.broker_name not in foreign],
        queue_datas=[queues for queues in route.queue_datas if queues.broker_name not in foreign],
        filter_server_table={
            at: servers
            for at, servers in route.filter_server_table.items()
            if at not in foreign_addresses
        },
    )


class _KeptBodies:
    """A cache of bodies by topic and by shape, bounded in bytes."""

    __slots__ = ("_by_shape", "_by_topic", "_bytes", "_bytes_max", "get", "of_shape")

    def __init__(self, bytes_max: int) -> None:
        self._by_topic: dict[str, bytes] = {}
        # All cached bodies, also those of topics that have another shape by now.
        self._by_shape: dict[Hashable, bytes] = {}
        self._bytes = 0
        self._bytes_max = bytes_max
        self.get = self._by_topic.get  # one call less per request
        self.of_shape = self._by_shape.get

    def keep(self, topic: str, shape: Hashable, body: bytes) -> None:
        """Cache a body; clear the cache if it is full. A body larger than the cache is not
        cached.
        """
        if shape not in self._by_shape:
            if len(body) > self._bytes_max:
                return
            if self._bytes + len(body) > self._bytes_max:
                self._by_topic.clear()
                self._by_shape.clear()
                self._bytes = 0
            self._by_shape[shape] = body
            self._bytes += len(body)
        self._by_topic[topic] = body

    def forget(self, topics: Set[str]) -> None:
        """Invalidate these topics. Above _FORGOTTEN_MAX all topics are looked up by their shape
        again, which is faster.
        """
        if len(topics) > _FORGOTTEN_MAX:
            self._by_topic.clear()
            return
        for topic in self._by_topic.keys() & topics:
            del self._by_topic[topic]
