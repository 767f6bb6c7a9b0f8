"""Requests of clients, and the life of a topic, as raw frames to the original 5.5.0 and to ours:
the answers are the same.

As in `test_broker_requests`, with what clients send instead of operators: pulls, heartbeats, locks,
and questions that brokers pass on.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from interop.broker_conversation import BrokerConversation, broker_differences
from interop.broker_pair import MISSING, TOPIC, Row, ask_all, row, sent, without
from interop.frames import Answer, Connection, Request

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

NAMELESS = "the original takes clients and groups without a name; ours says what is missing"
BELOW_ZERO = (
    "the original commits an offset below zero, and so forgets how far the group was; ours does not"
)
PULL_RETRY_IMMEDIATELY = 20
QUEUE = "the original locks a queue of no topic; ours has a name for each"

PULL = {
    "consumerGroup": "pulls",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "1000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [],
    "expressionType": "TAG",
    "subString": "*",
    "subVersion": 1,
    "tagsSet": [],
}


def queue(queue_id: int, topic: str = "T", broker: str = "broker-a") -> dict[str, Any]:
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}


def locks(client: str, *queues: Any, group: str = "locks") -> dict[str, Any]:
    return {"clientId": client, "consumerGroup": group, "mqSet": queues, "onlyThisBroker": False}


def check_of(kind: str | None, expression: str) -> dict[str, Any]:
    data = {**SUBSCRIPTION, "topic": "T", "expressionType": kind, "subString": expression}
    return {"clientId": "c", "group": "g", "subscriptionData": data, "namespace": None}


def heartbeat(
    client: str = "client-1", group: str = "g", *topics: str, **members: Any
) -> dict[str, Any]:
    """What a client says that consumes and sends; `model` and `producers` are what they are
    to it.
    """
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": members.pop("model", "CLUSTERING"),
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{**SUBSCRIPTION, "topic": topic} for topic in topics or ("T",)],
        "unitMode": False,
    }
    producers = [{"groupName": name} for name in members.pop("producers", ("p",))]
    return {
        "clientID": client,
        "producerDataSet": producers,
        "consumerDataSet": [consumer],
        **members,
    }


def pulls(code: int) -> list[Row]:
    """Everything that a pull may say, but for waiting."""
    changes: list[dict[str, str]] = [
        {},
        *({"queueId": queue_id} for queue_id in ("1", "2", "9", "-1", "4", "x")),
        *({"queueOffset": offset} for offset in ("1", "3", "4", "100", "-1")),
        {"queueId": "2", "queueOffset": "3"},
        *({"topic": topic} for topic in ("nope", "")),
        *({"consumerGroup": group} for group in ("a b", "")),
        *({"maxMsgNums": count} for count in ("2", "0", "-1", "1000000")),
        *(
            {"subscription": expression}
            for expression in ("tag", "tag || other", "other", "tag || ", "", "||")
        ),
        *({"expressionType": kind, "subscription": "a = 1"} for kind in ("SQL92", "WRONG", "")),
        *({"sysFlag": flag} for flag in ("0", "12", "20")),
        {"sysFlag": "5", "commitOffset": "2"},
        {"maxMsgBytes": "10"},
        {"subVersion": "x"},
        {"lo": "false"},
    ]
    harmless = ("commitOffset", "suspendTimeoutMillis", "subVersion")  # to the original
    return [
        *(row(code, {**PULL, **change}) for change in changes),
        *(
            row(code, without(PULL, name), deviation=MISSING if name in harmless else None)
            for name in PULL
        ),
        row(code),
        row(43),
        row(208, {"consumerGroup": "pulls"}),
    ]


SECTIONS: dict[str, list[Row]] = {
    "pulls": [
        row(17, TOPIC),
        *map(sent, range(6)),
        row(30, {"topic": "T", "queueId": "1"}),
        *pulls(11),
        *pulls(361),
        row(11, {**PULL, "consumerGroup": "below", "sysFlag": "5", "commitOffset": "-3"}),
        row(14, {"consumerGroup": "below", "topic": "T", "queueId": "0"}),
        row(43, deviation=BELOW_ZERO),
        row(207, {"groupName": "below", "cleanOffset": "true"}),
        row(200, None, {"groupName": "below"}),
    ],
    "resets": [
        row(200, None, {"groupName": "resets"}),
        *(
            each
            for change in (
                {},
                {"queueOffset": "3"},
                {"queueOffset": "90"},
                {"sysFlag": "6", "queueOffset": "3"},
                {"subscription": "other"},
            )
            for each in (
                row(
                    222,
                    {
                        "topic": "T",
                        "group": "resets",
                        "timestamp": "0",
                        "isForce": "true",
                        "queueId": "0",
                        "offset": "2",
                    },
                ),
                row(11, {**PULL, "consumerGroup": "resets", **change}),
                row(208, {"consumerGroup": "resets", "topic": "T"}),
            )
        ),
    ],
    "permissions": [
        *(
            each
            for perm in ("2", "0", "4", "6")
            for each in (row(17, {**TOPIC, "perm": perm}), sent(6, queueId="3"), row(11, PULL))
        ),
        row(200, None, {"groupName": "off", "consumeEnable": False}),
        row(11, {**PULL, "consumerGroup": "off"}),
        row(25, None, b"litePullMessageEnable=false\n"),
        row(361, PULL),
        row(25, None, b"litePullMessageEnable=true\nbrokerPermission=2\n"),
        row(11, PULL),
        row(25, None, b"brokerPermission=6\n"),
    ],
    "locks": [
        row(41, None, locks("a", queue(0), queue(1))),
        row(41, None, locks("b", queue(0), queue(2))),
        row(41, None, locks("a", queue(0))),
        row(42, None, locks("b", queue(0))),
        row(41, None, locks("b", queue(0))),
        row(42, None, locks("a", queue(0))),
        row(41, None, locks("b", queue(0))),
        row(42, None, locks("a", queue(0), group="nobody")),
        *(
            row(41, None, locks("a", *queues))
            for queues in (
                (),
                (queue(99),),
                (queue(-1),),
                (queue(0, "nope"),),
                (queue(0, "T", "other"),),
            )
        ),
        row(41, None, locks("a", queue(0), group=""), deviation=NAMELESS),
        row(41, None, locks("", queue(3)), deviation=NAMELESS),
        row(41, None, b"{}", deviation=NAMELESS),
        row(41, None, locks("a", {}), deviation=QUEUE),
        row(41, None, locks("a", None)),
        row(41, None, {"clientId": "a", "consumerGroup": "locks"}),
        *(row(code, None, body) for code in (41, 42) for body in (b"null", b"[", b"")),
    ],
    "clients": [
        *(row(code) for code in (34, 46, 38, 203, 204, 328, 307, 309)),
        *(
            row(code, {"consumerGroup": group, "clientId": "c"})
            for code in (38, 203, 307, 309)
            for group in ("nobody", "")
        ),
        *(row(204, {"producerGroup": group}) for group in ("nobody", "")),
        *(
            row(46, None, check_of(kind, text))
            for kind, text in (
                ("TAG", "*"),
                ("SQL92", "a = 1"),
                ("WRONG", "x"),
                (None, "*"),
                ("", "x"),
            )
        ),
        *(
            row(46, None, body)
            for body in (b"{}", b"[", b"", b'{"group":"g"}', b'{"subscriptionData":{}}')
        ),
        row(46, None, b"null", deviation=NAMELESS),
        *(row(34, None, body) for body in (b'{"clientID":"c"}', b"null", b"[]", b"{", b"")),
        *(
            row(34, None, body, deviation=NAMELESS)
            for body in (b"{}", b'{"clientID":null,"consumerDataSet":[],"producerDataSet":[]}')
        ),
        row(35, {"clientID": "c"}),
        row(35, {"clientID": "c", "producerGroup": "nobody", "consumerGroup": "nobody"}),
        *(row(35, fields, deviation=MISSING) for fields in (None, {}, {"consumerGroup": "g"})),
    ],
    "topics that come to be": [
        *(
            each
            for name, change in {
                "Plain": {},
                "Many": {"defaultTopicQueueNums": "100"},
                "One": {"defaultTopicQueueNums": "1", "queueId": "-1"},
                "Unit": {"unitMode": "true"},
                "OfCluster": {"defaultTopic": "DefaultCluster", "defaultTopicQueueNums": "20"},
                "OfBroker": {"defaultTopic": "broker-a"},
                "%RETRY%r": {},
                "%RETRY%r2": {"defaultTopic": "nope"},
                "x" * 127: {},
            }.items()
            for each in (
                sent(7, **{"queueId": "0", **change, "topic": name}),
                row(351, {"topic": name}),
            )
        ),
        row(
            17,
            {
                **TOPIC,
                "topic": "Template",
                "perm": "7",
                "topicFilterType": "MULTI_TAG",
                "readQueueNums": "3",
                "writeQueueNums": "2",
            },
        ),
        sent(7, topic="Heir", defaultTopic="Template"),
        row(351, {"topic": "Heir"}),
        row(25, None, b"autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n"),
        sent(7, topic="Stranger")._replace(deviation=None),
        row(351, {"topic": "Stranger"}),
        row(11, {**PULL, "consumerGroup": "stranger"}),
        row(352, {"group": "stranger"}),
        row(352, {"group": "CID_RMQ_SYS_stranger"}),
        row(25, None, b"autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true\n"),
    ],
    "queues that come and go": [
        row(17, {**TOPIC, "topic": "Q"}),
        *(
            each
            for reads, writes in ((4, 4), (2, 2), (2, 4), (4, 1))
            for each in (
                row(
                    17,
                    {
                        **TOPIC,
                        "topic": "Q",
                        "readQueueNums": str(reads),
                        "writeQueueNums": str(writes),
                    },
                ),
                *(
                    sent(8, topic="Q", queueId=str(queue_id))
                    for queue_id in (*range(5), -1 if writes == 1 else 0)
                ),
                *(
                    row(11, {**PULL, "topic": "Q", "queueId": str(queue_id)})
                    for queue_id in range(5)
                ),
                *(
                    row(code, {"topic": "Q", "queueId": str(queue_id)})
                    for queue_id in range(5)
                    for code in (30, 31)
                ),
                row(202, {"topic": "Q"}),
                row(208, {"consumerGroup": "pulls", "topic": "Q"}),
            )
        ),
    ],
    "topics that go": [
        row(15, {"consumerGroup": "pulls", "topic": "Q", "queueId": "0", "commitOffset": "2"}),
        row(215, {"topic": "Q"}),
        *(
            row(code, {"topic": "Q", "queueId": str(queue_id)})
            for queue_id in range(4)
            for code in (30, 31, 32)
        ),
        *(row(code, {"topic": "Q"}) for code in (202, 300, 351)),
        row(14, {"consumerGroup": "pulls", "topic": "Q", "queueId": "0"}),
        row(11, {**PULL, "topic": "Q"}),
        row(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Q"}),
        sent(9, topic="Q")._replace(deviation=None),
        row(11, {**PULL, "topic": "Q", "queueId": "1"}),
        row(30, {"topic": "Q", "queueId": "1"}),
        row(14, {"consumerGroup": "pulls", "topic": "Q", "queueId": "1"}),
        row(202, {"topic": "Q"}),
        row(208, {"consumerGroup": "pulls", "topic": "Q"}),
        row(321, {"topic": "Q", "queueId": "1", "index": "0", "count": "9"}),
    ],
}


@pytest.mark.parametrize("section", SECTIONS)
def test_both_answer_the_same(both_brokers: BrokerConversation, section: str) -> None:
    ask_all(both_brokers, SECTIONS[section])


def test_a_pull_that_waits_is_answered_by_a_message_or_when_it_waited_long_enough(
    both_brokers: BrokerConversation,
) -> None:
    ask_all(both_brokers, [row(17, {**TOPIC, "topic": "Awaited"})])
    wanted = {
        **PULL,
        "topic": "Awaited",
        "sysFlag": "6",
        "suspendTimeoutMillis": "100",
        "subscription": "tag",
    }
    waiting = both_brokers.on("waiting")
    for connection in waiting:
        connection.send(Request(11, wanted))
    assert not broker_differences(*(connection.receive() for connection in waiting)), "nothing came"
    for connection in waiting:
        connection.send(Request(11, {**wanted, "suspendTimeoutMillis": "60000"}))
    ask_all(
        both_brokers,
        [
            sent(10, topic="Awaited", queueId="0", properties="TAGS\x01other\x02"),
            sent(11, topic="Awaited", queueId="0"),
        ],
    )
    found = [pulled_again(connection, wanted) for connection in waiting]
    assert (found[0].code, broker_differences(*found)) == (0, [])


def pulled_again(connection: Connection, wanted: dict[str, str]) -> Answer:
    """What comes at last to a client that asks again at once when it is told to, as it is when its
    pull came between two messages.
    """
    while (found := connection.receive()).code == PULL_RETRY_IMMEDIATELY:
        connection.send(
            Request(
                11,
                {
                    **wanted,
                    "queueOffset": found.fields["nextBeginOffset"],
                    "suspendTimeoutMillis": "60000",
                },
            )
        )
    return found


def beaten(connection: Connection, body: Any) -> list[Answer]:
    """The answer to a heartbeat, and what the broker tells the client before that."""
    opaque = connection.send(Request(34, {}, json.dumps(body).encode()))
    heard = [connection.receive()]
    while heard[-1].opaque != opaque or heard[-1].flag != 1:
        heard.append(connection.receive())
    return sorted(heard, key=lambda answer: answer.code)


def test_heartbeats_are_answered_and_told_the_same(both_brokers: BrokerConversation) -> None:
    def beat(body: Any, on: str = "client-1") -> None:
        heard = [beaten(connection, body) for connection in both_brokers.on(on)]
        assert [answer.code for answer in heard[0]] == [answer.code for answer in heard[1]], body
        for pair in zip(*heard, strict=True):
            assert not broker_differences(*pair), body

    beat(heartbeat())
    ask_all(
        both_brokers,
        [
            row(203, {"consumerGroup": "g"}),
            row(204, {"producerGroup": "p"}),
            row(38, {"consumerGroup": "g"}),
            row(328),
        ],
    )
    ask_all(
        both_brokers,
        [row(351, {"topic": "%RETRY%g"}), row(352, {"group": "g"}), row(300, {"topic": "T"})],
    )
    beat(heartbeat())
    beat(heartbeat(heartbeatFingerprint=7, withoutSub=False))
    beat(heartbeat(heartbeatFingerprint=7, withoutSub=True))
    beat(heartbeat(heartbeatFingerprint=8, withoutSub=True))
    beat(heartbeat("client-1", "g", "T", "Other"))
    ask_all(both_brokers, [row(203, {"consumerGroup": "g"})])
    for number, body in enumerate(
        (
            heartbeat("other", "a b"),
            heartbeat("other", "unknown-topic", "nope"),
            heartbeat("other", "broadcast", model="BROADCASTING"),
            heartbeat("other", "odd", model="WRONG"),
            heartbeat("other", "g2", producers=("x y",)),
        )
    ):
        beat(body, f"other-{number}")
    ask_all(
        both_brokers,
        [
            row(203, {"consumerGroup": group})
            for group in ("a b", "unknown-topic", "broadcast", "odd")
        ],
    )
    both_brokers.ask(
        Request(35, {"clientID": "client-1", "producerGroup": "p", "consumerGroup": "g"}),
        on="client-1",
    )
    ask_all(both_brokers, [row(203, {"consumerGroup": "g"}), row(38, {"consumerGroup": "g"})])


def test_subscriptions_decide_what_is_pulled_and_who_may(both_brokers: BrokerConversation) -> None:
    for connection in both_brokers.on("consumer"):
        beaten(connection, heartbeat("client-2", "subscribers", "T"))
    own = {**PULL, "consumerGroup": "subscribers", "sysFlag": "0"}
    ask_all(
        both_brokers,
        [
            row(11, {**own, "subVersion": "1"}),
            row(11, {**own, "subVersion": "2"}),
            row(11, {**own, "topic": "Plain"}),
            row(353, {"group": "subscribers", "topic": "T", "readable": "false"}),
            row(11, {**own, "subVersion": "1"}),
            row(353, {"group": "subscribers", "topic": "T", "readable": "true"}),
            row(200, None, {"groupName": "broadcasts", "consumeBroadcastEnable": False}),
        ],
    )
    for connection in both_brokers.on("broadcaster"):
        beaten(connection, heartbeat("client-3", "broadcasts", "T", model="BROADCASTING"))
    ask_all(both_brokers, [row(11, {**own, "consumerGroup": "broadcasts", "subVersion": "1"})])


@pytest.mark.parametrize(
    ("code", "fields"),
    [(307, {"jstackEnable": "false"}), (309, {"topic": "T"}), (309, {})],
    ids=["running info", "a message to consume", "a message of no topic"],
)
def test_questions_for_a_client_are_passed_on(
    both_brokers: BrokerConversation, code: int, fields: dict[str, str]
) -> None:
    consumers = both_brokers.on("consumer")
    for connection in consumers:
        beaten(connection, heartbeat("client-4", "asked", "T"))
    asked = []
    for connection in both_brokers.on("main"):
        found = connection.ask(
            Request(
                12,
                {
                    "topic": "T",
                    "key": "k0",
                    "maxNum": "1",
                    "beginTimestamp": "0",
                    "endTimestamp": "9000000000000",
                },
            )
        )
        host, offset = (
            found.body[64:72],
            found.body[28:36],
        )  # where its record says that it is stored
        message = {"msgId": (host + offset).hex().upper()} if code == 309 else {}
        asked.append(
            connection.send(
                Request(
                    code, {"consumerGroup": "asked", "clientId": "client-4", **fields, **message}
                )
            )
        )
    questions = [connection.receive() for connection in consumers]
    assert [question.code for question in questions] == [code, code]
    for question in questions:
        question.fields.pop("msgId", None)
    assert not broker_differences(*questions)
    for connection, question in zip(consumers, questions, strict=True):
        header = json.dumps(
            {"code": 0, "flag": 1, "language": "JAVA", "opaque": question.opaque, "version": 513}
        ).encode()
        body = b'{"consumeResult":"CR_SUCCESS"}'
        connection.send_bytes(
            (4 + len(header) + len(body)).to_bytes(4, "big")
            + len(header).to_bytes(4, "big")
            + header
            + body
        )
    answers = [connection.receive() for connection in both_brokers.on("main")]
    assert [answer.opaque for answer in answers] == asked
    assert (answers[0].code, broker_differences(*answers)) == (0, [])
