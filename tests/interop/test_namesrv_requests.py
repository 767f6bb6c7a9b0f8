"""Every request that a name server serves, good and bad, as raw frames to the original 5.5.0 and to
ours: the answers are the same.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from interop.conversation import ALL_TOPICS, CLUSTERS, SWITCHES_AS_AT_START, Conversation
from interop.frames import BINARY_TYPE, V4_9_3, Request
from interop.registrations import (
    TOPICS,
    compressed_body,
    data_version,
    identity,
    plain_body,
    register,
    topic,
    update_config,
)

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

ROUTE = Request(105, {"topic": "T1"})
CONFIG = Request(319)
FIELD_MISSING = (
    "a required field is missing: the original goes on without it, ours says which one it is"
)
# Its topic is used for nothing else: the original keeps a mapping for ever.
MAPPING = {
    "bname": "b1",
    "currIdMap": {"0": 0, "1": 1},
    "dirty": False,
    "epoch": 7,
    "scope": "__global__",
    "topic": "Mapped",
    "totalQueues": 2,
}


def put(namespace: str | None, key: str | None, value: str | None = None) -> Request:
    given = {"namespace": namespace, "key": key, "value": value}
    return Request(100, {name: text for name, text in given.items() if text is not None})


def test_an_empty_name_server_answers_the_same(both: Conversation) -> None:
    for code in (106, 206, 304, 311, 312, 313):
        both.ask(Request(code))
    both.ask(ROUTE)
    both.ask(Request(224, {"cluster": "nowhere"}))
    both.ask(Request(901, {"clusterName": "nowhere", "brokerName": "nobody"}))
    both.ask(Request(322, identity(), json.dumps(data_version()).encode()))
    both.ask(Request(205, {"brokerName": "nobody"}))
    both.ask(Request(327, {"brokerName": "nobody"}))
    both.ask(Request(104, identity()))
    both.ask(Request(216, {"topic": "T1"}))
    both.ask(Request(904, identity()))


def test_routes_and_lists_of_a_registered_broker_are_the_same(both: Conversation) -> None:
    both.ask(register())
    both.ask(register(plain_body([topic("T1"), topic("T9")]), name="b2", address="10.0.0.2:10911"))
    both.ask(
        register(
            plain_body([topic("T5"), topic("T6")]),
            name="b3",
            cluster="c2",
            address="10.0.0.3:10911",
        )
    )
    for name in ("T1", "T2", "T5", "T9", "absent", "", "  "):
        both.ask(Request(105, {"topic": name}))
    for code in (106, 206, 311, 312, 313):
        both.ask(Request(code))
    for cluster in ("c1", "c2", "c3", ""):
        both.ask(Request(224, {"cluster": cluster}))
    for cluster, name in (("c1", "b1"), ("c2", "b1"), ("c1", "b9")):
        both.ask(Request(901, {"clusterName": cluster, "brokerName": name}))


def test_system_topics_name_clusters_and_brokers_and_an_address(both: Conversation) -> None:
    both.ask(register())
    both.ask(Request(304))


@pytest.mark.parametrize("version", [30, 121, V4_9_3, 401, 407, 413, 479, 513, 611, 10_000])
def test_every_client_version_gets_its_route_in_the_same_dialect(
    both: Conversation, version: int
) -> None:
    both.ask(register())
    both.ask(register(broker_id=1))
    both.ask(Request(105, {"topic": "T1"}, version=version))
    both.ask(Request(105, {"topic": "T1", "acceptStandardJsonOnly": "true"}, version=version))
    both.ask(Request(105, {"topic": "T1", "acceptStandardJsonOnly": "no"}, version=version))
    both.ask(Request(105, {"topic": "absent"}, version=version))


def test_binary_headers_are_served_the_same(both: Conversation) -> None:
    both.ask(Request(103, register().fields, plain_body(), serialize_type=BINARY_TYPE))
    for request in (
        ROUTE,
        CLUSTERS,
        Request(105, {"topic": "absent"}),
        Request(9999),
        put("binary", "k", "v"),
        Request(102, {"namespace": "binary", "key": "k"}),
    ):
        both.ask(Request(request.code, request.fields, serialize_type=BINARY_TYPE))


def test_names_beyond_ascii_are_answered_the_same(both: Conversation) -> None:
    both.ask(
        register(
            plain_body([topic("größe"), topic("主题"), topic("emoji😀")]),
            name="bröker",
            cluster="簇",
        )
    )
    for name in ("größe", "主题", "emoji😀"):
        for version in (V4_9_3, 513):
            both.ask(Request(105, {"topic": name}, version=version))
    for code in (106, 206, 304):
        both.ask(Request(code))
    both.ask(Request(224, {"cluster": "簇"}))


def test_compressed_registrations_are_read_the_same(both: Conversation) -> None:
    both.ask(register(compressed_body(), version=407, compressed="true", enableActingMaster=None))
    both.ask(ROUTE)
    both.ask(ALL_TOPICS)
    both.ask(
        register(
            compressed_body(
                [*TOPICS, topic("Mapped")], version=data_version(2), mappings=[MAPPING]
            ),
            compressed="true",
        )
    )
    both.ask(ROUTE)
    both.ask(Request(105, {"topic": "Mapped"}))
    body = compressed_body(mappings=[])
    both.ask(register(body, compressed="true", bodyCrc32=zlib.crc32(body) & 0x7FFFFFFF))
    both.ask(register(body, compressed="true", bodyCrc32=(zlib.crc32(body) & 0x7FFFFFFF) ^ 1))
    both.ask(register(b"no zlib", compressed="true"))
    both.ask(register(body[:-9], compressed="true"))
    both.ask(register(zlib.compress(b"\0\0\0\1"), compressed="true"))
    both.ask(ALL_TOPICS)


def test_a_compressed_body_that_is_declared_plain_is_read_by_ours_alone(both: Conversation) -> None:
    why = (
        "5.3 to 5.5 brokers with compressedRegister declare it so; the original never gets them"
        " registered, ours looks at the bytes"
    )
    both.ask(register(compressed_body(mappings=[]), compressed="false"), deviation=why)
    both.ask(ROUTE, deviation=why)


def test_bad_registrations_are_refused_the_same(both: Conversation) -> None:
    body = plain_body()
    both.ask(register(plain_body([topic("T1")])))  # one topic alone, of a broker not known yet
    both.ask(
        CLUSTERS,
        deviation=(
            "the original keeps a broker without an address when it refused it; ours keeps nothing"
        ),
    )
    both.ask(register(body, bodyCrc32="1"))
    both.ask(register(body, bodyCrc32=zlib.crc32(body) & 0x7FFFFFFF))
    both.ask(register(b"garbage"))
    both.ask(register(b"{}"))
    both.ask(register(b"[]"))
    both.ask(register(b""))
    both.ask(register(body, brokerId=None))
    both.ask(register(body, brokerId="many"))
    both.ask(register(body, haServerAddr=None), deviation=FIELD_MISSING)
    both.ask(register(body, bodyCrc32="abc", compressed="maybe"))
    both.ask(Request(103))
    both.ask(CLUSTERS)
    both.ask(ALL_TOPICS)


def test_a_registration_of_before_3_0_11_is_read_the_same(both: Conversation) -> None:
    wrapper = json.loads(plain_body())["topicConfigSerializeWrapper"]
    both.ask(register(json.dumps(wrapper).encode(), version=30))
    both.ask(register(b"", version=30, name="b2", address="10.0.0.2:1"))
    for request in (ROUTE, CLUSTERS, ALL_TOPICS):
        both.ask(request)


def test_registering_again_changes_what_it_changes_in_the_original(both: Conversation) -> None:
    both.ask(register())
    both.ask(register(plain_body([topic("T1", perm=4)])))  # the same data version: nothing changes
    both.ask(ROUTE)
    both.ask(register(plain_body([topic("T1", perm=4)], version=data_version(2))))
    both.ask(ROUTE)
    both.ask(ALL_TOPICS)
    both.ask(
        register(plain_body([topic("T7")], version=data_version(2)))
    )  # a topic without this broker's queues
    both.ask(ALL_TOPICS)
    both.ask(update_config("deleteTopicWithBrokerRegistration=true"))
    both.ask(register(plain_body([topic("T1"), topic("T2")], version=data_version(3))))
    both.ask(ALL_TOPICS)
    both.ask(update_config("deleteTopicWithBrokerRegistration=false"))
    both.ask(register(brokerId="3"))  # the same address under another id
    both.ask(CLUSTERS)


def test_filter_servers_are_shown_the_same(both: Conversation) -> None:
    both.ask(register(plain_body(filter_servers=["10.0.0.1:30000", "10.0.0.1:30001"])))
    both.ask(ROUTE)
    both.ask(register(plain_body(version=data_version(2))))
    both.ask(ROUTE)


def test_static_topics_are_mapped_the_same(both: Conversation) -> None:
    def mapped(epoch: int) -> dict[str, Any]:
        return {
            "mappingDataVersion": data_version(),
            "topicQueueMappingInfoMap": {"Mapped": {**MAPPING, "epoch": epoch}},
        }

    topics = [*TOPICS, topic("Mapped")]
    both.ask(register(plain_body(topics, **mapped(7))))
    for version in (V4_9_3, 513):
        both.ask(Request(105, {"topic": "Mapped"}, version=version))
    both.ask(ROUTE)
    both.ask(register(plain_body(topics, version=data_version(2), **mapped(8))))
    both.ask(Request(105, {"topic": "Mapped"}))


def test_masters_and_slaves_are_told_of_each_other_the_same(both: Conversation) -> None:
    both.ask(register(broker_id=1), on="slave")  # before its master
    both.ask(ROUTE)
    both.ask(register(), on="master")
    both.ask(register(broker_id=1, haServerAddr="10.0.0.1:9"), on="slave")
    both.ask(
        register(
            plain_body([topic("T1", perm=2), topic("Only")], version=data_version(9)), broker_id=1
        ),
        on="slave",
    )
    for request in (
        ROUTE,
        CLUSTERS,
        ALL_TOPICS,
        Request(901, {"clusterName": "c1", "brokerName": "b1"}),
    ):
        both.ask(request)
    both.close("master")
    for request in (CLUSTERS, ROUTE):
        both.ask_settled(request)


def test_an_acting_master_is_presented_the_same(both: Conversation) -> None:
    both.ask(update_config("supportActingMaster=true"))
    both.ask(register(enableActingMaster="true", heartbeatTimeoutMillis="10000"), on="master")
    both.ask(register(broker_id=2, enableActingMaster="true"), on="second")
    both.ask(register(broker_id=1, enableActingMaster="true"), on="first")
    for name in ("T1", "rmq_sys_SYNC_BROKER_MEMBER_b1"):
        both.ask(Request(105, {"topic": name}))
    both.close("master")
    both.ask_settled(CLUSTERS)
    both.ask_settled(ROUTE)
    both.ask(
        register(plain_body(version=data_version(4)), broker_id=1, enableActingMaster="true"),
        on="first",
    )
    for version in (V4_9_3, 513):
        both.ask(Request(105, {"topic": "T1"}, version=version))
    both.ask(
        register(plain_body(version=data_version(5)), broker_id=2, enableActingMaster="true"),
        on="second",
    )
    both.ask(ROUTE)
    both.ask(CLUSTERS)
    both.ask(update_config("supportActingMaster=false"))
    both.ask(ROUTE)


def test_two_brokers_that_claim_one_id_are_settled_the_same(both: Conversation) -> None:
    both.ask(register(plain_body(version=data_version(1, state=5))), on="old")
    both.ask(
        register(plain_body(version=data_version(1, state=4)), address="10.0.0.9:1"), on="new"
    )  # behind: ignored
    both.ask(CLUSTERS)
    both.ask(
        register(plain_body(version=data_version(1, state=6)), address="10.0.0.9:1"), on="new"
    )  # ahead: takes over
    both.ask(CLUSTERS)
    both.ask(ROUTE)
    both.close("old")
    both.ask_settled(CLUSTERS)


def test_zones_filter_routes_the_same(both: Conversation) -> None:
    both.ask(register(__ZONE_NAME="east"))
    both.ask(register(name="b2", address="10.0.0.2:1", __ZONE_NAME="west"))
    both.ask(register(name="b3", address="10.0.0.3:1", broker_id=1, __ZONE_NAME="west"))
    both.ask(CLUSTERS)
    for zone in ("east", "EAST", "west", "nowhere"):
        for mode in ("true", "false", "TRUE"):
            both.ask(Request(105, {"topic": "T1", "__ZONE_MODE": mode, "__ZONE_NAME": zone}))
    both.ask(Request(105, {"topic": "T1", "__ZONE_MODE": "true"}))
    both.ask(Request(105, {"topic": "absent", "__ZONE_MODE": "true", "__ZONE_NAME": "east"}))


def test_data_versions_are_asked_the_same(both: Conversation) -> None:
    both.ask(register())
    for body in (
        data_version(),
        data_version(2),
        data_version(1, state=1),
        {"counter": 1, "timestamp": 5},
        {},
    ):
        both.ask(Request(322, identity(), json.dumps(body).encode()))
    both.ask(Request(322, identity(cluster="c9"), json.dumps(data_version()).encode()))
    both.ask(Request(322, identity()))
    both.ask(Request(322, identity(), b"garbage"))
    both.ask(Request(322))
    both.ask(Request(904, identity()))
    both.ask(Request(904, {}))
    both.ask(Request(904))


def test_unregistering_forgets_the_same(both: Conversation) -> None:
    both.ask(register())
    both.ask(register(broker_id=1))
    both.ask(register(name="b2", address="10.0.0.2:1"))
    both.ask(Request(104, identity("b2", address="10.0.0.2:1")))
    both.ask_settled(CLUSTERS)
    both.ask(Request(104, identity("b1", address="10.9.9.9:1")))  # an address that is not its own
    both.ask_settled(CLUSTERS)
    both.ask_settled(ROUTE)
    both.ask(Request(104, identity()))
    both.ask_settled(CLUSTERS)
    both.ask_settled(ROUTE)


def test_key_value_configuration_is_kept_the_same(both: Conversation) -> None:
    both.ask(put("n", "k", "v"))
    both.ask(put("n", "k", "w"))
    both.ask(put("n", "empty", ""))
    both.ask(put("n", "", "no key"))
    both.ask(put("ü", "日", '本\n"q"\t\\'))
    both.ask(put("n", None, "v"))
    both.ask(put(None, "k", "v"))
    both.ask(put("valueless", "k"))
    both.ask(Request(100))
    for namespace in ("n", "ü", "absent", ""):
        both.ask(Request(219, {"namespace": namespace}))
    both.ask(
        Request(219, {"namespace": "valueless"}),
        deviation="the original has made that namespace, with nothing in it",
    )
    for namespace, key in (
        ("n", "k"),
        ("n", "empty"),
        ("n", ""),
        ("n", "absent"),
        ("absent", "k"),
        ("valueless", "k"),
        ("ü", "日"),
    ):
        both.ask(Request(101, {"namespace": namespace, "key": key}))
    for namespace, key in (
        ("n", "k"),
        ("n", "k"),
        ("absent", "k"),
        ("n", "empty"),
        ("n", ""),
        ("ü", "日"),
    ):
        both.ask(Request(102, {"namespace": namespace, "key": key}))
    both.ask(Request(219, {"namespace": "n"}))


def test_order_configuration_reaches_brokers_and_routes_the_same(both: Conversation) -> None:
    both.ask(put("ORDER_TOPIC_CONFIG", "T1", "b1:4;b2:4"))
    both.ask(register())
    both.ask(register(broker_id=1))
    both.ask(ROUTE)
    both.ask(update_config("orderMessageEnable=true"))
    both.ask(ROUTE)
    both.ask(Request(105, {"topic": "T2"}))
    both.ask(update_config("orderMessageEnable=false\nreturnOrderTopicConfigToBroker=false"))
    both.ask(register())
    both.ask(update_config("returnOrderTopicConfigToBroker=true"))
    both.ask(Request(102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1"}))
    both.ask(register())


def test_write_permission_is_wiped_and_added_the_same(both: Conversation) -> None:
    both.ask(register())
    both.ask(register(name="b2", address="10.0.0.2:1"))
    for code in (205, 205, 327, 327):
        both.ask(Request(code, {"brokerName": "b1"}))
        for name in ("T1", "T4"):
            both.ask(Request(105, {"topic": name}))
    for code in (205, 327):
        both.ask(Request(code, {"brokerName": "absent"}))


def test_topics_are_registered_and_deleted_the_same(both: Conversation) -> None:
    def queues(*names: str) -> bytes:
        return json.dumps(
            {
                "queueDatas": [
                    {
                        "brokerName": name,
                        "perm": 6,
                        "readQueueNums": 2,
                        "topicSysFlag": 0,
                        "writeQueueNums": 3,
                    }
                    for name in names
                ]
            }
        ).encode()

    both.ask(register())
    both.ask(register(name="b2", cluster="c2", address="10.0.0.2:1"))
    for name, body in (
        ("R1", queues("b1")),
        ("R1", queues("b2", "b1")),
        ("R2", queues("absent")),
        ("R3", queues("b1", "absent", "b2")),
    ):
        both.ask(Request(217, {"topic": name}, body))
        both.ask(Request(105, {"topic": name}))
    for body in (b"", b"{}", b"garbage", b'{"queueDatas":[]}'):
        both.ask(Request(217, {"topic": "R4"}, body))
    both.ask(ALL_TOPICS)
    for header in (
        {"topic": "R1"},
        {"topic": "R1"},
        {"topic": "T1", "clusterName": "c2"},
        {"topic": "T2", "clusterName": "absent"},
    ):
        both.ask(Request(216, header))
        both.ask(Request(105, {"topic": header["topic"]}))
    for header in ({"topic": "T3", "clusterName": ""}, {"topic": "T1", "clusterName": "c1"}):
        both.ask(Request(216, header))
        both.ask(ALL_TOPICS)


def test_the_configuration_is_shown_and_changed_the_same(both: Conversation) -> None:
    both.ask(register())
    both.ask(CONFIG)
    changes = [
        "enableTopicList=false",
        "enableAllTopicList : false",
        "",
        "\n",
        "# only this",
        "kvConfigPath=/x",
        "rocketmqHome=/x",
    ]
    changes += [
        "configStorePath=/x",
        "configBlackList=x",
        "enableTopicList=true\nkvConfigPath=/x",
    ]
    changes += ["enable\\u0054opicList=\\\n  true", "waitSecondsForService=46"]
    for change in changes:
        both.ask(update_config(change))
        both.ask(CONFIG)
        both.ask(Request(224, {"cluster": "c1"}))
        both.ask(ALL_TOPICS)


def test_configuration_that_ours_reads_at_start_only_is_refused_by_ours(both: Conversation) -> None:
    why = (
        "the original stores and shows the new value and goes on with the old one; ours says that"
        " it takes a restart"
    )
    for change, back in (
        ("scanNotActiveBrokerInterval=6000", "5000"),
        ("productEnvName=other", "center"),
        ("clusterTest=true", "false"),
    ):
        both.ask(update_config(change), deviation=why)
        both.ask(update_config(f"{change.split('=')[0]}={back}"), deviation=why)
    both.ask(
        update_config("unknownKey=1"),
        deviation="the original says that all is well; ours says that there is no such key",
    )
    wrong = (
        "a value of the wrong kind: the original ignores a number and takes a word for false, ours"
        " says what is allowed"
    )
    for change in ("waitSecondsForService=many", "needWaitForService=maybe", "enableAllTopicList"):
        both.ask(update_config(change), deviation=wrong)
    both.ask(SWITCHES_AS_AT_START)
    both.ask(CONFIG)
    both.ask(
        update_config("broken=\\u12"),
        deviation="the same code and words, and after them what is wrong",
    )


def test_a_name_server_that_waits_for_service_refuses_routes_the_same(both: Conversation) -> None:
    both.ask(register())
    both.ask(update_config("needWaitForService=true\nwaitSecondsForService=3600"))
    both.ask(ROUTE)
    both.ask(Request(105, {"topic": "absent"}))
    both.ask(CLUSTERS)
    both.ask(update_config("waitSecondsForService=0"))
    both.ask(ROUTE)
    both.ask(update_config("needWaitForService=false\nwaitSecondsForService=45"))


@pytest.mark.parametrize(
    "code", [-1, 0, 1, 10, 11, 17, 28, 34, 202, 310, 902, 1001, 1005, 9999, 200050]
)
def test_codes_that_a_name_server_does_not_serve_are_refused_the_same(
    both: Conversation, code: int
) -> None:
    both.ask(Request(code))
    both.ask(Request(code, {"topic": "T1"}, b"body"))


@pytest.mark.parametrize("code", [100, 103, 105, 322, 904])
def test_requests_without_their_fields_are_answered_the_same(both: Conversation, code: int) -> None:
    both.ask(register())
    for fields in (None, {}, {"unknown": "field"}):
        both.ask(Request(code, fields))


@pytest.mark.parametrize("code", [101, 102, 104, 205, 216, 217, 219, 224, 327, 901])
def test_requests_without_their_fields_are_refused_by_ours(both: Conversation, code: int) -> None:
    both.ask(register())
    for fields in (None, {}, {"unknown": "field"}):
        both.ask(Request(code, fields), deviation=FIELD_MISSING)
    both.ask(CLUSTERS)
    both.ask(ALL_TOPICS)


def test_a_peer_of_an_unknown_language_is_served_the_same(both: Conversation) -> None:
    both.ask(register())
    both.ask(Request(105, {"topic": "T1"}, language="KLINGON"))
    both.ask(Request(105, {"topic": "T1"}, language="RUST"))
