"""What a registration changes, rule by rule, as clients see it afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.common.slices import finish
from orbitmq.protocol.bodies.nameserver import (
    PERM_READ,
    PERM_WRITE,
    ClusterInfo,
    TopicConfig,
    TopicQueueMappingInfo,
)
from orbitmq.protocol.codes import RequestCode
from support.nameserver.socketless import Connection, NameServerRoom

MASTER, SLAVE_1, SLAVE_2 = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


@pytest.fixture
def room(tmp_path: Path) -> NameServerRoom:
    return NameServerRoom(tmp_path)


def addresses(room: NameServerRoom, name: str = "broker-a") -> dict[int, str] | None:
    info = ClusterInfo.decode(room.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body or b"")
    return dict(info.brokers[name].broker_addrs) if name in info.brokers else None


def test_a_registration_brings_the_broker_its_cluster_and_its_topics(room: NameServerRoom) -> None:
    assert room.register().code == 0
    route = room.route("T1")
    assert route is not None
    assert [
        (queues.broker_name, queues.read_queue_nums, queues.perm) for queues in route.queue_datas
    ] == [("broker-a", 8, 6)]
    assert addresses(room) == {0: MASTER}


def test_a_slave_is_told_its_live_master_and_a_master_nothing(room: NameServerRoom) -> None:
    assert room.register().ext_fields == {}
    answer = room.register(broker_id=1, address=SLAVE_1)
    assert answer.ext_fields == {"masterAddr": MASTER, "haServerAddr": f"ha of {MASTER}"}


def test_a_slave_without_a_master_is_told_nothing(room: NameServerRoom) -> None:
    assert room.register(broker_id=1, address=SLAVE_1).ext_fields == {}


def test_an_unchanged_version_does_not_apply_topics_again(room: NameServerRoom) -> None:
    room.register(topics=[TopicConfig("T1", 8, 8), TopicConfig("T2", 8, 8)], counter=1)
    room.register(topics=[TopicConfig("T1", 16, 16), TopicConfig("T2", 8, 8)], counter=1)
    route = room.route("T1")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 8


def test_an_unchanged_version_applies_topics_that_are_not_there(room: NameServerRoom) -> None:
    room.register(topics=["T1", "T2"], counter=1)
    room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1")
    room.register(topics=["T1", "T2"], counter=1)
    assert room.route("T1") is not None


def test_the_very_same_registration_brings_back_a_topic_that_was_deleted_in_between(
    room: NameServerRoom,
) -> None:
    for _ in range(3):  # the second is a renewal; the topic goes after it
        room.register()
    room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1")
    room.register()
    assert room.route("T1") is not None


def test_a_changed_version_applies_topics_and_keeps_those_it_does_not_name(
    room: NameServerRoom,
) -> None:
    room.register(topics=["T1", "T2"], counter=1)
    room.register(topics=[TopicConfig("T1", 16, 16)], counter=2)
    changed, kept = room.route("T1"), room.route("T2")
    assert changed is not None
    assert kept is not None
    assert (changed.queue_datas[0].read_queue_nums, kept.queue_datas[0].read_queue_nums) == (16, 8)


def test_with_deletion_switched_on_a_registration_takes_away_what_it_does_not_name(
    room: NameServerRoom,
) -> None:
    room.register(topics=["T1", "T2"])
    room.switches.delete_topic_with_broker_registration = True
    room.register(topics=["T2", "T3"])
    assert room.route("T1") is None
    assert room.route("T2") is not None
    assert room.route("T3") is not None


def test_deletion_reaches_a_broker_that_registers_the_same_again(room: NameServerRoom) -> None:
    room.register(topics=["T1", "T2"], counter=1)
    for _ in range(2):
        room.register(topics=["T2", "T3"], counter=2)
    room.switches.delete_topic_with_broker_registration = True
    room.register(topics=["T2", "T3"], counter=2)
    assert room.route("T1") is None


def test_deletion_spares_the_topics_of_a_broker_with_queue_mappings(room: NameServerRoom) -> None:
    room.register(topics=["T1", "T2"])
    room.switches.delete_topic_with_broker_registration = True
    room.register(
        topics=["T2", "T3"], mappings={"T2": TopicQueueMappingInfo("T2", "broker-a")}, counter=2
    )
    assert room.route("T1") is not None


def test_a_single_topic_is_refused_from_a_broker_that_is_not_registered(
    room: NameServerRoom,
) -> None:
    answer = room.register(topics=["T1"])
    assert (answer.code, answer.remark) == (1, "register broker failed")
    assert addresses(room) is None
    assert room.register(topics=["T1", "T2"]).code == 0
    assert room.register(topics=["T3"], counter=2).code == 0


def test_a_slave_that_becomes_master_keeps_one_entry(room: NameServerRoom) -> None:
    room.register(broker_id=1, address=SLAVE_1)
    room.register(broker_id=0, address=SLAVE_1)
    assert addresses(room) == {0: SLAVE_1}


def test_a_newcomer_in_an_earlier_state_does_not_replace_a_live_broker(
    room: NameServerRoom,
) -> None:
    room.register(address=MASTER, state_version=2)
    answer = room.register(address=SLAVE_1, state_version=1, topics=["T8", "T9"])
    assert (answer.code, answer.ext_fields) == (0, {})
    assert addresses(room) == {0: MASTER}
    assert room.route("T8") is None
    asked = room.ask(
        RequestCode.QUERY_DATA_VERSION,
        b'{"counter":1}',
        brokerName="broker-a",
        brokerAddr=SLAVE_1,
        clusterName="c1",
        brokerId="0",
    )
    assert (asked.ext_fields, asked.body) == ({"changed": "true"}, None)


@pytest.mark.parametrize("state_version", [2, 3])
def test_a_newcomer_in_the_same_or_a_later_state_replaces_the_address(
    room: NameServerRoom, state_version: int
) -> None:
    room.register(address=MASTER, state_version=2)
    room.register(address=SLAVE_1, state_version=state_version)
    assert addresses(room) == {0: SLAVE_1}


def test_topics_of_slaves_do_not_count_while_there_is_a_master(room: NameServerRoom) -> None:
    room.register(topics=["T1", "T2"])
    room.register(broker_id=1, address=SLAVE_1, topics=["T8", "T9"], enableActingMaster="true")
    assert room.route("T8") is None


def test_topics_of_an_old_slave_never_count(room: NameServerRoom) -> None:
    room.register(broker_id=1, address=SLAVE_1, topics=["T1", "T2"])
    assert room.route("T1") is None


def test_topics_of_the_first_slave_without_a_master_count(room: NameServerRoom) -> None:
    room.register(broker_id=1, address=SLAVE_1, topics=["T1", "T2"], enableActingMaster="false")
    room.register(broker_id=2, address=SLAVE_2, topics=["T8", "T9"], enableActingMaster="false")
    assert room.perm("T1") == PERM_READ | PERM_WRITE
    assert room.route("T8") is None


def test_topics_of_an_acting_master_are_read_only(room: NameServerRoom) -> None:
    room.register(broker_id=1, address=SLAVE_1, enableActingMaster="true")
    assert room.perm("T1") == PERM_READ


def test_when_the_master_leaves_a_group_with_acting_master_its_queues_are_read_only(
    room: NameServerRoom,
) -> None:
    room.register(enableActingMaster="true")
    room.register(broker_id=1, address=SLAVE_1, enableActingMaster="true")
    assert room.perm("T1") == PERM_READ | PERM_WRITE
    room.unregister()
    assert room.perm("T1") == PERM_READ


def test_when_the_master_leaves_any_other_group_its_queues_stay_as_they_are(
    room: NameServerRoom,
) -> None:
    room.register()
    room.register(broker_id=1, address=SLAVE_1)
    room.unregister()
    assert room.perm("T1") == PERM_READ | PERM_WRITE
    assert addresses(room) == {1: SLAVE_1}


def test_with_its_last_address_a_broker_takes_its_topics_and_its_cluster(
    room: NameServerRoom,
) -> None:
    room.register()
    room.register("broker-b", address=SLAVE_1, topics=["T2", "T3"], cluster="c2")
    room.unregister()
    assert room.route("T1") is None
    route = room.route("T2")
    assert route is not None
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-b"]
    info = ClusterInfo.decode(room.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body or b"")
    assert info.clusters == {"c2": ["broker-b"]}


def test_a_wiped_permission_lasts_until_a_changed_version_is_registered(
    room: NameServerRoom,
) -> None:
    room.register(counter=1)
    assert room.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a").ext_fields == {
        "wipeTopicCount": "2"
    }
    room.register(counter=1)
    assert room.perm("T1") == PERM_READ
    room.register(counter=2)
    assert room.perm("T1") == PERM_READ | PERM_WRITE


def test_queue_mappings_are_part_of_the_route_and_leave_with_the_topic(
    room: NameServerRoom,
) -> None:
    mapping = TopicQueueMappingInfo(
        "T1", "broker-a", total_queues=4, epoch=7, curr_id_map={0: 0, 1: 1}
    )
    room.register(mappings={"T1": mapping})
    route = room.route("T1")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1")
    room.register(counter=2)
    route = room.route("T1")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


def test_filter_servers_are_part_of_the_route_until_an_empty_list_is_registered(
    room: NameServerRoom,
) -> None:
    room.register(filter_servers=["10.0.0.1:30000"])
    route = room.route("T1")
    assert route is not None
    assert route.filter_server_table == {MASTER: ["10.0.0.1:30000"]}
    room.register(filter_servers=[])
    route = room.route("T1")
    assert route is not None
    assert route.filter_server_table == {}


def test_a_body_without_a_version_is_news_every_time(room: NameServerRoom) -> None:
    fields = {
        "brokerName": "b",
        "brokerAddr": MASTER,
        "clusterName": "c1",
        "haServerAddr": "h",
        "brokerId": "0",
    }
    topics = {name: {"topicName": name, "perm": 6} for name in ("T1", "T2")}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}}).encode()
    for _ in range(2):
        assert room.ask(RequestCode.REGISTER_BROKER, body, **fields).code == 0
    room.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="b")
    room.clock.advance_ms(1)
    room.ask(RequestCode.REGISTER_BROKER, body, **fields)
    assert room.perm("T1") == PERM_READ | PERM_WRITE


@pytest.mark.parametrize(
    "field", ["brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId"]
)
def test_a_registration_without_a_required_field_is_refused_and_names_it(
    room: NameServerRoom, field: str
) -> None:
    fields = {
        "brokerName": "b",
        "brokerAddr": MASTER,
        "clusterName": "c1",
        "haServerAddr": "h",
        "brokerId": "0",
    }
    del fields[field]
    answer = room.ask(RequestCode.REGISTER_BROKER, **fields)
    assert answer.code == 1
    assert field in (answer.remark or "")
    assert addresses(room, "b") is None


def test_a_wrong_checksum_is_refused_and_none_is_not_checked(room: NameServerRoom) -> None:
    answer = room.register(bodyCrc32="5")
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert room.register(bodyCrc32="0").code == 0


@pytest.mark.parametrize(
    "body", [b"nonsense", b"[]", b'{"topicConfigSerializeWrapper":7}', b"\x78\xda garbage"]
)
def test_a_body_that_cannot_be_read_is_refused(room: NameServerRoom, body: bytes) -> None:
    fields = {
        "brokerName": "b",
        "brokerAddr": MASTER,
        "clusterName": "c1",
        "haServerAddr": "h",
        "brokerId": "0",
    }
    answer = room.ask(RequestCode.REGISTER_BROKER, body, **fields)
    assert answer.code == 1
    assert (answer.remark or "").startswith("Failed to decode RegisterBrokerBody")


def test_the_order_configuration_comes_with_the_answer_where_it_exists_and_is_switched_on(
    room: NameServerRoom,
) -> None:
    assert room.register().body is None
    room.ask(
        RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:8"
    )
    assert room.register().body == b'{"table":{"T1":"broker-a:8"}}'
    room.switches.return_order_topic_config_to_broker = False
    assert room.register().body is None


def test_a_renewal_on_another_connection_moves_the_broker_there(room: NameServerRoom) -> None:
    first, second = Connection(), Connection()
    room.register(connection=first)
    room.register(connection=second)
    finish(room.housekeeping.connection_closed(first))
    assert addresses(room) == {0: MASTER}
    finish(room.housekeeping.connection_closed(second))
    assert addresses(room) is None
