"""Each request of a name server and its answer: codes, remarks and bodies as the original gives
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.protocol.bodies.nameserver import TopicConfig, TopicList, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.nameserver.socketless import NameServerRoom

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c1",
    "brokerId": "0",
}


@pytest.fixture
def room(tmp_path: Path) -> NameServerRoom:
    return NameServerRoom(tmp_path)


def topics_of(room: NameServerRoom, code: int, **fields: str) -> set[str]:
    return set(TopicList.decode(room.ask(code, **fields).body or b"").topics)


def test_a_route_is_standard_json_for_clients_from_4_9_4_on(room: NameServerRoom) -> None:
    room.register()
    expected = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c1","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    assert room.ask_as(401, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").body == expected
    assert (
        room.ask_as(
            373, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1", acceptStandardJsonOnly="true"
        ).body
        == expected
    )
    assert room.ask_as(
        400, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1"
    ).body == expected.replace(b'{"0":', b"{0:")


@pytest.mark.parametrize("version", [513, 373])
def test_a_topic_without_a_route_is_answered_with_its_name_and_where_to_read_on(
    room: NameServerRoom, version: int
) -> None:
    answer = room.ask_as(version, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="nope")
    assert (answer.code, answer.remark) == (
        17,
        f"No topic route info in name server for the topic: nope{FAQ}",
    )
    answer = room.ask_as(version, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert (answer.code, answer.remark) == (
        17,
        f"No topic route info in name server for the topic: null{FAQ}",
    )


def test_routes_are_refused_until_the_time_to_wait_is_over(room: NameServerRoom) -> None:
    room.register()
    room.switches.need_wait_for_service = True
    room.clock.advance_ms(44_999)
    answer = room.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
    assert (answer.code, answer.remark) == (1, "name server not ready")
    room.clock.advance_ms(1)
    assert room.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 0


def test_the_order_configuration_is_in_the_route_where_that_is_switched_on(
    room: NameServerRoom,
) -> None:
    room.register()
    room.ask(
        RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:8"
    )
    route = room.route("T1")
    assert route is not None
    assert route.order_topic_conf is None
    room.switches.order_message_enable = True
    route = room.route("T1")
    assert route is not None
    assert route.order_topic_conf == "broker-a:8"


def test_an_acting_master_is_presented_as_master_where_that_is_switched_on(
    room: NameServerRoom,
) -> None:
    room.register(
        broker_id=1,
        address="s1",
        topics=["T1", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"],
        enableActingMaster="true",
    )
    room.register(broker_id=2, address="s2", enableActingMaster="true")
    route = room.route("T1")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: "s1", 2: "s2"}
    room.switches.support_acting_master = True
    route = room.route("T1")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "s1", 2: "s2"}
    route = room.route("rmq_sys_SYNC_BROKER_MEMBER_broker-a")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: "s1", 2: "s2"}


def test_no_master_is_presented_for_writable_queues_or_without_the_brokers_consent(
    room: NameServerRoom,
) -> None:
    room.switches.support_acting_master = True
    room.register("b1", broker_id=1, address="s1", enableActingMaster="true")
    room.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="b1")
    room.register(
        "b2",
        broker_id=1,
        address="s2",
        topics=[TopicConfig("T1", perm=4), TopicConfig("T2", perm=4)],
        enableActingMaster="false",
    )
    route = room.route("T1")
    assert route is not None
    assert {broker.broker_name: dict(broker.broker_addrs) for broker in route.broker_datas} == {
        "b1": {1: "s1"},
        "b2": {1: "s2"},
    }


def test_in_zone_mode_brokers_of_other_zones_are_left_out_unless_their_master_is_gone(
    room: NameServerRoom,
) -> None:
    room.register("here", address="a1", __ZONE_NAME="zoneA", filter_servers=["f1"])
    room.register("there", address="a2", __ZONE_NAME="zoneB", filter_servers=["f2"])
    room.register(
        "orphan", address="a3", broker_id=1, __ZONE_NAME="zoneC", enableActingMaster="false"
    )
    room.register("nowhere", address="a4")
    answer = room.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1", __ZONE_MODE="true", __ZONE_NAME="ZONEa"
    )
    route = TopicRouteData.decode(answer.body or b"")
    assert {broker.broker_name for broker in route.broker_datas} == {"here", "orphan"}
    assert {queues.broker_name for queues in route.queue_datas} == {"here", "orphan"}
    assert route.filter_server_table == {"a1": ["f1"]}
    assert b'{0:"a1"}' in (answer.body or b"")  # the dialect of old clients, to whoever asks


@pytest.mark.parametrize(
    "fields",
    [
        {"__ZONE_NAME": "zoneA"},
        {"__ZONE_MODE": "true"},
        {"__ZONE_MODE": "true", "__ZONE_NAME": " "},
    ],
)
def test_without_mode_and_name_zones_do_not_matter(
    room: NameServerRoom, fields: dict[str, str]
) -> None:
    room.register("there", __ZONE_NAME="zoneB")
    route = room.route("T1", **fields)
    assert route is not None
    assert [broker.zone_name for broker in route.broker_datas] == ["zoneB"]


def test_unknown_routes_are_asked_for_elsewhere_where_there_is_an_elsewhere(tmp_path: Path) -> None:
    asked: list[str] = []

    async def look_up(topic: str) -> bytes | None:
        asked.append(topic)
        return b'{"from":"production"}' if topic == "T9" else None

    room = NameServerRoom(tmp_path, look_up=look_up)
    room.register()
    assert room.route("T1") is not None
    assert asked == []
    assert room.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T9").body == b'{"from":"production"}'
    assert room.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T8").code == 17
    assert room.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC).code == 17
    assert asked == ["T9", "T8"]


def test_cluster_info_names_every_broker_and_cluster(room: NameServerRoom) -> None:
    assert (
        room.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )
    room.register(__ZONE_NAME="z")
    assert (
        room.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        == b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c1",'
        b'"enableActingMaster":false,"zoneName":"z"}},"clusterAddrTable":{"c1":["broker-a"]}}'
    )


def test_a_member_group_is_answered_also_when_it_is_empty(room: NameServerRoom) -> None:
    room.register()
    assert (
        room.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c1", brokerName="broker-a").body
        == b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c1"}}'
    )
    assert (
        room.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c9", brokerName="b9").body
        == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"b9","cluster":"c9"}}'
    )


def test_a_member_group_is_answered_with_the_remark_that_the_original_leaves_there(
    room: NameServerRoom,
) -> None:
    answer = room.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c1", brokerName="broker-a")
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"counter":1,"stateVersion":0,"timestamp":1000}', "false"),
        (b'{"counter":2,"stateVersion":0,"timestamp":1000}', "true"),
        (b'{"counter":1,"stateVersion":1,"timestamp":1000}', "true"),
        (b'{"counter":1,"timestamp":1000}', "false"),
        (None, "true"),
    ],
)
def test_a_data_version_is_compared_with_the_registered_one(
    room: NameServerRoom, body: bytes | None, changed: str
) -> None:
    room.register()
    answer = room.ask(RequestCode.QUERY_DATA_VERSION, body, **BROKER)
    assert answer.ext_fields == {"changed": changed}
    assert answer.body == b'{"counter":1,"stateVersion":0,"timestamp":1000}'


def test_a_data_version_of_an_unknown_broker_has_changed_and_garbage_is_refused(
    room: NameServerRoom,
) -> None:
    answer = room.ask(RequestCode.QUERY_DATA_VERSION, b"{}", **BROKER)
    assert (answer.code, answer.ext_fields, answer.body) == (0, {"changed": "true"}, None)
    assert room.ask(RequestCode.QUERY_DATA_VERSION, b"{garbage", **BROKER).code == 1


def test_topic_lists_by_cluster_and_by_flag(room: NameServerRoom) -> None:
    flags = [TopicConfig(f"flag-{flag}", sys_flag=flag) for flag in range(4)]
    room.register(topics=flags)
    room.register("broker-b", address="b", cluster="c2", topics=["T1", "flag-1"])
    assert topics_of(room, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {
        "T1",
        "flag-0",
        "flag-1",
        "flag-2",
        "flag-3",
    }
    assert topics_of(room, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c2") == {"T1", "flag-1"}
    assert topics_of(room, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c9") == set()
    assert topics_of(room, RequestCode.GET_UNIT_TOPIC_LIST) == {"flag-1", "flag-3"}
    assert topics_of(room, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"flag-2", "flag-3"}
    assert topics_of(room, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"flag-2"}


def test_system_topics_are_clusters_and_brokers_with_an_address(room: NameServerRoom) -> None:
    assert room.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body == b'{"topicList":[]}'
    room.register()
    assert (
        room.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body
        == b'{"brokerAddr":"10.0.0.1:10911","topicList":["c1","broker-a"]}'
    )


def test_lists_can_be_switched_off(room: NameServerRoom) -> None:
    room.switches.enable_all_topic_list = False
    answer = room.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (answer.code, answer.remark) == (1, "disable")
    assert room.ask(RequestCode.GET_UNIT_TOPIC_LIST).code == 0
    room.switches.enable_topic_list = False
    for code in (
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        assert room.ask(code).remark == "disable"
    assert room.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c1").remark == "disable"
    assert room.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).code == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(room: NameServerRoom) -> None:
    room.register()
    room.register("broker-b", address="b", cluster="c2")
    assert room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="c1").code == 0
    route = room.route("T1")
    assert route is not None
    assert [queues.broker_name for queues in route.queue_datas] == ["broker-b"]
    room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="c9")
    assert room.route("T1") is not None
    room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="c2")
    assert room.route("T1") is None
    room.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T2")
    assert topics_of(room, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == set()


def test_a_topic_is_registered_on_known_brokers_only(room: NameServerRoom) -> None:
    room.register()
    queues = '{"brokerName":"%s","perm":6,"readQueueNums":3,"topicSysFlag":0,"writeQueueNums":3}'
    known, unknown = queues % "broker-a", queues % "broker-x"

    def register_topic(topic: str, *queue_datas: str) -> None:
        body = '{{"queueDatas":[{}]}}'.format(",".join(queue_datas))
        assert room.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body.encode(), topic=topic).code == 0

    register_topic("new", known, unknown)
    assert room.route("new") is None
    register_topic("new", known)
    register_topic("T1", known, unknown)
    for topic in ("new", "T1"):
        route = room.route(topic)
        assert route is not None
        assert [queues.read_queue_nums for queues in route.queue_datas] == [3]
    register_topic("T2", unknown, known)
    route = room.route("T2")
    assert route is not None
    assert [queues.read_queue_nums for queues in route.queue_datas] == [8]
    assert room.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="T1").code == 0
    assert room.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, b"[[", topic="T1").code == 1


def test_write_permission_is_taken_and_given_for_all_queues_of_a_broker(
    room: NameServerRoom,
) -> None:
    room.register(topics=[TopicConfig("T1", perm=7), TopicConfig("T2", perm=2)])
    assert room.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a").ext_fields == {
        "wipeTopicCount": "2"
    }
    assert (room.perm("T1"), room.perm("T2")) == (5, 0)
    assert room.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a").ext_fields == {
        "addTopicCount": "2"
    }
    assert (room.perm("T1"), room.perm("T2")) == (6, 6)
    assert room.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-x").ext_fields == {
        "wipeTopicCount": "0"
    }
    assert room.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-x").ext_fields == {
        "addTopicCount": "0"
    }


def test_key_value_requests_answer_as_the_original_does(room: NameServerRoom) -> None:
    answer = room.ask(RequestCode.PUT_KV_CONFIG, key="k", value="v")
    assert (answer.code, answer.remark) == (1, "namespace or key is null")
    assert room.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v é").code == 0
    assert room.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k").ext_fields == {
        "value": "v é"
    }
    answer = room.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="x")
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: n Key: x")
    assert (
        room.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").body
        == '{"table":{"k":"v é"}}'.encode()
    )
    answer = room.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="x")
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: x")
    assert room.ask(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k").code == 0
    assert room.ask(RequestCode.DELETE_KV_CONFIG, namespace="x", key="k").code == 0
    assert room.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").body == b'{"table":{}}'


def test_a_value_that_is_put_without_a_value_is_none(room: NameServerRoom) -> None:
    room.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    assert room.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k").code == 0
    assert room.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k").code == 22


def test_the_configuration_is_shown_and_changed_as_text(room: NameServerRoom) -> None:
    assert room.ask(RequestCode.GET_NAMESRV_CONFIG).body == b"a=1\nb=2\n"
    assert room.ask(RequestCode.UPDATE_NAMESRV_CONFIG, "a=é\n".encode()).code == 0
    assert room.ask(RequestCode.UPDATE_NAMESRV_CONFIG).code == 0
    assert room.configuration.updates == ["a=é\n"]
    answer = room.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"kvConfigPath=/x")
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "Can not update config in black list.",
    )
