"""The state of the name server: brokers, clusters, topics and their queues, and the rules by which
they change.

Sans-IO: time comes in as `now_ms`, connections are opaque keys, and notifications are return
values. Knows nothing of requests, JSON or sockets. State lives in `Brokers` and `TopicQueues`; this
module holds the rules, which are Apache's except where those would leave entries that nothing
removes:

- a refused registration changes nothing;
- a closed connection removes every broker that registered on it;
- queue mappings of a static topic leave with the topic.

Changes that grow with a broker's topics run in slices. Changes of one broker are serialized
(`BrokerTurns`); a renewal does not wait. What readers see between two slices, each topic's route
being consistent in itself:

- of a broker that registers: its address and liveness at once, its topics one after the other;
  those not reached yet have their previous queues. Its data version counts as unknown until all are
  applied. A registration that has begun runs to its end, and if its connection closes meanwhile the
  broker leaves after that: otherwise a part of its topics would stay with its slaves;
- of a broker that leaves: its address, liveness and routes go at once; names of topics that only it
  had leave the lists one after the other;
- of one that gets or loses write permission: its topics one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import SLICE_UNITS, Slices, slices_of, sorted_in_slices
from orbitmq.nameserver.broker_turns import BrokerTurns
from orbitmq.nameserver.brokers import (
    BrokerAddress,
    Brokers,
    Departure,
    LiveBroker,
    MinBrokerIdChange,
    Registered,
    RegisteredBroker,
)
from orbitmq.nameserver.topic_queues import TOPICS_PER_SLICE, TopicQueues
from orbitmq.protocol.bodies.nameserver import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    TOPIC_UNIT,
    TOPIC_UNIT_SUB,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import ResponseCode

__all__ = ["Departure", "MinBrokerIdChange", "Registered", "Registration", "RouteTable"]

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_MS: Final = 120_000  # for brokers without their own
_ADDED_PER_SLICE: Final = 10_000  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One REGISTER_BROKER. `enable_acting_master` None marks a broker before 5.0.

    `fingerprint` identifies the whole request; None if repeating it could still change something.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_address: str
    connection: Hashable
    data_version: DataVersion
    content: RegisterBrokerBody
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    heartbeat_timeout_ms: int | None = None
    delete_missing_topics: bool = False
    fingerprint: Hashable = None


class RouteTable:
    """The tables of a name server."""

    def __init__(self) -> None:
        self._brokers = Brokers()
        self._topics = TopicQueues()
        self._turns = BrokerTurns()

    # --- registration

    def renew(
        self, cluster: str, address: str, fingerprint: Hashable, connection: Hashable, now_ms: int
    ) -> Registered | None:
        """Renew an unchanged registration without decoding it; return None if it must be
        decoded.
        """
        key = BrokerAddress(cluster, address)
        live = self._brokers.live(key)
        if (
            live is None
            or live.renewal is None
            or live.renewal[0] != fingerprint
            or len(live.names) != 1
        ):
            return None
        (name,) = live.names
        broker = self._brokers.get(name)
        if broker is None or live.renewal != self._renewal(fingerprint, broker):
            return None
        self._brokers.refresh(key, connection, now_ms)
        return self._master_of(broker, cluster, address)

    def register(
        self, registration: Registration, now_ms: int, is_open: Callable[[], bool]
    ) -> Slices[Registered]:
        """Register a broker's address and, from a master or from the first slave without one, its
        topics.

        Does nothing if the connection has closed before it can begin. A registration that has begun
        must run to its end: `connection_closed` waits for it.
        """
        names = (registration.broker_name,)
        yield from self._turns.wait(names)
        if not is_open():
            return Registered()
        with self._turns.hold(names):
            return (yield from self._register(registration, now_ms))

    def _register(self, registration: Registration, now_ms: int) -> Slices[Registered]:
        name, broker_id, address = (
            registration.broker_name,
            registration.broker_id,
            registration.address,
        )
        known = self._brokers.get(name)
        if len(registration.content.topics) == 1 and (
            known is None or broker_id not in known.addresses
        ):
            # A single topic extends a registration; as the first one it would pass for all that the
            # broker has.
            log.warning(
                "registration_refused broker=%s id=%d address=%s reason='single topic before all'",
                name,
                broker_id,
                address,
            )
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "register broker failed")

        broker = self._brokers.add(registration.cluster, name)
        before = broker.data()
        lowest_before = broker.lowest_id
        broker.enable_acting_master = registration.enable_acting_master is True
        broker.zone_name = registration.zone_name
        for other_id in [
            other for other, at in broker.addresses.items() if at == address and other != broker_id
        ]:
            del broker.addresses[other_id]  # the same process in another role
        key = BrokerAddress(registration.cluster, address)
        if self._is_fenced(broker, registration):
            log.warning(
                "registration_ignored broker=%s id=%d address=%s reason='earlier state'",
                name,
                broker_id,
                address,
            )
            self._forget_live(key, name)
            self._note_change(broker, before)
            return Registered()

        is_first = broker_id not in broker.addresses
        if broker.addresses.get(broker_id) != address:
            log.info(
                "broker_registered cluster=%s broker=%s id=%d address=%s",
                registration.cluster,
                name,
                broker_id,
                address,
            )
        broker.addresses[broker_id] = address
        self._note_change(broker, before)
        change = None
        if lowest_before is not None and broker_id < lowest_before:
            change = _min_id_change(broker, ha_address=registration.ha_server_address)
        live = self._brokers.live(key)
        is_news = (
            is_first
            or live is None
            or name in live.applying
            or live.data_version != registration.data_version
        )
        self._set_live(broker, key, registration, now_ms)
        revision = broker.revision
        is_undisturbed = True
        speaks_for_master = (
            registration.enable_acting_master is not None and broker_id == broker.lowest_id
        )
        if broker_id == MASTER_ID or speaks_for_master:
            is_undisturbed = yield from self._apply_topics(broker, registration, is_news=is_news)
        self._set_applied(
            broker,
            key,
            registration.fingerprint if is_undisturbed and broker.revision == revision else None,
        )
        return self._master_of(broker, registration.cluster, address)._replace(change=change)

    def _is_fenced(self, broker: RegisteredBroker, registration: Registration) -> bool:
        """Whether a live broker with the same id and another address has a later state than the
        newcomer.
        """
        holder = broker.addresses.get(registration.broker_id, registration.address)
        if holder == registration.address:
            return False
        live = self._brokers.live(BrokerAddress(registration.cluster, holder))
        return (
            live is not None
            and live.data_version.state_version > registration.data_version.state_version
        )

    def _apply_topics(
        self, broker: RegisteredBroker, registration: Registration, *, is_news: bool
    ) -> Slices[bool]:
        """Apply the topics, in slices. Returns False if another change of the broker's topics
        interfered.
        """
        content, name = registration.content, broker.name
        is_read_only = registration.broker_id != MASTER_ID and broker.enable_acting_master
        mask = ~PERM_WRITE if is_read_only else ~0
        is_undisturbed = True

        def missing(topics: list[str]) -> None:
            for topic in topics:
                if topic not in content.topics:
                    self._topics.discard(topic, name)

        def present(topics: list[TopicConfig]) -> None:
            known = self._topics.topics_of(name)
            for topic in topics:
                if is_news or topic.name not in known:
                    queues = QueueData(
                        name,
                        topic.read_queue_nums,
                        topic.write_queue_nums,
                        topic.perm & mask,
                        topic.sys_flag,
                    )
                    self._topics.put(topic.name, queues)

        def mappings(some: list[tuple[str, TopicQueueMappingInfo]]) -> None:
            for topic, mapping in some:
                self._topics.put_mapping(topic, mapping)

        steps: list[tuple[Callable[[list[Any]], None], Collection[Any]]] = [
            (present, content.topics.values())
        ]
        if registration.delete_missing_topics and not content.queue_mappings:
            steps.insert(0, (missing, list(self._topics.topics_of(name))))
        if is_news:
            steps.append((mappings, content.queue_mappings.items()))
        for step, items in steps:
            for part in slices_of(items, TOPICS_PER_SLICE):
                step(part)
                if len(part) == TOPICS_PER_SLICE:
                    edition = self._topics.edition_of(name)
                    yield
                    is_undisturbed = is_undisturbed and edition == self._topics.edition_of(name)
        return is_undisturbed

    def _set_live(
        self, broker: RegisteredBroker, key: BrokerAddress, registration: Registration, now_ms: int
    ) -> None:
        """Mark the broker as alive, on the connection that ends it, before its topics are
        applied.
        """
        previous = self._brokers.live(key)
        timeout_ms = registration.heartbeat_timeout_ms
        mine = frozenset({broker.name})
        self._brokers.set_live(
            key,
            LiveBroker(
                last_update_ms=now_ms,
                timeout_ms=HEARTBEAT_TIMEOUT_MS if timeout_ms is None else timeout_ms,
                data_version=registration.data_version,
                connection=registration.connection,
                ha_server_address=registration.ha_server_address,
                names=mine if previous is None else previous.names | mine,
                renewal=None,
                applying=mine if previous is None else previous.applying | mine,
            ),
        )
        filter_servers = registration.content.filter_servers
        if filter_servers is not None:
            self._set_filter_servers(key, filter_servers)

    def _set_applied(
        self, broker: RegisteredBroker, key: BrokerAddress, fingerprint: Hashable
    ) -> None:
        """Mark the registration as complete; the same request renews it if it has a fingerprint."""
        live = self._brokers.live(key)
        if live is not None:
            live.applying -= {broker.name}
            live.renewal = None if fingerprint is None else self._renewal(fingerprint, broker)

    def _forget_live(self, key: BrokerAddress, name: str) -> None:
        self._brokers.forget_live(key, name)
        if self._brokers.live(key) is None:
            self._set_filter_servers(key, [])

    def _set_filter_servers(self, key: BrokerAddress, servers: list[str]) -> None:
        if self._brokers.set_filter_servers(key, servers):
            for broker in self._brokers:
                if broker.cluster == key.cluster and key.address in broker.addresses.values():
                    self._brokers.touch(broker)
                    self._topics.mark_changed(broker.name)

    def _renewal(
        self, fingerprint: Hashable, broker: RegisteredBroker
    ) -> tuple[Hashable, int, int]:
        return fingerprint, broker.revision, self._topics.edition_of(broker.name)

    def _master_of(self, broker: RegisteredBroker, cluster: str, address: str) -> Registered:
        """Return the master of a slave at `address`, if it is alive."""
        master = broker.addresses.get(MASTER_ID, address)
        live = None if master == address else self._brokers.live(BrokerAddress(cluster, master))
        return Registered() if live is None else Registered(master, live.ha_server_address)

    def _note_change(self, broker: RegisteredBroker, before: BrokerData) -> None:
        if broker.data() != before:
            self._brokers.touch(broker)
            self._topics.mark_changed(broker.name)

    def heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        """Note that the broker at the address is alive, if it is known."""
        live = self._brokers.live(BrokerAddress(cluster, address))
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version of the broker's topics at the address; None if unknown."""
        live = self._brokers.live(BrokerAddress(cluster, address))
        return None if live is None or live.applying else live.data_version

    # --- departure

    def unregister(self, departures: Sequence[Departure]) -> Slices[list[MinBrokerIdChange]]:
        """Remove brokers, all at once; a broker without any address leaves with its queues."""
        return self._leave(lambda: departures)

    def connection_closed(self, connection: Hashable) -> Slices[list[MinBrokerIdChange]]:
        """Remove the brokers that registered on the connection."""
        return self._leave(lambda: self._departures(self._brokers.on_connection(connection)))

    def expire(
        self, now_ms: int, silenced: Callable[[Hashable], object]
    ) -> Slices[list[MinBrokerIdChange]]:
        """Remove the brokers that were silent for too long; `silenced` gets their connections, to
        be closed.
        """
        connections: list[Hashable] = []

        def find() -> list[Departure]:
            nonlocal connections
            silent = self._brokers.silent(now_ms)
            connections = list(
                dict.fromkeys(
                    live.connection
                    for key in silent
                    if (live := self._brokers.live(key)) is not None
                )
            )
            return self._departures(silent)

        def taken() -> None:
            for connection in connections:
                silenced(connection)

        return self._leave(find, taken)

    def _leave(
        self, find: Callable[[], Sequence[Departure]], taken: Callable[[], object] = lambda: None
    ) -> Slices[list[MinBrokerIdChange]]:
        """Remove the brokers that `find` returns once no change of them is in progress; call
        `taken` before their topics are removed.
        """
        departures = yield from self._turns.wait_for(find, _names)
        with self._turns.hold(_names(departures)):
            gone, without_master, changes = self._take_addresses(departures)
            taken()
            for name in gone:
                yield from self._topics.discard_broker(name)
            for name in without_master:
                yield from self._topics.change_perm(name, _without_write)
        return changes

    def _take_addresses(
        self, departures: Sequence[Departure]
    ) -> tuple[list[str], list[str], list[MinBrokerIdChange]]:
        """Remove addresses and liveness; return the names without an address, those without a
        master, and the notifications.
        """
        reduced: dict[str, None] = {}
        gone: list[str] = []
        offline_lowest: dict[str, str] = {}
        for cluster, name, address in departures:
            self._forget_live(BrokerAddress(cluster, address), name)
            broker = self._brokers.get(name)
            if broker is None:
                continue
            lowest = broker.lowest_id
            log.info("broker_unregistered cluster=%s broker=%s address=%s", cluster, name, address)
            broker.addresses = {
                broker_id: at for broker_id, at in broker.addresses.items() if at != address
            }
            if not broker.addresses:
                self._brokers.remove(broker)
                self._topics.mark_changed(name)
                gone.append(name)
                continue
            reduced[name] = None
            if broker.lowest_id != lowest:
                offline_lowest[name] = address
        without_master = []
        changes = []
        for name in reduced:
            broker = self._brokers.get(name)
            if broker is None:
                continue
            self._brokers.touch(broker)
            self._topics.mark_changed(name)
            if broker.enable_acting_master and not broker.has_master:
                without_master.append(name)
            if name in offline_lowest:
                changes.append(_min_id_change(broker, offline_address=offline_lowest[name]))
        return gone, without_master, changes

    def _departures(self, keys: Collection[BrokerAddress]) -> list[Departure]:
        return [
            Departure(key.cluster, name, key.address)
            for key in keys
            if (live := self._brokers.live(key)) is not None
            for name in live.names
        ]

    # --- topics change

    def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> None:
        """Add queues to a topic, up to the first on an unknown broker; a new topic needs all of
        them known.
        """
        known = [
            queues for queues in queue_datas if self._brokers.get(queues.broker_name) is not None
        ]
        if len(known) < len(queue_datas):
            first_unknown = next(
                at
                for at, queues in enumerate(queue_datas)
                if self._brokers.get(queues.broker_name) is None
            )
            known = list(queue_datas[:first_unknown]) if self._topics.queues(topic) else []
        for queues in known:
            self._topics.put(topic, queues)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, or only its queues on the brokers of a cluster."""
        log.info("topic_deleted topic=%s cluster=%s", topic, cluster or "all")
        if not cluster:
            self._topics.discard_topic(topic)
            return
        for name in self._brokers.names_in(cluster):
            self._topics.discard(topic, name)

    def wipe_write_perm(self, broker_name: str) -> Slices[int]:
        """Remove the write permission from all queues of the broker; return the number of its
        topics.
        """
        return self._change_perm(broker_name, _without_write)

    def add_write_perm(self, broker_name: str) -> Slices[int]:
        """Make all queues of the broker readable and writable; return the number of its topics."""
        return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> Slices[int]:
        yield from self._turns.wait((broker_name,))
        with self._turns.hold((broker_name,)):
            return (yield from self._topics.change_perm(broker_name, change))

    # --- queries

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of the topic; None if no known broker has queues of it."""
        queues = self._topics.queues(topic)
        # A leaving broker may still have queues.
        brokers = [broker for name in queues if (broker := self._brokers.get(name)) is not None]
        if not brokers:
            return None
        filter_servers = {
            address: servers
            for broker in brokers
            for address in broker.addresses.values()
            if (servers := self._brokers.filter_servers(BrokerAddress(broker.cluster, address)))
            is not None
        }
        mappings = self._topics.mappings(topic)
        return TopicRouteData(
            broker_datas=[broker.data() for broker in brokers],
            queue_datas=[queues[broker.name] for broker in brokers],
            filter_server_table=filter_servers,
            topic_queue_mapping_by_broker=None if mappings is None else dict(mappings),
        )

    def shape(self, topic: str) -> Hashable:
        """Return a key of the topic's route: topics of equal shape have equal routes, now and
        later. None if there is no route.
        """
        queues = self._topics.queues(topic)
        revisions = tuple(
            broker.revision for name in queues if (broker := self._brokers.get(name)) is not None
        )
        if not revisions:
            return None
        if self._topics.mappings(topic) is not None:
            return object()  # a static topic's route is unique
        return tuple(queues.values()), revisions

    def take_changed_topics(self) -> Set[str]:
        """Return the topics whose routes changed since the last call; for the cache of encoded
        routes.
        """
        return self._topics.take_changed()

    def cluster_info(self) -> Slices[ClusterInfo]:
        """Return every broker and cluster."""
        brokers: dict[str, BrokerData] = {}
        for part in slices_of(list(self._brokers)):
            brokers |= {broker.name: broker.data() for broker in part}
            if len(part) == SLICE_UNITS:
                yield
        return ClusterInfo(
            brokers, {cluster: list(names) for cluster, names in self._brokers.clusters.items()}
        )

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Return the addresses of a broker; none if it is unknown."""
        broker = self._brokers.get(broker_name)
        return BrokerMemberGroup(
            cluster, broker_name, {} if broker is None else broker.data().broker_addrs
        )

    def topics(self) -> TopicList:
        """Return all topics."""
        return TopicList(list(self._topics.topics))

    def topics_of_cluster(self, cluster: str) -> Slices[TopicList]:
        """Return the topics that have queues on a broker of the cluster, sorted."""
        topics: set[str] = set()
        added = 0
        for name in list(self._brokers.names_in(cluster)):
            of_broker = self._topics.topics_of(name)
            topics |= of_broker
            added += len(of_broker)
            if added > _ADDED_PER_SLICE:
                added = 0
                yield
        return TopicList((yield from sorted_in_slices(topics)))

    def system_topics(self) -> TopicList:
        """Return the topics that brokers create for themselves, one per cluster and one per broker;
        and the address of some broker.
        """
        names = dict.fromkeys(
            name
            for cluster, members in self._brokers.clusters.items()
            for name in (cluster, *members)
        )
        return TopicList(
            list(names),
            next(
                (at for broker in self._brokers for at in broker.data().broker_addrs.values()), None
            ),
        )

    def unit_topics(self) -> Slices[TopicList]:
        """Return the topics with the unit flag."""
        return self._topics_by_flag(lambda flag: flag & TOPIC_UNIT != 0)

    def unit_sub_topics(self) -> Slices[TopicList]:
        """Return the topics with unit subscriptions."""
        return self._topics_by_flag(lambda flag: flag & TOPIC_UNIT_SUB != 0)

    def unit_sub_not_unit_topics(self) -> Slices[TopicList]:
        """Return the topics with unit subscriptions that are not unit topics themselves."""
        return self._topics_by_flag(
            lambda flag: flag & (TOPIC_UNIT | TOPIC_UNIT_SUB) == TOPIC_UNIT_SUB
        )

    def _topics_by_flag(self, is_wanted: Callable[[int], bool]) -> Slices[TopicList]:
        wanted: list[str] = []
        for part in slices_of(list(self._topics.topics), TOPICS_PER_SLICE):
            wanted += [
                topic
                for topic in part
                if (flag := self._topics.first_flag(topic)) is not None and is_wanted(flag)
            ]
            if len(part) == TOPICS_PER_SLICE:
                yield
        return TopicList(wanted)


def _names(departures: Sequence[Departure]) -> set[str]:
    return {departure.broker_name for departure in departures}


def _without_write(perm: int) -> int:
    return perm & ~PERM_WRITE


def _min_id_change(
    broker: RegisteredBroker, *, offline_address: str | None = None, ha_address: str | None = None
) -> MinBrokerIdChange:
    """A departure notifies all members; an arrival all others, or itself if it is alone."""
    lowest = min(broker.addresses)
    members = dict(sorted(broker.addresses.items()))
    if offline_address is None and len(members) > 1:
        del members[lowest]
    return MinBrokerIdChange(
        tuple(members.values()), lowest, broker.addresses[lowest], offline_address, ha_address
    )
