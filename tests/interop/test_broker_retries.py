"""Messages that come again, dead letters and replies, as raw frames to the original 5.5.0 and to
ours: answers and records are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from interop.broker_conversation import BrokerConversation, broker_differences, comparable
from interop.broker_pair import TOPIC, Row, ask_all, row, sent, without
from interop.frames import Answer, Connection, Request

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven")]

WORDS = "ours says why in words of its own"
_ID_S_PORT = re.compile(rb"(?<=ORIGIN_MESSAGE_ID\x017F000001)[0-9A-F]{8}")

PULL = {
    "consumerGroup": "looks",
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
BACK = {
    "offset": "0",
    "group": "g",
    "delayLevel": "0",
    "originMsgId": "id",
    "originTopic": "T",
    "unitMode": "false",
}
REPLY = {
    "producerGroup": "p",
    "topic": "DefaultCluster_REPLY_TOPIC",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "3",
    "reconsumeTimes": "0",
    "unitMode": "false",
}
LETTERS = dict(
    zip(
        (*without(REPLY, "reconsumeTimes", "unitMode"), "properties", "reconsumeTimes", "unitMode"),
        "abcdefghijk",
        strict=True,
    )
)


def texts(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def look_alike(both: BrokerConversation, topic: str, queue_id: int = 0) -> None:
    """Compare what a topic of the broker's own has stored, but for where in the log that is and
    which port the first id says.
    """
    found = [
        comparable(connection.ask(Request(11, {**PULL, "topic": topic, "queueId": str(queue_id)})))
        for connection in both.on("main")
    ]
    for answer in found:
        for record in answer["body"]:
            record["fixed"] = record["fixed"][:56] + record["fixed"][72:]
            record["properties"] = [_ID_S_PORT.sub(b"", text) for text in record["properties"]]
    assert found[0] == found[1], topic
    assert found[0]["body"], topic


def answers_alike(both: BrokerConversation, request: Request) -> Answer:
    """Ask both, and compare all but the id of the message, which says a port."""
    answers = [connection.ask(request) for connection in both.on("main")]
    for answer in answers:
        if answer.fields.get("msgId", "0") != "0":
            answer.fields["msgId"] = "an id"
    assert not broker_differences(*answers), request
    return answers[0]


def retried(number: int, **changes: str) -> dict[str, str]:
    """What a consumer sends to the retry topic of group `r` by itself."""
    fields = sent(number, **{"topic": "%RETRY%r", "queueId": "0", **changes}).fields
    assert fields is not None
    return fields


SECTIONS: dict[str, list[Row]] = {
    "sent back": [
        row(17, TOPIC),
        *map(sent, range(2)),
        *(
            row(36, BACK | change)
            for change in (
                {},
                {"delayLevel": "5"},
                {"delayLevel": "17", "unitMode": "true"},
                {"delayLevel": "99"},
            )
        ),
        row(351, {"topic": "%RETRY%g"}),
        row(315, {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "T@g"}),
    ],
    "a group's own numbers": [
        row(200, None, {"groupName": "few", "retryMaxTimes": 0, "retryQueueNums": 1}),
        row(36, BACK | {"group": "few"}),
        row(36, BACK | {"group": "few", "maxReconsumeTimes": "3"}),
        row(351, {"topic": "%DLQ%few"}),
        row(
            200,
            None,
            {
                "groupName": "policy",
                "groupRetryPolicy": {
                    "type": "EXPONENTIAL",
                    "exponentialRetryPolicy": {"initial": 1000, "max": 2000, "multiplier": 2},
                },
            },
        ),
        row(36, BACK | {"group": "policy"}),
        row(200, None, {"groupName": "none", "retryQueueNums": 0}),
        row(36, BACK | {"group": "none"}),
        row(351, {"topic": "%RETRY%none"}),
    ],
    "dead letters": [
        row(36, BACK | {"delayLevel": "-1"}),
        row(36, BACK | {"maxReconsumeTimes": "0"}),
        row(36, BACK | {"maxReconsumeTimes": "-1"}),
        row(351, {"topic": "%DLQ%g"}),
    ],
    "what is refused": [
        *(row(36, BACK | {"offset": offset}) for offset in ("1", "-1", "100000000", "x")),
        row(36, BACK | {"group": "a b"}),
        row(36, BACK | {"delayLevel": "x"}),
        *(row(36, without(BACK, name)) for name in ("originMsgId", "originTopic", "unitMode")),
        *(row(36, without(BACK, name)) for name in ("offset", "group", "delayLevel")),
        row(36),
        row(17, {**TOPIC, "topic": "%RETRY%g", "perm": "4"}),
        row(36, BACK),
        row(17, {**TOPIC, "topic": "%RETRY%g", "perm": "6"}),
        row(25, None, b"brokerPermission=4\n"),
        row(36, BACK),
        row(25, None, b"brokerPermission=6\n"),
    ],
}


@pytest.mark.parametrize("section", SECTIONS)
def test_both_send_back_alike(both_brokers: BrokerConversation, section: str) -> None:
    ask_all(both_brokers, SECTIONS[section])


def test_both_store_the_same_of_what_was_sent_back(both_brokers: BrokerConversation) -> None:
    for level in (3, 5, 17, 18):
        look_alike(both_brokers, "SCHEDULE_TOPIC_XXXX", level - 1)
    for topic in ("%DLQ%few", "%DLQ%g"):
        look_alike(both_brokers, topic)


def test_both_take_what_a_consumer_sends_to_its_retry_topic_alike(
    both_brokers: BrokerConversation,
) -> None:
    delayed = {
        "properties": texts(
            UNIQ_KEY="0A00000100000000000000000000FF00", RETRY_TOPIC="T", DELAY="16", WAIT="false"
        )
    }
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    lock = {"clientId": "c", "consumerGroup": "r", "mqSet": [queue], "onlyThisBroker": False}
    for number, change in enumerate(
        (
            delayed | {"reconsumeTimes": "1"},
            delayed | {"reconsumeTimes": "16"},
            delayed | {"reconsumeTimes": "17"},
            delayed | {"reconsumeTimes": "3", "maxReconsumeTimes": "2"},
            {"reconsumeTimes": "3", "maxReconsumeTimes": "2", "queueId": "3"},
        )
    ):
        answers_alike(both_brokers, Request(10, retried(number, **change), b"again"))
    ask_all(both_brokers, [row(41, None, lock)])
    answers_alike(both_brokers, Request(10, retried(5, **delayed, reconsumeTimes="1"), b"in order"))
    ask_all(both_brokers, [row(42, None, lock)])
    answers_alike(both_brokers, Request(10, retried(6, **delayed, reconsumeTimes="1"), b"no more"))
    look_alike(both_brokers, "SCHEDULE_TOPIC_XXXX", 15)
    look_alike(both_brokers, "%DLQ%r")
    ask_all(both_brokers, [row(351, {"topic": "%RETRY%r"}), row(351, {"topic": "%DLQ%r"})])


# -- replies


def heartbeat(client: str) -> bytes:
    return json.dumps(
        {"clientID": client, "producerDataSet": [{"groupName": "askers"}], "consumerDataSet": []}
    ).encode()


def answer_with(connections: Sequence[Connection], questions: Sequence[Answer], code: int) -> None:
    for connection, question in zip(connections, questions, strict=True):
        members: dict[str, Any] = {
            "code": code,
            "flag": 1,
            "language": "JAVA",
            "opaque": question.opaque,
            "version": 513,
        }
        header = json.dumps(members | ({"remark": "no"} if code else {})).encode()
        connection.send_bytes(
            (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        )


@pytest.mark.parametrize("in_letters", [False, True])
@pytest.mark.parametrize("code", [0, 1])
def test_both_bring_a_reply_to_the_client_that_asked(
    both_brokers: BrokerConversation, in_letters: bool, code: int
) -> None:
    askers = both_brokers.on("asker")
    for connection in askers:
        assert connection.ask(Request(34, None, heartbeat("asker-1"))).code == 0
    fields = REPLY | {
        "properties": texts(
            REPLY_TO_CLIENT="asker-1", CORRELATION_ID="7", MSG_TYPE="reply", own="größe"
        )
    }
    reply = (
        Request(325, {LETTERS[name]: value for name, value in fields.items()}, b"body")
        if in_letters
        else Request(324, fields, b"body")
    )
    repliers = both_brokers.on("main")
    for connection in repliers:
        connection.send(reply)
    brought = [connection.receive() for connection in askers]
    for each in brought:
        assert each.fields.keys() >= {"bornHost", "storeHost"}
        properties = dict(
            text.split("\x01") for text in each.fields.pop("properties").split("\x02") if text
        )
        assert properties.pop("PUSH_REPLY_TIME").isdecimal()
        each.fields.update(properties)
    assert not broker_differences(*brought)
    assert brought[0].body == b"body"
    answer_with(askers, brought, code)
    answers = [connection.receive() for connection in repliers]
    for each in answers:
        assert each.fields.pop("msgId")
    assert not broker_differences(*answers)
    look_alike(both_brokers, "DefaultCluster_REPLY_TOPIC")


def test_both_refuse_replies_that_cannot_be_brought_alike(both_brokers: BrokerConversation) -> None:
    gone = REPLY | {"properties": texts(REPLY_TO_CLIENT="gone")}
    for fields in (gone, REPLY, REPLY | {"properties": ""}):
        answers_alike(both_brokers, Request(324, fields, b"nobody"))
    elsewhere = [
        row(324, gone | change, b"nobody", deviation=WORDS)
        for change in ({"queueId": "9"}, {"topic": "SCHEDULE_TOPIC_XXXX"})
    ]
    elsewhere.append(row(324, gone | {"topic": "a b"}, b"nobody"))
    wrong = [row(324, gone | {"queueId": "x"}, b"nobody"), row(324, None, b"nobody")]
    ask_all(both_brokers, [*elsewhere, *wrong])
    look_alike(both_brokers, "DefaultCluster_REPLY_TOPIC")
    end = row(30, {"topic": "DefaultCluster_REPLY_TOPIC", "queueId": "0"})
    off, on = (
        row(25, None, f"storeReplyMessageEnable={value}\n".encode()) for value in ("false", "true")
    )
    ask_all(both_brokers, [end, off, row(324, gone, b"nobody"), end, on])
