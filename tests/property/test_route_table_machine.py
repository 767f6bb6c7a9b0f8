"""`RouteTable` and `RouteAnswers` against a model of plain dicts that scans everything and keeps
nothing twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import finish
from orbitmq.nameserver.route_answers import RouteAnswers
from orbitmq.nameserver.route_table import (
    Departure,
    MinBrokerIdChange,
    Registered,
    Registration,
    RouteTable,
)
from orbitmq.protocol.bodies.nameserver import (
    DataVersion,
    QueueData,
    TopicConfig,
    TopicQueueMappingInfo,
)
from orbitmq.protocol.bodies.registration import RegisterBrokerBody

TOPICS = ["T1", "T2", "T3", "T4"]
BROKERS = ["b1", "b2", "b3"]
CLUSTERS = ["c1", "c2"]
ADDRESSES = ["h:1", "h:2", "h:3", "h:4"]
CONNECTIONS = ["conn-1", "conn-2", "conn-3"]

topic_configs = st.builds(
    TopicConfig,
    name=st.sampled_from(TOPICS),
    read_queue_nums=st.integers(1, 2),
    write_queue_nums=st.just(4),
    perm=st.sampled_from([2, 4, 6]),
    filter_type=st.just("SINGLE_TAG"),
    order=st.just(False),
    attributes=st.just({}),
    sys_flag=st.integers(0, 3),
)
contents = st.builds(
    RegisterBrokerBody,
    data_version=st.builds(
        DataVersion,
        counter=st.integers(0, 1),
        timestamp=st.just(9),
        state_version=st.integers(0, 1),
    ),
    topics=st.lists(topic_configs, max_size=4).map(
        lambda configs: {config.name: config for config in configs}
    ),
    filter_servers=st.sampled_from([None, [], ["f:1"]]),
    queue_mappings=st.dictionaries(
        st.sampled_from(TOPICS),
        st.builds(
            TopicQueueMappingInfo,
            topic=st.just("T"),
            broker_name=st.sampled_from(BROKERS),
            epoch=st.integers(0, 1),
        ),
        max_size=1,
    ),
)
registrations = st.builds(
    Registration,
    cluster=st.sampled_from(CLUSTERS),
    broker_name=st.sampled_from(BROKERS),
    broker_id=st.integers(0, 2),
    address=st.sampled_from(ADDRESSES),
    ha_server_address=st.sampled_from(["ha:1", "ha:2"]),
    connection=st.sampled_from(CONNECTIONS),
    data_version=st.just(DataVersion()),
    content=contents,
    enable_acting_master=st.sampled_from([None, False, True]),
    zone_name=st.sampled_from([None, "z1"]),
    heartbeat_timeout_ms=st.sampled_from([None, 1000]),
    delete_missing_topics=st.booleans(),
)


class Model:
    """The rules once more, as slow and plain as they can be said."""

    def __init__(self) -> None:
        self.queues: dict[
            str, dict[str, list[int]]
        ] = {}  # topic -> broker -> [read, write, perm, flag]
        self.brokers: dict[str, dict[str, Any]] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[tuple[str, str], dict[str, Any]] = {}
        self.filters: dict[tuple[str, str], list[str]] = {}
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    def register(self, r: Registration, now_ms: int) -> Registered | None:
        name, at = r.broker_name, (r.cluster, r.address)
        ids = self.brokers[name]["ids"] if name in self.brokers else {}
        if len(r.content.topics) == 1 and r.broker_id not in ids:
            return None
        self.clusters.setdefault(r.cluster, set()).add(name)
        broker = self.brokers.setdefault(name, {"cluster": r.cluster, "ids": {}})
        broker["acting"] = bool(r.enable_acting_master)
        broker["zone"] = r.zone_name
        ids = broker["ids"]
        min_id_before = min(ids) if ids else 0
        for other in list(ids):
            if ids[other] == r.address and other != r.broker_id:
                del ids[other]
        if (
            r.broker_id in ids
            and ids[r.broker_id] != r.address
            and (r.cluster, ids[r.broker_id]) in self.live
        ):
            version_there = self.live[(r.cluster, ids[r.broker_id])]["version"]
            if version_there.state_version > r.data_version.state_version:
                self.leave_live(at, name)
                return Registered()
        first = r.broker_id not in ids
        ids[r.broker_id] = r.address
        prime = r.enable_acting_master is not None and r.broker_id != 0 and r.broker_id == min(ids)
        if r.broker_id == 0 or prime:
            if r.delete_missing_topics and not r.content.queue_mappings:
                for topic in list(self.queues):
                    if topic not in r.content.topics:
                        self.queues[topic].pop(name, None)
                self.drop_empty_topics()
            changed = first or at not in self.live or self.live[at]["version"] != r.data_version
            for topic, config in r.content.topics.items():
                if changed or name not in self.queues.get(topic, {}):
                    perm = config.perm & ~2 if prime and broker["acting"] else config.perm
                    self.queues.setdefault(topic, {})[name] = [
                        config.read_queue_nums,
                        config.write_queue_nums,
                        perm,
                        config.sys_flag,
                    ]
            if changed:
                for topic, mapping in r.content.queue_mappings.items():
                    if topic in self.queues:
                        self.mappings.setdefault(topic, {})[mapping.broker_name] = mapping
        names = self.live[at]["names"] | {name} if at in self.live else {name}
        self.live[at] = {
            "names": names,
            "until": now_ms + (r.heartbeat_timeout_ms or 120_000),
            "timeout": r.heartbeat_timeout_ms or 120_000,
            "version": r.data_version,
            "connection": r.connection,
            "ha": r.ha_server_address,
        }
        if r.content.filter_servers == []:
            self.filters.pop(at, None)
        elif r.content.filter_servers is not None:
            self.filters[at] = r.content.filter_servers
        master = ha = change = None
        if r.broker_id != 0 and 0 in ids and (r.cluster, ids[0]) in self.live:
            master, ha = ids[0], self.live[(r.cluster, ids[0])]["ha"]
        if r.broker_id < min_id_before:
            told = [ids[i] for i in sorted(ids) if len(ids) == 1 or i != min(ids)]
            change = MinBrokerIdChange(
                tuple(told), r.broker_id, r.address, None, r.ha_server_address
            )
        return Registered(master, ha, change)

    def leave_live(self, at: tuple[str, str], name: str) -> None:
        if at in self.live:
            self.live[at]["names"] = self.live[at]["names"] - {name}
            if not self.live[at]["names"]:
                del self.live[at]
                self.filters.pop(at, None)

    def drop_empty_topics(self) -> None:
        for topic in [topic for topic, queues in self.queues.items() if not queues]:
            del self.queues[topic]
            self.mappings.pop(topic, None)

    def unregister(self, departures: list[Departure]) -> set[MinBrokerIdChange]:
        reduced, offline = set(), {}
        for cluster, name, address in departures:
            self.leave_live((cluster, address), name)
            if name not in self.brokers:
                continue
            ids = self.brokers[name]["ids"]
            if ids[min(ids)] == address:
                offline[name] = address
            for broker_id in [broker_id for broker_id in ids if ids[broker_id] == address]:
                del ids[broker_id]
            reduced.add(name)
            if not ids:
                del self.brokers[name]
                for cluster_names in self.clusters.values():
                    cluster_names.discard(name)
                self.clusters = {key: names for key, names in self.clusters.items() if names}
                for queues in self.queues.values():
                    queues.pop(name, None)
                self.drop_empty_topics()
        changes = set()
        for name in reduced & set(self.brokers):
            ids = self.brokers[name]["ids"]
            if self.brokers[name]["acting"] and 0 not in ids:
                for queues in self.queues.values():
                    if name in queues:
                        queues[name][2] &= ~2
            if name in offline:
                changes.add(
                    MinBrokerIdChange(
                        tuple(ids[i] for i in sorted(ids)),
                        min(ids),
                        ids[min(ids)],
                        offline[name],
                        None,
                    )
                )
        return changes

    def departures(self, keys: list[tuple[str, str]]) -> list[Departure]:
        return [
            Departure(cluster, name, address)
            for cluster, address in keys
            for name in self.live[(cluster, address)]["names"]
        ]


class RouteTableMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.table = RouteTable()
        self.answers = RouteAnswers(
            self.table, kept_bytes_max=1500
        )  # a few routes: eviction is part of the game
        self.model = Model()
        self.now_ms = 1_000_000
        self.last: Registration | None = None

    def register_both(self, r: Registration) -> None:
        expected = self.model.register(r, self.now_ms)
        renewed = self.table.renew(r.cluster, r.address, r.fingerprint, r.connection, self.now_ms)
        if renewed is not None:
            assert renewed == expected
            return
        if expected is None:
            with pytest.raises(RequestRefusedError, match="register broker failed"):
                finish(self.table.register(r, self.now_ms, lambda: True))
        else:
            assert finish(self.table.register(r, self.now_ms, lambda: True)) == expected

    @rule(registration=registrations)
    def register(self, registration: Registration) -> None:
        values = {name: getattr(registration, name) for name in Registration.__slots__}
        values["data_version"] = registration.content.data_version
        values["fingerprint"] = repr(
            [values[name] for name in values if name not in ("connection", "fingerprint")]
        )
        self.last = Registration(**values)
        self.register_both(self.last)

    @precondition(lambda self: self.last is not None)
    @rule(connection=st.sampled_from(CONNECTIONS))
    def register_the_same_again(self, connection: str) -> None:
        assert self.last is not None
        values = {name: getattr(self.last, name) for name in Registration.__slots__}
        self.register_both(Registration(**{**values, "connection": connection}))

    @rule(
        cluster=st.sampled_from(CLUSTERS),
        name=st.sampled_from(BROKERS),
        address=st.sampled_from(ADDRESSES),
    )
    def unregister(self, cluster: str, name: str, address: str) -> None:
        departures = [Departure(cluster, name, address)]
        assert set(finish(self.table.unregister(departures))) == self.model.unregister(departures)

    @rule(connection=st.sampled_from(CONNECTIONS))
    def close(self, connection: str) -> None:
        keys = [key for key, live in self.model.live.items() if live["connection"] == connection]
        assert set(finish(self.table.connection_closed(connection))) == self.model.unregister(
            self.model.departures(keys)
        )

    @rule(elapsed_ms=st.sampled_from([1, 999, 1001, 121_000]))
    def expire(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        keys = [key for key, live in self.model.live.items() if live["until"] < self.now_ms]
        connections = {self.model.live[key]["connection"] for key in keys}
        silenced: list[Hashable] = []
        changes = finish(self.table.expire(self.now_ms, silenced.append))
        assert set(silenced) == connections
        assert set(changes) == self.model.unregister(self.model.departures(keys))

    @rule(cluster=st.sampled_from(CLUSTERS), address=st.sampled_from(ADDRESSES))
    def heartbeat(self, cluster: str, address: str) -> None:
        self.table.heartbeat(cluster, address, self.now_ms)
        if live := self.model.live.get((cluster, address)):
            live["until"] = self.now_ms + live["timeout"]

    @rule(name=st.sampled_from(BROKERS), add=st.booleans())
    def change_write_perm(self, name: str, add: bool) -> None:
        count = finish(self.table.add_write_perm(name) if add else self.table.wipe_write_perm(name))
        touched = [queues[name] for queues in self.model.queues.values() if name in queues]
        for queue in touched:
            queue[2] = 6 if add else queue[2] & ~2
        assert count == len(touched)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "", *CLUSTERS]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)
        if topic in self.model.queues:
            for name in (
                self.model.clusters.get(cluster, set())
                if cluster
                else list(self.model.queues[topic])
            ):
                self.model.queues[topic].pop(name, None)
            self.model.drop_empty_topics()

    @rule(
        topic=st.sampled_from(TOPICS),
        names=st.lists(st.sampled_from(BROKERS), max_size=3),
        read=st.integers(1, 3),
    )
    def register_topic(self, topic: str, names: list[str], read: int) -> None:
        self.table.register_topic(topic, [QueueData(name, read, 1, 6, 0) for name in names])
        if topic in self.model.queues or all(name in self.model.brokers for name in names):
            for name in names:
                if name not in self.model.brokers:
                    break
                self.model.queues.setdefault(topic, {})[name] = [read, 1, 6, 0]

    @invariant()
    def routes_are_equal_and_kept_answers_are_fresh(self) -> None:
        for topic in TOPICS:
            route = self.table.route(topic)
            for standard_keys in (True, False):
                body = self.answers.body(topic, standard_keys=standard_keys)
                assert body == (
                    None if route is None else route.encode(standard_keys=standard_keys)
                )
            expected = self.model.queues.get(topic)
            if expected is None:
                assert route is None
                continue
            assert route is not None
            assert {queue.broker_name: list(queue[1:]) for queue in route.queue_datas} == expected
            assert {broker.broker_name for broker in route.broker_datas} == set(expected)
            brokers = [self.model.brokers[name] for name in expected]
            assert route.filter_server_table == {
                address: self.model.filters[(broker["cluster"], address)]
                for broker in brokers
                for address in broker["ids"].values()
                if (broker["cluster"], address) in self.model.filters
            }
            assert route.topic_queue_mapping_by_broker == self.model.mappings.get(topic)

    @invariant()
    def brokers_and_lists_are_equal(self) -> None:
        info = finish(self.table.cluster_info())
        assert {
            cluster: set(names) for cluster, names in info.clusters.items()
        } == self.model.clusters
        assert {
            name: {
                "cluster": broker.cluster,
                "ids": broker.broker_addrs,
                "acting": broker.enable_acting_master,
                "zone": broker.zone_name,
            }
            for name, broker in info.brokers.items()
        } == self.model.brokers
        for name in BROKERS:
            assert (
                self.table.member_group("c", name).broker_addrs
                == self.model.brokers.get(name, {"ids": {}})["ids"]
            )
        assert set(self.table.topics().topics) == set(self.model.queues)
        for cluster in CLUSTERS:
            names = self.model.clusters.get(cluster, set())
            assert set(finish(self.table.topics_of_cluster(cluster)).topics) == {
                t for t, queues in self.model.queues.items() if names & set(queues)
            }
        assert set(self.table.system_topics().topics) == set(self.model.clusters).union(
            *self.model.clusters.values()
        )
        for cluster in CLUSTERS:
            for address in ADDRESSES:
                live = self.model.live.get((cluster, address))
                assert self.table.data_version(cluster, address) == (live and live["version"])

    @invariant()
    def every_address_is_alive_somewhere(self) -> None:
        for broker in finish(self.table.cluster_info()).brokers.values():
            for address in broker.broker_addrs.values():
                assert any(
                    self.table.data_version(cluster, address) is not None for cluster in CLUSTERS
                )


RouteTableMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestRouteTableMachine = RouteTableMachine.TestCase
