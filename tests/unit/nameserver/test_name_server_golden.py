"""Captured requests of real brokers and clients, answered as the real name server answered them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import BrokerData, ClusterInfo, TopicList, TopicRouteData
from orbitmq.protocol.bodies.registration import RegisterBrokerBody, body_crc32
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.frame import decode_one
from orbitmq.protocol.versions import V5_0_0
from support.common.golden_data import GoldenFrame, frames
from support.nameserver.socketless import NameServerRoom


def captured(code: RequestCode, *, is_request: bool) -> list[GoldenFrame]:
    return [
        golden
        for golden in frames()
        if golden.request_code == code and golden.is_request == is_request
    ]


REGISTRATIONS = captured(RequestCode.REGISTER_BROKER, is_request=True)


@pytest.fixture
def room(tmp_path: Path) -> NameServerRoom:
    return NameServerRoom(tmp_path)


def registration(golden: GoldenFrame) -> tuple[RemotingCommand, dict[str, str], RegisterBrokerBody]:
    request = decode_one(golden.frame)
    fields = request.ext_fields or {}
    return (
        request,
        fields,
        RegisterBrokerBody.decode(
            request.body, compressed=fields["compressed"] == "true", version=request.version
        ),
    )


@pytest.mark.parametrize("golden", REGISTRATIONS, ids=str)
def test_a_captured_registration_carries_its_checksum_and_brings_its_topics(
    room: NameServerRoom, golden: GoldenFrame
) -> None:
    request, fields, content = registration(golden)
    assert body_crc32(request.body or b"") == int(fields["bodyCrc32"])
    answer = room.serve(request)
    if len(content.topics) == 1:  # an addition: the broker has to be there first
        assert answer.code == 1
        room.register(
            fields["brokerName"],
            address=fields["brokerAddr"],
            cluster=fields["clusterName"],
            broker_id=int(fields["brokerId"]),
        )
        answer = room.serve(request)
    assert (answer.code, answer.ext_fields) == (0, {})
    topics = set(
        TopicList.decode(
            room.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body or b""
        ).topics
    )
    assert content.topics.keys() <= topics if fields["brokerId"] == "0" else not topics
    if fields["brokerId"] == "0":
        for topic in content.topics.values():
            route = room.route(topic.name)
            assert route is not None
            assert route.queue_datas[0][1:] == (
                topic.read_queue_nums,
                topic.write_queue_nums,
                topic.perm,
                topic.sys_flag,
            )


@pytest.mark.parametrize("golden", REGISTRATIONS, ids=str)
def test_a_captured_registration_of_5_x_is_written_again_byte_for_byte(golden: GoldenFrame) -> None:
    request, _, content = registration(golden)
    again = content.encode(compressed=(request.body or b"")[:1] == b"\x78", version=request.version)
    if request.version >= V5_0_0:
        assert again == request.body
    else:  # 4.9 has no attributes, mappings and state version
        assert RegisterBrokerBody.decode(again, version=request.version) == content


def by_name(golden: GoldenFrame) -> str:
    return golden.name.rsplit(".", 2)[0]


ROUTES = {
    by_name(golden): golden
    for golden in captured(RequestCode.GET_ROUTEINFO_BY_TOPIC, is_request=False)
}
ROUTE_REQUESTS = [
    golden
    for golden in captured(RequestCode.GET_ROUTEINFO_BY_TOPIC, is_request=True)
    if by_name(golden) in ROUTES
]


@pytest.mark.parametrize("golden", ROUTE_REQUESTS, ids=str)
def test_a_captured_route_request_is_answered_with_the_captured_bytes(
    room: NameServerRoom, golden: GoldenFrame
) -> None:
    request, expected = decode_one(golden.frame), decode_one(ROUTES[by_name(golden)].frame)
    topic = (request.ext_fields or {})["topic"]
    if expected.body is not None:
        route = TopicRouteData.decode(expected.body)
        assert len(route.queue_datas) == 1, "put a broker for each of the queues here"
        register_as_in(room, topic, route)
    answer = room.serve(request)
    assert answer.code == expected.code
    if expected.version >= V5_0_0:  # 4.9 has another page to read on
        assert answer.remark == expected.remark
    if expected.body is not None and b"enableActingMaster" not in expected.body:  # written by 4.9
        assert TopicRouteData.decode(answer.body or b"") == TopicRouteData.decode(expected.body)
    else:
        assert answer.body == expected.body


def register_as_in(room: NameServerRoom, topic: str, route: TopicRouteData) -> None:
    """Make the name server know the one broker of a captured route."""
    broker: BrokerData = route.broker_datas[0]
    for broker_id, address in broker.broker_addrs.items():
        room.register(
            broker.broker_name, broker_id=broker_id, address=address, cluster=broker.cluster
        )
    room.ask(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        fastjson.dumps({"queueDatas": [route.queue_datas[0].to_json()]}),
        topic=topic,
    )


@pytest.mark.parametrize(
    "golden", captured(RequestCode.GET_BROKER_CLUSTER_INFO, is_request=False), ids=str
)
def test_captured_cluster_info_is_told_again(room: NameServerRoom, golden: GoldenFrame) -> None:
    body = decode_one(golden.frame).body or b""
    info = ClusterInfo.decode(body)
    for broker in info.brokers.values():
        for broker_id, address in broker.broker_addrs.items():
            room.register(
                broker.broker_name, broker_id=broker_id, address=address, cluster=broker.cluster
            )
    answer = room.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert ClusterInfo.decode(answer.body or b"") == info
    if b"enableActingMaster" in body:
        assert answer.body == body


@pytest.mark.parametrize(
    "golden", captured(RequestCode.QUERY_DATA_VERSION, is_request=True), ids=str
)
def test_a_captured_version_query_of_a_broker_that_is_not_known_says_that_it_changed(
    room: NameServerRoom, golden: GoldenFrame
) -> None:
    answer = room.serve(decode_one(golden.frame))
    assert (answer.code, answer.ext_fields, answer.body) == (0, {"changed": "true"}, None)


@pytest.mark.parametrize(
    "golden", captured(RequestCode.UNREGISTER_BROKER, is_request=True), ids=str
)
def test_after_a_captured_unregistration_the_broker_is_gone(
    room: NameServerRoom, golden: GoldenFrame
) -> None:
    request = decode_one(golden.frame)
    fields = request.ext_fields or {}
    room.register(
        fields["brokerName"],
        address=fields["brokerAddr"],
        cluster=fields["clusterName"],
        broker_id=int(fields["brokerId"]),
    )
    assert room.serve(request).code == 0
    assert (
        room.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )


def test_the_registration_that_5_5_0_refuses_for_its_own_brokers_is_taken(
    room: NameServerRoom,
) -> None:
    (golden,) = [golden for golden in REGISTRATIONS if "compressedRegister" in golden.name]
    request = decode_one(golden.frame)
    assert (request.ext_fields or {})["compressed"] == "false"
    assert (request.body or b"")[:1] == b"\x78"
    assert room.serve(request).code == 0
    assert room.route("TBW102") is not None
