"""Encoded routes are kept while they are true, and no more of them than agreed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.common.slices import finish
from orbitmq.nameserver.route_answers import RouteAnswers
from orbitmq.nameserver.route_table import Departure, Registration, RouteTable
from orbitmq.nameserver.topic_queues import TopicQueues
from orbitmq.protocol.bodies.nameserver import DataVersion, QueueData, TopicConfig
from orbitmq.protocol.bodies.registration import RegisterBrokerBody


def register(
    table: RouteTable,
    name: str,
    topics: list[str],
    *,
    counter: int = 1,
    zone_name: str | None = None,
) -> None:
    content = RegisterBrokerBody(
        DataVersion(counter), {topic: TopicConfig(topic) for topic in topics}
    )
    registration = Registration(
        cluster="c",
        broker_name=name,
        broker_id=0,
        address=f"{name}:10911",
        ha_server_address="ha",
        connection=name,
        data_version=DataVersion(counter),
        content=content,
        zone_name=zone_name,
    )
    finish(table.register(registration, 0, lambda: True))


class EncodeCounter:
    """Counts how often a route is made from the table."""

    def __init__(self, table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics: list[str] = []
        original = table.route

        def counted(topic: str) -> object:
            self.topics.append(topic)
            return original(topic)

        monkeypatch.setattr(table, "route", counted)


@pytest.fixture
def table() -> RouteTable:
    table = RouteTable()
    register(table, "b1", ["T1", "T2"])
    register(table, "b2", ["T2", "T3"])
    return table


def test_a_route_is_encoded_once_per_dialect(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, answers = EncodeCounter(table, monkeypatch), RouteAnswers(table)
    for _ in range(3):
        assert b'{"0":"b1:10911"}' in (answers.body("T1", standard_keys=True) or b"")
        assert b'{0:"b1:10911"}' in (answers.body("T1", standard_keys=False) or b"")
    assert made.topics == ["T1", "T1"]


@pytest.mark.parametrize(
    ("change", "changed_topics"),
    [
        (
            lambda table: register(table, "b1", ["T1", "T2"], counter=2),
            [],
        ),  # said again, nothing new
        (lambda table: register(table, "b1", ["T1", "T2", "T4"], counter=2), []),
        (lambda table: register(table, "b1", ["T1", "T2"], zone_name="z"), ["T1", "T2"]),
        (lambda table: register(table, "b1", ["T1", "T3"], counter=2), ["T3"]),
        (lambda table: finish(table.unregister([Departure("c", "b2", "b2:10911")])), ["T2", "T3"]),
        (lambda table: finish(table.connection_closed("b1")), ["T1", "T2"]),
        (lambda table: finish(table.expire(1_000_000, lambda _: None)), ["T1", "T2", "T3"]),
        (lambda table: finish(table.wipe_write_perm("b1")), ["T1", "T2"]),
        (lambda table: table.delete_topic("T2"), ["T2"]),
        (lambda table: table.delete_topic("T2", "c"), ["T2"]),
        (lambda table: table.delete_topic("T2", "other"), []),
        (lambda table: table.register_topic("T1", [QueueData("b2", 1, 1, 6, 0)]), ["T1"]),
        (lambda table: table.heartbeat("c", "b1:10911", 5), []),
    ],
)
def test_exactly_the_routes_that_changed_are_made_again(
    table: RouteTable, change: Callable[[RouteTable], object], changed_topics: list[str]
) -> None:
    answers = RouteAnswers(table)
    before = {topic: answers.body(topic, standard_keys=True) for topic in ("T1", "T2", "T3")}
    change(table)
    after = {topic: answers.body(topic, standard_keys=True) for topic in ("T1", "T2", "T3")}
    assert [topic for topic in after if after[topic] != before[topic]] == changed_topics
    assert [topic for topic in after if after[topic] is not before[topic]] == changed_topics


def test_topics_with_the_same_queues_on_the_same_brokers_share_one_body(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(table, "b3", ["T5", "T6"])
    made, answers = EncodeCounter(table, monkeypatch), RouteAnswers(table)
    assert answers.body("T5", standard_keys=True) is answers.body("T6", standard_keys=True)
    assert made.topics == ["T5"]


def test_bodies_begin_anew_when_their_room_is_full(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = len(RouteAnswers(table).body("T1", standard_keys=True) or b"")
    answers = RouteAnswers(table, kept_bytes_max=2 * length)
    made = EncodeCounter(table, monkeypatch)
    register(table, "b3", ["T5", "T6"])
    for topic in ("T1", "T3", "T1", "T5", "T3", "T5"):
        answers.body(topic, standard_keys=True)
    assert made.topics == ["T1", "T3", "T5", "T3"]


def test_a_body_larger_than_all_room_is_answered_and_not_kept(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = RouteAnswers(table, kept_bytes_max=10)
    made = EncodeCounter(table, monkeypatch)
    for _ in range(2):
        assert len(answers.body("T1", standard_keys=True) or b"") > 10
    assert made.topics == ["T1", "T1"]


def test_equal_queues_of_a_broker_are_one_object_and_names_of_topics_too() -> None:
    queues = TopicQueues()
    for number in range(100):
        for broker in ("b1", "b2"):
            queues.put("topic " + str(number), QueueData(broker, 8, 8, 6, 0))
    assert len({id(data) for topic in queues.topics for data in queues.queues(topic).values()}) == 2
    names = {name: name for name in queues.topics_of("b1")}
    assert all(name is names[name] for name in queues.topics_of("b2"))
    queues.change_perm("b1", lambda _: 4)
    assert len({id(queues.queues(topic)["b1"]) for topic in queues.topics}) == 1
