"""Brokers that fall silent or whose connection closes, and who hears of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orbitmq.common.slices import finish
from orbitmq.protocol.codes import RequestCode
from support.nameserver.socketless import Connection, NameServerRoom

MASTER, SLAVE_1, SLAVE_2 = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


@pytest.fixture
def room(tmp_path: Path) -> NameServerRoom:
    return NameServerRoom(tmp_path)


def test_a_broker_expires_after_two_minutes_of_silence_and_its_connection_is_closed(
    room: NameServerRoom,
) -> None:
    room.register()
    room.clock.advance_ms(120_000)
    finish(room.housekeeping.scan())
    assert room.route("T1") is not None
    room.clock.advance_ms(1)
    finish(room.housekeeping.scan())
    assert room.route("T1") is None
    assert room.connection.closed_because is not None


def test_a_broker_may_state_its_own_timeout(room: NameServerRoom) -> None:
    room.register(heartbeatTimeoutMillis="10000")
    room.clock.advance_ms(10_001)
    finish(room.housekeeping.scan())
    assert room.route("T1") is None


@pytest.mark.parametrize(
    "code",
    [RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER],
)
def test_whatever_a_broker_says_keeps_it_alive(room: NameServerRoom, code: RequestCode) -> None:
    room.register()
    room.clock.advance_ms(100_000)
    if code == RequestCode.REGISTER_BROKER:
        room.register()
    else:
        assert (
            room.ask(
                code, brokerName="broker-a", brokerAddr=MASTER, clusterName="c1", brokerId="0"
            ).code
            == 0
        )
    room.clock.advance_ms(100_000)
    finish(room.housekeeping.scan())
    assert room.route("T1") is not None


def test_a_jump_of_the_wall_clock_expires_nobody(room: NameServerRoom) -> None:
    room.register()
    room.clock.set_wall_ms(room.clock.now_ms() + 10**9)
    finish(room.housekeeping.scan())
    assert room.route("T1") is not None


def test_a_heartbeat_of_an_unknown_broker_is_answered_and_changes_nothing(
    room: NameServerRoom,
) -> None:
    assert (
        room.ask(RequestCode.BROKER_HEARTBEAT, brokerName="b", brokerAddr="a", clusterName="c").code
        == 0
    )
    assert (
        room.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )


def test_a_closed_connection_takes_all_its_brokers_and_no_others(room: NameServerRoom) -> None:
    shared, other = Connection(), Connection()
    room.register("b1", address="a1", connection=shared, topics=["T1", "X"])
    room.register("b2", address="a2", connection=shared, topics=["T2", "X"])
    room.register("b3", address="a3", connection=other, topics=["T3", "X"])
    finish(room.housekeeping.connection_closed(shared))
    assert (room.route("T1"), room.route("T2")) == (None, None)
    route = room.route("X")
    assert route is not None
    assert [queues.broker_name for queues in route.queue_datas] == ["b3"]
    finish(room.housekeeping.connection_closed(Connection()))
    assert room.route("T3") is not None


def test_members_hear_of_a_new_lowest_id_where_that_is_switched_on(room: NameServerRoom) -> None:
    room.switches.notify_min_broker_id_changed = True
    connection = Connection()
    room.register(connection=connection)
    room.register(broker_id=2, address=SLAVE_2)
    room.register(broker_id=1, address=SLAVE_1)
    assert room.sent == []
    finish(room.housekeeping.connection_closed(connection))
    gone = {"minBrokerId": "1", "minBrokerAddr": SLAVE_1, "offlineBrokerAddr": MASTER}
    assert room.sent == [(SLAVE_1, gone), (SLAVE_2, gone)]
    room.sent.clear()
    room.register()
    back = {"minBrokerId": "0", "minBrokerAddr": MASTER, "haBrokerAddr": f"ha of {MASTER}"}
    assert room.sent == [(SLAVE_1, back), (SLAVE_2, back)]
    room.sent.clear()
    room.unregister(broker_id=1, address=SLAVE_1)
    assert room.sent == []


def test_nobody_hears_of_a_new_lowest_id_otherwise(room: NameServerRoom) -> None:
    room.register()
    room.register(broker_id=1, address=SLAVE_1)
    room.unregister()
    room.register()
    assert room.sent == []


def test_the_key_value_configuration_is_logged_after_a_minute_and_every_ten_from_then_on(
    room: NameServerRoom, caplog: pytest.LogCaptureFixture
) -> None:
    room.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    caplog.set_level(logging.INFO, "orbitmq.nameserver")

    def logged_after(elapsed_ms: int) -> bool:
        caplog.clear()
        room.clock.advance_ms(elapsed_ms)
        finish(room.housekeeping.scan())
        return "namespace=n key=k value=v" in caplog.text

    assert [logged_after(ms) for ms in (59_999, 1, 599_999, 1, 5000)] == [
        False,
        True,
        False,
        True,
        False,
    ]
