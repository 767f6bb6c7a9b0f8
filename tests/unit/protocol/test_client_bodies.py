"""Bodies about clients: those of real peers round-trip, and unusual ones are understood
or refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import finish
from orbitmq.protocol import fastjson, frame
from orbitmq.protocol.bodies import clients as bodies
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.versions import V5_0_0
from support.common import golden_data

# Sent by the C++ client of the Python package rocketmq 0.4.4: enums by position, versions as texts,
# no empty sets, and undefined codes.
CPP_HEARTBEAT = (
    b'{"clientID":"9965-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"GCPP","messageModel":1,'
    b'"subscriptionDataSet":[{"subString":"*","subVersion":"1794809268728","topic":"%RETRY%GCPP"},{"codeSet":[0,0],'
    b'"subString":"TagA||TagB","subVersion":"1794809268728","tagsSet":["TagA","TagB"],"topic":"ScratchT"}]}],'
    b'"producerDataSet":[{"groupName":"PCPP"}]}\n'
)
CPP_LOCK = b'{"clientId":"c","consumerGroup":"GCPP","mqSet":[{"brokerName":"broker-b","queueId":3,"topic":"ScratchT"}]}\n'


def golden(code: RequestCode, *, is_request: bool, of_5_only: bool = False) -> list[Any]:
    """Return the bodies of all captured frames of this kind."""
    found = []
    for captured in golden_data.frames():
        if captured.request_code == code and captured.is_request == is_request:
            command = frame.decode_one(captured.frame)
            if (
                command.body
                and command.code in (code, 0)
                and (command.version >= V5_0_0 or not of_5_only)
            ):
                found.append(pytest.param(command.body, id=captured.name))
    assert found, f"no golden frames of {code}"
    return found


@pytest.mark.parametrize("body", golden(RequestCode.HEART_BEAT, is_request=True, of_5_only=True))
def test_a_golden_heartbeat_is_read_whole(body: bytes) -> None:
    assert bodies.HeartbeatData.decode(body).encode() == body


@pytest.mark.parametrize("body", golden(RequestCode.HEART_BEAT, is_request=True))
def test_a_golden_heartbeat_of_any_release_says_the_same_when_it_is_written(body: bytes) -> None:
    written = fastjson.loads(bodies.HeartbeatData.decode(body).encode())
    assert {**written, **fastjson.loads(body)} == written


@pytest.mark.parametrize("body", golden(RequestCode.LOCK_BATCH_MQ, is_request=True, of_5_only=True))
def test_a_golden_lock_request_is_read_whole(body: bytes) -> None:
    assert bodies.LockBatchBody.decode(body).encode() == body


@pytest.mark.parametrize("body", golden(RequestCode.LOCK_BATCH_MQ, is_request=False))
def test_golden_locked_queues_are_read_and_written_as_they_were(body: bytes) -> None:
    queues = bodies.decode_locked_queues(body)
    assert len(queues) == 1
    assert finish(bodies.encode_locked_queues(queues)) == body


@pytest.mark.parametrize("body", golden(RequestCode.GET_CONSUMER_LIST_BY_GROUP, is_request=False))
def test_golden_consumer_ids_are_read_and_written_as_they_were(body: bytes) -> None:
    assert finish(bodies.encode_consumer_ids(bodies.decode_consumer_ids(body))) == body


@pytest.mark.parametrize("body", golden(RequestCode.GET_CONSUMER_CONNECTION_LIST, is_request=False))
def test_golden_consumer_connections_are_read_and_written_as_they_were(body: bytes) -> None:
    connection = bodies.ConsumerConnection.decode(body)
    assert next(iter(connection.connections)).language == "JAVA"
    assert finish(connection.encode()) == body


@pytest.mark.parametrize("body", golden(RequestCode.CHECK_CLIENT_CONFIG, is_request=True))
def test_a_golden_check_of_an_expression_is_read_and_written_as_it_was(body: bytes) -> None:
    check = bodies.CheckClientRequestBody.decode(body)
    assert check.encode() == body
    assert check.subscription is not None
    assert check.subscription.expression_type == "SQL92"
    assert check.subscription.to_json() == fastjson.loads(body)["subscriptionData"]
    assert check.group is not None
    assert check.client_id is not None


def test_producer_connections_and_the_table_of_all_producers_are_those_of_a_real_broker() -> None:
    connections = [bodies.ClientConnection("c1", "127.0.0.1:38546", "JAVA", 513)]
    listed = b'{"connectionSet":[{"clientAddr":"127.0.0.1:38546","clientId":"c1","language":"JAVA","version":513}]}'
    assert finish(bodies.encode_producer_connection(connections)) == listed
    assert bodies.decode_producer_connection(listed) == connections
    table = {"p1": [bodies.ProducerInfo("c1", "/127.0.0.1:38546", "JAVA", 513, 1794808194671)]}
    assert (
        finish(bodies.encode_producer_table(table.items()))
        == b'{"data":{"p1":[{"clientId":"c1","language":"JAVA","lastUpdateTimestamp":1794808194671,'
        b'"remoteIP":"/127.0.0.1:38546","version":513}]}}'
    )


def test_what_the_cpp_client_sends_is_understood() -> None:
    heartbeat = bodies.HeartbeatData.decode(CPP_HEARTBEAT)
    (consumer,) = heartbeat.consumers
    assert (heartbeat.client_id, heartbeat.producer_groups) == ("9965-127.0.0.1@DEFAULT", ("PCPP",))
    assert (heartbeat.fingerprint, heartbeat.without_sub) == (0, False)
    assert consumer == bodies.ConsumerData(
        "GCPP",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        (
            SubscriptionData("%RETRY%GCPP", "*", 1794809268728),
            SubscriptionData("ScratchT", "TagA||TagB", 1794809268728, ("TagA", "TagB"), (0,)),
        ),
    )
    assert bodies.LockBatchBody.decode(CPP_LOCK) == bodies.LockBatchBody(
        "GCPP", "c", (bodies.MessageQueue("ScratchT", "broker-b", 3),)
    )


def test_members_that_are_missing_null_or_not_known_do_not_hinder() -> None:
    heartbeat = bodies.HeartbeatData.decode(
        b'{"clientID":"c","producerDataSet":null,"new":{"a":[1]},"consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
        b'[{"topic":"T","codeSet":["5",null,7,5],"tagsSet":null,"expressionType":null}]},{"groupName":"H","subscriptionDataSet":null,'
        b'"consumeType":"consume_pop","messageModel":"0","consumeFromWhere":"FROM_THE_MOON"}]}'
    )
    first, second = heartbeat.consumers
    assert first == bodies.ConsumerData(
        "G", subscriptions=(SubscriptionData("T", None, 0, (), (5, 7), None),)
    )
    assert second == bodies.ConsumerData("H", ConsumeType.CONSUME_POP, MessageModel.BROADCASTING)
    assert bodies.HeartbeatData.decode(b'{"clientID":"c"}') == bodies.HeartbeatData("c")


def test_a_queue_may_leave_out_what_it_has_the_default_of_and_counts_once() -> None:
    body = bodies.LockBatchBody.decode(
        b'{"clientId":"c","consumerGroup":"G","mqSet":[{"topic":"T"},{"queueId":"0","topic":"T","x":1}]}'
    )
    assert body == bodies.LockBatchBody("G", "c", (bodies.MessageQueue("T", "", 0),))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "has no body; send HeartbeatData as JSON"),
        (b"", "has no body"),
        (b"[]", "must be a JSON object"),
        (b"{nope", "bad JSON"),
        (b"{}", "has no clientID"),
        (b'{"clientID":5}', "clientID must be a text"),
        (b'{"clientID":"c","producerDataSet":[{}]}', "producerDataSet has no groupName"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":""}]}',
            "consumerDataSet has no groupName",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{}]}]}',
            "names no topic",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":3}]}',
            "must be one of CONSUME_ACTIVELY",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":-1}]}',
            "must be one of BROADCASTING",
        ),
        (b'{"clientID":"c","consumerDataSet":{"groupName":"G"}}', "a list is expected"),
        (b'{"clientID":"c","heartbeatFingerprint":4294967296}', "must fit 32 bits"),
    ],
)
def test_a_heartbeat_that_says_too_little_is_refused_with_what_it_lacks(
    body: bytes | None, why: str
) -> None:
    with pytest.raises(ProtocolError, match=why):
        bodies.HeartbeatData.decode(body)


@pytest.mark.parametrize("body", [None, b'{"clientId":"c"}', b'{"consumerGroup":"G"}', b"5"])
def test_a_lock_request_must_say_who_asks_for_which_group(body: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        bodies.LockBatchBody.decode(body)


@pytest.mark.parametrize(
    ("subscription", "codes"),
    [
        (SubscriptionData("T"), None),
        (SubscriptionData("T", "a || b", codes=(97, 98)), frozenset({97, 98})),
        (SubscriptionData("T", " "), frozenset()),
        (SubscriptionData("T", "a > 1", expression_type="SQL92"), None),
        (SubscriptionData("T", "a", codes=(97,), expression_type=None), frozenset({97})),
        (SubscriptionData("T", "Filter", class_filter_mode=True), None),
    ],
)
def test_a_subscription_knows_which_codes_it_wants(
    subscription: SubscriptionData, codes: frozenset[int] | None
) -> None:
    assert subscription.wanted_codes == codes
