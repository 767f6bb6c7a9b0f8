"""Routes from a client's point of view, and the choice of the next queue."""

from __future__ import annotations

from orbitmq.client.producer.queue_choice import BrokerFaults, QueueChoice
from orbitmq.client.session.routes import TopicRoute, broker_addresses
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import BrokerData, QueueData, TopicRouteData


def broker(name: str, **addresses: str) -> BrokerData:
    return BrokerData(
        "C", name, {int(broker_id[1:]): address for broker_id, address in addresses.items()}
    )


def ids(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


TWO_BROKERS = TopicRouteData(
    [broker("b", _0="b:1"), broker("a", _0="a:1", _1="a:2")],
    [QueueData("b", 1, 2, 6, 0), QueueData("a", 3, 2, 6, 0)],
)


def test_queues_are_in_the_order_of_their_brokers() -> None:
    route = TopicRoute.of("T", TWO_BROKERS)
    assert ids(route.write_queues) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert ids(route.read_queues) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]


def test_messages_go_to_masters_that_may_be_written_to_and_are_read_where_that_is_allowed() -> None:
    data = TopicRouteData(
        [broker("a", _1="a:2"), broker("b", _0="b:1"), broker("c", _0="c:1")],
        [QueueData("a", 1, 1, 6, 0), QueueData("b", 1, 1, 4, 0), QueueData("c", 1, 1, 2, 0)],
    )
    route = TopicRoute.of("T", data)
    assert ids(route.write_queues) == [("c", 0)]
    assert ids(route.read_queues) == [("a", 0), ("b", 0)]
    assert (route.master("a"), route.master("b"), route.master("x")) == (None, "b:1", None)


def test_an_ordered_topic_goes_where_the_name_servers_say() -> None:
    data = TopicRouteData(
        TWO_BROKERS.broker_datas, TWO_BROKERS.queue_datas, order_topic_conf="b:2;a:1"
    )
    assert ids(TopicRoute.of("T", data).write_queues) == [("b", 0), ("b", 1), ("a", 0)]


def test_a_topic_that_does_not_exist_yet_gets_some_of_the_queues_of_its_template() -> None:
    route = TopicRoute.of("TBW102", TWO_BROKERS).as_template("New", 1)
    assert route.write_queues == (MessageQueue("New", "a", 0), MessageQueue("New", "b", 0))
    assert route.master("b") == "b:1"


def test_a_reader_takes_the_broker_that_is_suggested_or_another_one_of_it() -> None:
    route = TopicRoute.of("T", TopicRouteData([broker("a", _0="a:0", _2="a:2", _3="a:3")], []))
    assert [route.reader("a", broker_id) for broker_id in (0, 1, 2, 7)] == [
        ("a:0", 0),
        ("a:2", 2),
        ("a:2", 2),
        ("a:0", 0),
    ]
    assert route.reader("x", 0) is None


def test_heartbeats_go_to_masters_or_to_all() -> None:
    route = TopicRoute.of("T", TWO_BROKERS)
    assert broker_addresses([route, route], masters_only=True) == {"a:1": "a", "b:1": "b"}
    assert broker_addresses([route], masters_only=False) == {"a:1": "a", "a:2": "a", "b:1": "b"}


def test_queues_take_turns_and_a_broker_that_failed_is_passed_over() -> None:
    route, choice = TopicRoute.of("T", TWO_BROKERS), QueueChoice(first=3)
    chosen = [choice.choose(route, None, 0) for _ in range(5)]
    assert [(queue.broker_name, queue.queue_id) for queue in chosen if queue] == [
        ("b", 1),
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    assert {queue.broker_name for _ in range(4) if (queue := choice.choose(route, "a", 0))} == {"b"}


def test_the_only_broker_is_taken_even_if_it_failed() -> None:
    route = TopicRoute.of(
        "T", TopicRouteData([broker("a", _0="a:1")], [QueueData("a", 2, 2, 6, 0)])
    )
    assert QueueChoice(0).choose(route, "a", 0) == MessageQueue("T", "a", 0)
    assert QueueChoice(0).choose(TopicRoute.of("T", TopicRouteData([], [])), None, 0) is None


def test_a_slow_broker_is_left_alone_for_a_while() -> None:
    faults = BrokerFaults()
    route, choice = TopicRoute.of("T", TWO_BROKERS), QueueChoice(0, faults)
    faults.note("a", 600, now_ms=0)
    faults.note("b", 549, now_ms=0)
    assert {
        queue.broker_name for _ in range(8) if (queue := choice.choose(route, None, 1_999))
    } == {"b"}
    assert {
        queue.broker_name for _ in range(8) if (queue := choice.choose(route, None, 2_000))
    } == {"a", "b"}
    faults.note("b", 20_000, now_ms=2_000)
    faults.note("a", 20_000, now_ms=2_000)
    assert choice.choose(route, None, 3_000) is not None, "when all are slow, any will do"


def test_a_route_without_a_queue_to_write_to_says_the_one_reason() -> None:
    queues = [QueueData("a", 1, 1, 6, 0)]
    read_only = TopicRoute.of(
        "T", TopicRouteData([broker("a", _0="a:1")], [QueueData("a", 1, 1, 4, 0)])
    )
    assert read_only.why_not_written().startswith(
        "its permission on its brokers (a) forbids writing"
    )
    masterless = TopicRoute.of("T", TopicRouteData([broker("a", _1="a:2")], queues))
    assert masterless.why_not_written().startswith("its brokers (a) have no master at the moment")
    empty = TopicRoute.of(
        "T", TopicRouteData([broker("a", _0="a:1")], [QueueData("a", 1, 0, 6, 0)])
    )
    assert empty.why_not_written().startswith(
        "none of its brokers with a master (a) has a write queue for it"
    )
    assert [route.write_queues for route in (read_only, masterless, empty)] == [(), (), ()]
