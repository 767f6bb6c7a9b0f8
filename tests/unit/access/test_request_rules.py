"""Which request needs what: every request that a server of ours serves has a rule, and what a
request names is found.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.access.requests import (
    ACCOUNT_ACTIONS,
    USER_ACTIONS,
    Action,
    Resource,
    group,
    naming_of,
    reply_topic_of,
    resources_in_slices,
    resources_of,
    topic,
)
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.broker.wiring.components import build_components
from orbitmq.broker.wiring.request_layer import RequestLayer
from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.message.message_id import offset_id
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.clients import (
    CHECK_BODY_BYTES_MAX,
    CLIENT_BODY_BYTES_MAX,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    MessageQueue,
)
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import SMALL_BODY_BYTES_MAX
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.base import wire_fields
from orbitmq.protocol.headers.named_resources import NAMING_FIELDS, ResourceKind
from support.broker.bad_input import SERVED
from support.common.process_files import ProcessFiles

# What only administrators may do: accounts with `admin: true`, and super users.
ONLY_ADMINISTRATORS = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
}


def served_by_a_broker(tmp_path: Path) -> set[int]:
    async def build() -> set[int]:
        config = load_broker(flags={"storePathRootDir": str(tmp_path)}).settings
        loop = asyncio.get_running_loop()
        components = build_components(config, SystemClock(), ProcessFiles(), loop)
        requests = RequestLayer(components)
        await components.client.close()
        return set(requests.dispatcher.codes)

    return asyncio.run(build())


def served_by_a_name_server(tmp_path: Path) -> set[int]:
    async def build() -> set[int]:
        server = NameServer(
            NameServerConfig(listen_port=0, kv_config_path=str(tmp_path / "kv.json"))
        )
        await server.start()
        try:
            assert server._server is not None
            return set(server._server.endpoint.dispatcher.codes)
        finally:
            await server.stop()

    return asyncio.run(build())


def test_every_request_that_is_served_has_a_rule_for_users(tmp_path: Path) -> None:
    served = served_by_a_broker(tmp_path) | served_by_a_name_server(tmp_path)
    assert len(served) > 100
    assert served - USER_ACTIONS.keys() == ONLY_ADMINISTRATORS


def test_what_changes_something_needs_an_administrator_among_accounts(tmp_path: Path) -> None:
    changing = {
        code
        for code, actions in USER_ACTIONS.items()
        if actions & {Action.CREATE, Action.UPDATE, Action.DELETE}
    }
    assert changing & ACCOUNT_ACTIONS.keys() == {RequestCode.UPDATE_CONSUMER_OFFSET}
    assert all(
        actions in (frozenset(), frozenset({Action.PUB}), frozenset({Action.SUB}))
        for actions in ACCOUNT_ACTIONS.values()
    )
    assert not ONLY_ADMINISTRATORS & ACCOUNT_ACTIONS.keys()


def test_requests_that_name_a_topic_or_group_ask_for_an_action_on_it() -> None:
    assert NAMING_FIELDS.keys() <= USER_ACTIONS.keys()
    assert all(USER_ACTIONS[code] for code in NAMING_FIELDS)


def request(code: int, body: bytes | None = None, **fields: str) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=fields or None, body=body)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (request(RequestCode.SEND_MESSAGE, topic="T"), [topic("T")]),
        (request(RequestCode.SEND_MESSAGE_V2, b="T", topic="other"), [topic("T")]),
        (request(RequestCode.SEND_BATCH_MESSAGE, b="T"), [topic("T")]),
        (request(RequestCode.SEND_MESSAGE_V2, a="mine", b="%RETRY%theirs"), [group("theirs")]),
        (request(RequestCode.PULL_MESSAGE, topic="T", consumerGroup="g"), [topic("T"), group("g")]),
        (request(RequestCode.PULL_MESSAGE, topic="%RETRY%g", consumerGroup="g"), [group("g")]),
        (
            request(RequestCode.PULL_MESSAGE, topic="%DLQ%g", consumerGroup="g"),
            [topic("%DLQ%g"), group("g")],
        ),
        (request(RequestCode.CONSUMER_SEND_MSG_BACK, group="g"), [group("g")]),
        (
            request(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topicList="A;B;"),
            [group("g"), topic("A"), topic("B")],
        ),
        (
            request(
                RequestCode.QUERY_CORRECTION_OFFSET, filterGroups="a,b", compareGroup="c", topic="T"
            ),
            [topic("T"), *map(group, "abc")],
        ),
        (
            request(RequestCode.REGISTER_BROKER, clusterName="C"),
            [Resource(ResourceKind.CLUSTER, "C")],
        ),
        (request(RequestCode.SEND_REPLY_MESSAGE_V2, b="C_REPLY_TOPIC"), [topic("C_REPLY_TOPIC")]),
        (request(RequestCode.SEND_REPLY_MESSAGE_V2, b="T"), [topic("T")]),
        (request(RequestCode.UNREGISTER_CLIENT, producerGroup="p"), []),
        (request(RequestCode.GET_BROKER_CONFIG), []),
        (
            request(
                RequestCode.HEART_BEAT,
                HeartbeatData(
                    "c",
                    ("p",),
                    (
                        ConsumerData(
                            "g", subscriptions=(SubscriptionData("T"), SubscriptionData("%RETRY%g"))
                        ),
                    ),
                ).encode(),
            ),
            [group("g"), topic("T")],
        ),
        (
            request(
                RequestCode.LOCK_BATCH_MQ,
                LockBatchBody("g", "c", (MessageQueue("T", "b", 0),)).encode(),
            ),
            [group("g"), topic("T")],
        ),
        (
            request(
                RequestCode.CHECK_CLIENT_CONFIG,
                CheckClientRequestBody("c", "g", SubscriptionData("T", "a > 1")).encode(),
            ),
            [group("g"), topic("T")],
        ),
        (
            request(RequestCode.CHECK_CLIENT_CONFIG, CheckClientRequestBody("c").encode()),
            [group(""), topic("")],
        ),
        (
            request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GroupConfig("g").encode()),
            [group("g")],
        ),
        (
            request(
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                fastjson.dumps({"topicConfigList": [{"topicName": "A"}, {"topicName": "B"}]}),
            ),
            [topic("A"), topic("B")],
        ),
    ],
)
def test_what_a_request_names_is_found(asked: RemotingCommand, named: list[Resource]) -> None:
    assert resources_of(asked) == named


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (request(RequestCode.SEND_REPLY_MESSAGE_V2, b="C_REPLY_TOPIC"), []),
        (request(RequestCode.SEND_REPLY_MESSAGE, topic="C_REPLY_TOPIC"), []),
        (
            request(RequestCode.SEND_REPLY_MESSAGE_V2, b="new_REPLY_TOPIC"),
            [topic("new_REPLY_TOPIC")],
        ),
        (request(RequestCode.SEND_REPLY_MESSAGE_V2, b="_REPLY_TOPIC"), [topic("_REPLY_TOPIC")]),
        (request(RequestCode.SEND_REPLY_MESSAGE_V2, b="T"), [topic("T")]),
        (request(RequestCode.SEND_MESSAGE_V2, b="C_REPLY_TOPIC"), [topic("C_REPLY_TOPIC")]),
    ],
)
def test_only_replies_in_the_reply_topic_of_the_cluster_name_nothing(
    asked: RemotingCommand, named: list[Resource]
) -> None:
    assert resources_of(asked, reply_topic=reply_topic_of("C")) == named


def test_a_message_that_is_asked_for_by_its_place_is_of_the_topic_that_it_is_of() -> None:
    topics = {100: "Real", 200: "%RETRY%g"}
    by_id = request(RequestCode.VIEW_MESSAGE_BY_ID, offset="100", topic="Claimed")
    assert resources_of(by_id, topics.get) == [topic("Claimed"), topic("Real")]
    back = request(RequestCode.CONSUMER_SEND_MSG_BACK, offset="200", group="mine")
    assert resources_of(back, topics.get) == [group("mine"), group("g")]
    directly = request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=offset_id(bytes(8), 100), consumerGroup="mine"
    )
    assert resources_of(directly, topics.get) == [group("mine"), topic("Real")]
    resumed = request(
        RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=offset_id(bytes(8), 100), topic="Claimed"
    )
    assert resources_of(resumed, topics.get) == [topic("Claimed"), topic("Real")]
    for same in ("+100", "0100", "0" * 90 + "100"):
        assert resources_of(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=same), topics.get) == [
            topic("Real")
        ], "as its handler reads it"
    for where in ("300", "x", "-1", "9" * 100):
        assert resources_of(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=where), topics.get) == []
    assert naming_of(by_id) is None
    assert naming_of(back) is None


def test_a_body_that_cannot_be_read_is_refused_and_its_decision_not_remembered() -> None:
    asked = request(RequestCode.HEART_BEAT, b"{")
    with pytest.raises(RequestRefusedError, match="the body of request 34 cannot be read"):
        resources_of(asked)
    assert naming_of(asked) is None
    assert naming_of(request(RequestCode.PULL_MESSAGE, topic="T", queueId="1")) == (
        RequestCode.PULL_MESSAGE,
        "T",
        None,
    )


def test_names_in_fields_and_bodies_are_read_in_slices_and_each_once() -> None:
    names = [f"T{number}" for number in range(10_000)]
    fields = request(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topicList=";".join(names))
    queues = tuple(MessageQueue(name, "b", number) for name in names[:9_000] for number in (0, 1))
    locks = request(RequestCode.LOCK_BATCH_MQ, LockBatchBody("g", "c", queues).encode())
    for asked, expected in ((fields, names), (locks, names[:9_000])):
        assert sum(1 for _ in resources_in_slices(asked)) >= 5
        assert set(resources_of(asked)) == {group("g"), *map(topic, expected)}


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (RequestCode.HEART_BEAT, CLIENT_BODY_BYTES_MAX),
        (RequestCode.LOCK_BATCH_MQ, CLIENT_BODY_BYTES_MAX),
        (RequestCode.UNLOCK_BATCH_MQ, CLIENT_BODY_BYTES_MAX),
        (RequestCode.CHECK_CLIENT_CONFIG, CHECK_BODY_BYTES_MAX),
        (RequestCode.SET_MESSAGE_REQUEST_MODE, SMALL_BODY_BYTES_MAX),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, SMALL_BODY_BYTES_MAX),
    ],
)
def test_a_body_above_its_limit_is_refused_before_it_is_read(code: int, limit: int) -> None:
    with pytest.raises(RequestRefusedError, match=str(limit)):
        resources_of(request(code, b"{" * (limit + 1)))


# Fields with such names that name no topic or group whose rights count.
NO_RESOURCES = {
    "default_topic": "the pattern of a topic to be made",
    "default_topic_queue_nums": "a number",
    "default_topic_perm": "a right in a request that is for administrators",
    "default_group_perm": "a right in a request that is for administrators",
    "topic_perms": "rights in a request that is for administrators",
    "group_perms": "rights in a request that is for administrators",
    "topic_filter_type": "a setting",
    "topic_sys_flag": "a setting",
    "group_sys_flag": "a setting",
    "topic_seq": "the place of a page",
    "group_seq": "the place of a page",
    "topics_position": "the place in a table",
    "groups_position": "the place in a table",
    "max_topic_num": "the size of a page",
    "max_group_num": "the size of a page",
    "producer_group": "producers need no right to their group, as in the original",
    "origin_topic": "not read: the message itself says it",
    "lite_topic": "not read",
}


@pytest.mark.parametrize("code", SERVED)
def test_every_field_that_names_a_topic_or_a_group_is_checked(code: int) -> None:
    declared = {field.name for field in NAMING_FIELDS.get(code, ())}
    unchecked = [
        field.name
        for field in wire_fields(SERVED[code].header)
        if ("topic" in field.name or "group" in field.name)
        and field.wire_name not in declared
        and field.name not in NO_RESOURCES
    ]
    assert unchecked == []
