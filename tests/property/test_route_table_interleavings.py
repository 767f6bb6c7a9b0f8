"""Changes of `RouteTable` that run in slices, in every order: they end as if they had come one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count, permutations
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import Slices, finish
from orbitmq.nameserver import route_table, topic_queues
from orbitmq.nameserver.route_answers import RouteAnswers
from orbitmq.nameserver.route_table import Departure, Registration, RouteTable
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.registration import RegisterBrokerBody

TOPICS = ["T1", "T2", "T3", "T4"]
CLUSTER = "c"


class Change(NamedTuple):
    """One change of the table. A close also drops the registrations of its connection that have
    not begun.
    """

    kind: str
    broker: str = "b1"
    connection: str = "conn-1"
    topics: tuple[str, ...] = ()
    counter: int = 1
    queues: int = 4
    broker_id: int = 0
    acting: bool = False

    @property
    def address(self) -> str:
        return f"{self.broker}-{self.broker_id}:10911"

    def begin(self, table: RouteTable, is_open: Callable[[], bool]) -> Slices[Any]:
        if self.kind == "register":
            return table.register(self.registration, 0, is_open)
        if self.kind == "unregister":
            return table.unregister([Departure(CLUSTER, self.broker, self.address)])
        if self.kind == "close":
            return table.connection_closed(self.connection)
        if self.kind == "delete topic":
            return self._delete(table)
        return (
            table.wipe_write_perm(self.broker)
            if self.kind == "wipe"
            else table.add_write_perm(self.broker)
        )

    def _delete(self, table: RouteTable) -> Slices[None]:
        yield
        table.delete_topic("T2")

    @property
    def registration(self) -> Registration:
        topics = {name: TopicConfig(name, self.queues, self.queues) for name in self.topics}
        return Registration(
            cluster=CLUSTER,
            broker_name=self.broker,
            broker_id=self.broker_id,
            address=self.address,
            ha_server_address="ha",
            connection=self.connection,
            data_version=DataVersion(self.counter),
            content=RegisterBrokerBody(DataVersion(self.counter), topics),
            enable_acting_master=self.acting,
            fingerprint=self,
        )


class Run:
    """A table with changes under way, and its routes as clients would get them."""

    def __init__(self, before: list[Change]) -> None:
        self.table = RouteTable()
        self.answers = RouteAnswers(self.table)
        for change in before:
            self.all_of(change)

    def all_of(self, change: Change) -> None:
        try:
            finish(change.begin(self.table, lambda: True))
        except RequestRefusedError:
            assert change.kind == "register"

    def look(self) -> tuple[Any, ...]:
        """All that clients can see; kept routes have to be those of the table."""
        routes = {}
        for topic in TOPICS:
            route = self.table.route(topic)
            body = self.answers.body(topic, standard_keys=True)
            assert body == (None if route is None else route.encode(standard_keys=True)), (
                f"the kept route of {topic} is another"
            )
            if route is not None:
                names = {broker.broker_name for broker in route.broker_datas}
                assert {queues.broker_name for queues in route.queue_datas} == names, (
                    f"queues of a broker that is not in the route of {topic}"
                )
            routes[topic] = (
                None
                if route is None
                else (sorted(route.queue_datas), sorted(map(repr, route.broker_datas)))
            )
        info = finish(self.table.cluster_info())
        brokers = {name: dict(broker.broker_addrs) for name, broker in info.brokers.items()}
        versions = {
            (name, address): self.table.data_version(CLUSTER, address)
            for name in brokers
            for address in brokers[name].values()
        }
        return routes, sorted(self.table.topics().topics), brokers, versions


def serial_outcomes(before: list[Change], changes: list[Change]) -> Iterator[tuple[Any, ...]]:
    """What the table may look like when the changes came one after the other; a registration whose
    connection closed may never have.
    """
    closed = {change.connection for change in changes if change.kind == "close"}
    droppable = [
        at
        for at, change in enumerate(changes)
        if change.kind == "register" and change.connection in closed
    ]
    for dropped in range(1 << len(droppable)):
        left_out = {at for bit, at in enumerate(droppable) if dropped >> bit & 1}
        for order in permutations([at for at in range(len(changes)) if at not in left_out]):
            run = Run(before)
            for at in order:
                run.all_of(changes[at])
            yield run.look()


class UnderWay:
    """Changes that run in slices: which slice comes next is up to the caller."""

    def __init__(self, run: Run, changes: list[Change]) -> None:
        self._run = run
        self._waiting = list(changes)
        self._works: list[Slices[Any]] = []
        self._closed: dict[str, int] = {}  # how often each connection closed

    @property
    def choices(self) -> int:
        """How many pieces of work can run their next slice; the last of them may be a new one."""
        return len(self._works) + (1 if self._waiting else 0)

    def step(self, at: int) -> None:
        """Run one slice."""
        if at == len(self._works):
            self._works.append(self._begun(self._waiting.pop(0)))
        try:
            next(self._works[at])
        except (StopIteration, RequestRefusedError):
            self._works.pop(at)
        self._run.look()

    def _begun(self, change: Change) -> Slices[Any]:
        name = change.connection
        count = self._closed.get(name, 0)
        if change.kind == "close":
            self._closed[name] = count + 1
        return change.begin(self._run.table, lambda: self._closed.get(name, 0) == count)


changes = st.builds(
    Change,
    kind=st.sampled_from(
        ["register", "register", "register", "unregister", "close", "wipe", "add", "delete topic"]
    ),
    broker=st.sampled_from(["b1", "b1", "b2"]),
    connection=st.sampled_from(["conn-1", "conn-2"]),
    topics=st.lists(st.sampled_from(TOPICS), min_size=2, max_size=4, unique=True).map(tuple),
    counter=st.integers(1, 2),
    queues=st.sampled_from([4, 8]),
    broker_id=st.sampled_from([0, 0, 1]),
    acting=st.booleans(),
)
whole = Change("register", topics=("T1", "T2", "T3", "T4"))


@given(
    st.lists(changes, max_size=2),
    st.lists(changes, min_size=2, max_size=4),
    st.lists(st.integers(0, 4), max_size=20),
)
@example(
    [
        Change("register", connection="conn-2", topics=("T1", "T2"), broker_id=1),
        Change("register", topics=("T1", "T2"), acting=True),
    ],
    [Change("register", topics=("T1", "T2", "T3")), Change("close")],
    [0, 0, 1],
)
@settings(max_examples=300)
def test_changes_in_slices_end_as_if_they_had_come_one_after_the_other(
    before: list[Change], under_way: list[Change], order: list[int]
) -> None:
    with (
        patch.object(route_table, "TOPICS_PER_SLICE", 1),
        patch.object(topic_queues, "TOPICS_PER_SLICE", 1),
    ):
        run = Run(before)
        outcomes = list(serial_outcomes(before, under_way))
        works = UnderWay(run, under_way)
        for number in chain(order, count()):  # in turn, when the order says no more
            if not works.choices:
                break
            works.step(number % works.choices)
        assert run.look() in outcomes


@pytest.mark.parametrize("acting", [False, True])
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_a_master_that_is_gone_before_it_has_registered_leaves_its_slave_no_part_of_its_topics(
    slices: int, acting: bool
) -> None:
    before = [
        Change("register", connection="conn-2", topics=("T1", "T2"), broker_id=1),
        Change("register", topics=("T1", "T2"), acting=not acting),
    ]
    under_way = [
        Change("register", topics=("T1", "T2", "T3", "T4"), counter=2, acting=acting),
        Change("close"),
    ]
    with patch.object(route_table, "TOPICS_PER_SLICE", 1):
        run = Run(before)
        works = UnderWay(run, under_way)
        for _ in range(slices):
            works.step(0)
        for number in count():
            if not works.choices:
                break
            works.step(number % works.choices)
        assert run.look() in list(serial_outcomes(before, under_way))


@given(st.integers(1, 6))
@example(1)
def test_a_registration_that_is_dropped_half_way_never_passes_for_a_whole_one(slices: int) -> None:
    with patch.object(route_table, "TOPICS_PER_SLICE", 1):
        run = Run([])
        work = whole.begin(run.table, lambda: True)
        for _ in range(min(slices, 4)):
            next(work)
        work.close()  # without the connection being closed, as when its request is given up
        assert run.table.data_version(CLUSTER, whole.address) is None
        assert run.table.renew(CLUSTER, whole.address, whole, "conn-1", 1) is None
        run.all_of(whole)
        assert sorted(run.table.topics().topics) == TOPICS
        assert run.table.renew(CLUSTER, whole.address, whole, "conn-1", 1) is not None


def test_a_topic_that_is_deleted_while_its_broker_registers_comes_back_with_the_same_registration() -> (
    None
):
    with patch.object(route_table, "TOPICS_PER_SLICE", 1):
        run = Run([])
        work = whole.begin(run.table, lambda: True)
        next(work)
        run.table.delete_topic("T1")
        finish(work)
        assert run.table.route("T1") is None
        assert run.table.renew(CLUSTER, whole.address, whole, "conn-1", 1) is None
        run.all_of(whole)
        assert run.table.route("T1") is not None
