"""Requests of operators and look-ups in the store, good and bad, as raw frames to the original
5.5.0 and to ours: the answers are the same.

Each section is a list of requests that both get in that order; state goes on from section to
section. A request whose answer differs on purpose stands with the reason, and must really differ;
what it did at one of them alone is undone by the request behind it.
"""

from __future__ import annotations

import json
from functools import partial

import pytest

from interop.broker_conversation import BrokerConversation, broker_differences
from interop.broker_pair import MISSING, TOPIC, Row, ask_all, row, sent, without
from interop.frames import Answer, Connection, Request, ask
from support.common.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

NUMBERS = (
    "the original takes any number of queues and any permission, ours those that can be served"
)
BODY = (
    "no body, or none that says anything: the original says that all is well, ours that nothing was"
    " done"
)
NEGATIVE = (
    "the original keeps an offset or a queue below zero, and so forgets how far the group was; ours"
    " refuses"
)
CHECKED = "the original takes any name for a group; ours checks it"
UPDATE = (
    "the original takes every key and every value, and says that all is well; ours takes what it"
    " can change while it runs"
)
POPS = "the original has groups that pop, and keeps a mode that is none; ours has groups that pull"
FIRST_MESSAGE = (
    "the original knows no offset of a new group in an empty queue, and so the group misses its"
    " first message; ours says 0"
)
NO_SUCH_QUEUE = "the original keeps an offset of a queue that its topic never had; ours refuses"
FILTERS = "the original has no filter servers any more; ours still takes those of the 4.9 line"
DELETED = (
    "a group that is deleted comes back at once in the original, which looks for it behind; one"
    " that never was comes to be"
)
UNSERVED = (
    "ours says that it does not serve this: replication, controllers, static topics, pop and such"
)
OFF = "ours has the access control of 4.9 and of 5.x, and says that it is off"
WORDS = "the original answers with an exception that ours does not run into"

QUERY = {
    "topic": "T",
    "key": "k1",
    "maxNum": "8",
    "beginTimestamp": "0",
    "endTimestamp": "9000000000000",
}
OFFSET = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
COMMIT = {**OFFSET, "commitOffset": "2"}
RESET = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
CLONE = {"srcGroup": "g2", "destGroup": "g9", "topic": "T"}
MODE = {"topic": "T", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 3}
ENTRIES = {"topic": "T", "queueId": "0", "index": "0", "count": "2"}


SECTIONS: dict[str, list[Row]] = {
    "topics": [
        *(row(code) for code in (21, 305, 316, 306, 329)),
        row(17, TOPIC),
        row(17, TOPIC),
        row(351, {"topic": "T"}),
        row(351, {"topic": "T", "lo": "true"}),
        row(17, {**TOPIC, "attributes": "+message.type=NORMAL"}),
        row(17, {**TOPIC, "attributes": "+message.type=MIXED"}),
        row(17, {**TOPIC, "attributes": "+bad=x"}),
        row(17, {**TOPIC, "attributes": "bad"}),
        row(17, {**TOPIC, "attributes": "+queue.type=BatchCQ"}),
        *(
            row(17, {**TOPIC, "topic": topic})
            for topic in ("", "a b", "x" * 128, "TBW102", "rmq_sys_x")
        ),
        *(
            row(17, without(TOPIC, name))
            for name in ("topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
        ),
        *(row(17, without(TOPIC, name), deviation=MISSING) for name in ("defaultTopic", "order")),
        row(17, {**TOPIC, "readQueueNums": "x"}),
        row(17, {**TOPIC, "topicFilterType": "WRONG"}),
        row(17),
        *(
            each
            for change in ({"readQueueNums": "-3"}, {"perm": "99"}, {"writeQueueNums": "1000000"})
            for each in (
                row(17, {**TOPIC, "topic": "N", **change}, deviation=NUMBERS),
                row(215, {"topic": "N"}),
            )
        ),
        row(17, {**TOPIC, "topic": "None", "readQueueNums": "0", "writeQueueNums": "0"}),
        row(
            17,
            {
                **TOPIC,
                "topic": "Ordered",
                "order": "true",
                "topicFilterType": "MULTI_TAG",
                "topicSysFlag": "3",
            },
        ),
        *(row(351, {"topic": topic}) for topic in ("T", "None", "Ordered", "nope")),
        row(351),
        row(351, {}),
        row(
            18,
            None,
            {
                "topicConfigList": [
                    {"topicName": "L1"},
                    {"topicName": "L2", "perm": 4, "attributes": {"+message.type": "FIFO"}},
                ]
            },
        ),
        *(row(351, {"topic": topic}) for topic in ("L1", "L2")),
        row(18, None, {"topicConfigList": [{"topicName": "L3"}, {"topicName": "bad name"}]}),
        row(351, {"topic": "L3"}),
        *(
            row(18, None, body)
            for body in (
                b"",
                b"[1",
                b"null",
                b'{"topicConfigList":[]}',
                b'{"topicConfigList":[null]}',
            )
        ),
        row(18, None, b"{}", deviation=WORDS),
        row(18, None, {"topicConfigList": [{}]}),
        row(18, None, {"topicConfigList": [{"topicName": "L4", "readQueueNums": "x"}]}),
        row(21),
        row(21, {"topicSeq": "0", "maxTopicNum": "3"}),
        row(21, {"topicSeq": "2", "dataVersion": "garbage", "maxTopicNum": "2"}, deviation=WORDS),
        row(
            21,
            {
                "topicSeq": "2",
                "dataVersion": '{"counter":1,"stateVersion":0,"timestamp":1}',
                "maxTopicNum": "2",
            },
        ),
        row(21, {"topicSeq": "-1", "maxTopicNum": "2"}),
        row(21, {"topicSeq": "x"}),
        *(
            row(21, fields)
            for fields in ({"maxTopicNum": "2"}, {"topicSeq": "0", "maxTopicNum": "-1"})
        ),
        row(21, {"topicSeq": "0", "maxTopicNum": "0"}),
        *(row(202, {"topic": topic}) for topic in ("T", "nope", "None")),
        row(202, {}),
        *(
            row(215, {"topic": topic})
            for topic in ("L1", "L1", "", "TBW102", "rmq_sys_x", "nope", "a b")
        ),
        row(215, {}, deviation=MISSING),
        row(21),
    ],
    "groups": [
        row(200, None, {"groupName": "g"}),
        row(
            200,
            None,
            {"groupName": "g2", "retryMaxTimes": 3, "attributes": {"+priority.factor": "100"}},
        ),
        *(row(200, None, body, deviation=BODY) for body in (b"", b"null")),
        *(
            row(200, None, body)
            for body in (b"{}", b"[]", b'{"groupName":', b'{"groupName":"a b"}')
        ),
        row(200, None, {"groupName": "x" * 121}),
        row(200, None, {"groupName": "g3", "retryMaxTimes": "x"}),
        row(200, None, {"groupName": "g3", "attributes": {"+nope": "1"}}),
        row(200, None, {"groupName": "g3", "retryQueueNums": -1}, deviation=NUMBERS),
        row(
            200, None, {"groupName": "g3", "retryQueueNums": 0, "retryMaxTimes": -5, "brokerId": -1}
        ),
        row(200, None, {"groupName": "TOOLS_CONSUMER", "consumeEnable": False}),
        row(225, None, {"groupConfigList": [{"groupName": "h1"}, {"groupName": "h2"}]}),
        row(225, None, {"groupConfigList": [{"groupName": "h3"}, {"groupName": "b d"}]}),
        row(225, None, {"groupConfigList": []}),
        row(225),
        row(225, None, b"{}", deviation=WORDS),
        *(
            row(352, {"group": group})
            for group in (
                "g",
                "g2",
                "g3",
                "h1",
                "auto1",
                "a b",
                "CID_RMQ_SYS_x",
                "",
                "TOOLS_CONSUMER",
            )
        ),
        row(352, {}),
        row(201),
        row(201, {"groupSeq": "0", "maxGroupNum": "2"}),
        row(201, {"groupSeq": "1", "maxGroupNum": "2"}),
        *(row(201, {"groupSeq": "0", "maxGroupNum": count}) for count in ("0", "-1")),
        row(201, {"maxGroupNum": "2"}),
        row(353, {"group": "g", "topic": "T"}),
        row(353, {"group": "g", "topic": "T", "readable": "false"}),
        row(353, {"group": "g", "topic": "T"}),
        row(201),
        row(353, {"group": "g", "topic": "T", "readable": "true"}),
        row(353, {"group": "nobody", "topic": "nope", "readable": "false"}),
        row(201),
        row(201, {"groupSeq": "0", "maxGroupNum": "1000"}),
        row(353, {"group": "nobody", "topic": "nope", "readable": "true"}),
        row(353, {"topic": "T"}),
        row(353, {"group": "g"}, deviation=MISSING),
        row(207, {}),
        row(207, {"groupName": ""}),
        row(207, {"groupName": "h1"}),
        row(207, {"groupName": "unheard-of", "cleanOffset": "true"}),
        row(201, deviation=DELETED),
        *(row(200, None, {"groupName": group}) for group in ("h1", "unheard-of")),
        row(201),
        row(402),
        row(401, None, MODE),
        row(401, None, {**MODE, "popShareQueueNum": -1}),
        *(
            row(401, None, {**MODE, **change})
            for change in ({"topic": "nope"}, {"topic": ""}, {"topic": "%RETRY%g"})
        ),
        *(row(401, None, {**MODE, "consumerGroup": group}) for group in ("a b", "", "moded")),
        *(row(401, None, {**MODE, name: None}) for name in ("topic", "consumerGroup")),
        row(401, None, {**MODE, "popShareQueueNum": "x"}),
        *(row(401, None, body) for body in (b"", b"{}", b"null", b"[]", b"[")),
        row(402),
        *(
            row(401, None, {**MODE, "consumerGroup": "unmoded", "mode": mode}, deviation=POPS)
            for mode in ("POP", "WRONG")
        ),
        row(352, {"group": "unmoded"}),
        row(401, None, {**MODE, "consumerGroup": "unmoded"}),
        row(402),
        row(45),
        row(43),
    ],
    "look-ups": [
        *map(sent, range(6)),
        *(
            row(code, {"topic": "T", "queueId": queue_id, "timestamp": "0"})
            for queue_id in ("0", "1", "2", "9", "-1")
            for code in (29, 30, 31, 32)
        ),
        *(
            row(code, {"topic": topic, "queueId": "0", "timestamp": "0"})
            for topic in ("nope", "", "../x")
            for code in (29, 30, 31, 32)
        ),
        row(30, {"topic": "T", "queueId": "0", "committed": "false"}),
        *(
            row(29, {"topic": "T", "queueId": "0", "timestamp": time_ms, "boundaryType": boundary})
            for time_ms in ("9000000000000", "-1")
            for boundary in ("lower", "upper", "LOWER", "UPPER", "x")
        ),
        *(row(code, {"topic": "T", "timestamp": "1"}) for code in (29, 30, 31, 32)),
        *(row(code, {"queueId": "0", "timestamp": "1"}) for code in (29, 30, 31, 32)),
        row(29, {"topic": "T", "queueId": "0"}),
        row(30, {"topic": "T", "queueId": "x"}),
        *(row(33, {"offset": offset}) for offset in ("0", "5", "-1", "999999999", "x")),
        row(33, {"offset": "0", "topic": "other"}),
        row(33, {}),
        row(12, QUERY),
        *(
            row(12, {**QUERY, "key": key})
            for key in ("all", "nope", "", "0A000001000000000000000000000001")
        ),
        *(row(12, {**QUERY, "key": "all", "maxNum": count}) for count in ("2", "0", "-1", "x")),
        row(12, {**QUERY, "key": "all", "maxNum": "1", "_UNIQUE_KEY_QUERY": "true"}),
        row(12, {**QUERY, "topic": "nope"}),
        row(12, {**QUERY, "beginTimestamp": "9000000000000"}),
        row(12, {**QUERY, "beginTimestamp": "5", "endTimestamp": "1"}),
        row(12, {**QUERY, "key": "tag", "indexType": "T"}),
        *(row(12, {**QUERY, "indexType": kind}) for kind in ("K", "U", "zz")),
        row(12, {**QUERY, "lastKey": "x"}),
        *(row(12, without(QUERY, name)) for name in ("maxNum", "beginTimestamp", "endTimestamp")),
        *(row(12, without(QUERY, name), deviation=MISSING) for name in ("topic", "key")),
        row(12),
        row(321, ENTRIES),
        *(row(321, {**ENTRIES, "count": count}) for count in ("100", "0", "-1")),
        *(row(321, {**ENTRIES, "index": index}) for index in ("2", "3", "-1")),
        *(row(321, {**ENTRIES, "queueId": queue_id}) for queue_id in ("2", "-1")),
        row(321, {**ENTRIES, "topic": "nope"}),
        row(321, {**ENTRIES, "consumerGroup": "g"}),
        *(row(321, without(ENTRIES, name)) for name in ENTRIES),
        row(202, {"topic": "T"}),
    ],
    "offsets": [
        row(14, OFFSET),
        *(row(14, {**OFFSET, "setZeroIfNotFound": text}) for text in ("false", "true")),
        row(14, {**OFFSET, "queueId": "2"}, deviation=FIRST_MESSAGE),
        row(14, {**OFFSET, "queueId": "-1"}),
        row(14, {**OFFSET, "topic": "nope"}),
        row(14, {**OFFSET, "consumerGroup": "nobody"}),
        row(14, without(OFFSET, "topic")),
        row(14, without(OFFSET, "queueId")),
        row(14, without(OFFSET, "consumerGroup"), deviation=MISSING),
        row(15, COMMIT),
        row(14, OFFSET),
        row(15, {**COMMIT, "consumerGroup": "nobody"}),
        row(15, {**COMMIT, "topic": "nope"}),
        row(
            15,
            {**COMMIT, "queueId": "77", "commitOffset": "5", "topic": "Ordered"},
            deviation=NO_SUCH_QUEUE,
        ),
        row(15, {**COMMIT, "commitOffset": "-5", "topic": "Ordered"}, deviation=NEGATIVE),
        row(15, {**COMMIT, "queueId": "-1", "topic": "Ordered"}, deviation=NEGATIVE),
        row(215, {"topic": "Ordered"}),
        row(17, {**TOPIC, "topic": "Ordered", "order": "true"}),
        row(15, {**COMMIT, "commitOffset": "1"}),
        row(14, OFFSET),
        row(15, without(COMMIT, "topic")),
        *(
            row(15, without(COMMIT, name), deviation=MISSING)
            for name in ("consumerGroup", "queueId", "commitOffset")
        ),
        row(43),
        *(row(208, {"consumerGroup": group}) for group in ("g", "nobody")),
        *(row(208, {"consumerGroup": "g", "topic": topic}) for topic in ("T", "nope", "", "None")),
        row(208, {"consumerGroup": "nobody", "topic": "T"}),
        row(208, {"consumerGroup": "g", "topicList": "T;Ordered;nope"}),
        row(208, {}),
        *(row(317, {"isOrder": text}) for text in ("false", "true")),
        row(317, {}, deviation=MISSING),
        row(15, {**COMMIT, "consumerGroup": "g2", "commitOffset": "3"}),
        *(row(308, {"compareGroup": group, "topic": "T"}) for group in ("g", "g2", "nobody")),
        row(308, {"compareGroup": "g", "topic": "nope"}),
        row(308, {"compareGroup": "g"}),
        row(308, {"topic": "T"}, deviation=MISSING),
        row(314, CLONE),
        row(43),
        *(row(314, {**CLONE, **change}) for change in ({"topic": "nope"}, {"srcGroup": "nobody"})),
        row(314, without(CLONE, "srcGroup")),
        row(303, {"topic": "T", "group": "g"}),
        row(303, {"topic": "T", "group": "nobody"}),
        row(303, {"topic": "nope", "group": "g"}),
        row(303, {"group": "g"}),
        row(303, {"topic": "T"}, deviation=MISSING),
        *(row(300, {"topic": topic}) for topic in ("T", "nope")),
        row(300, {}),
        *(row(343, {"group": group}) for group in ("g", "nobody")),
        row(343, {}),
        *(
            row(345, fields)
            for fields in (
                {"group": "g", "topic": "T"},
                {"group": "nobody", "topic": "nope"},
                {"group": "g"},
                {},
            )
        ),
        row(207, {"groupName": "g9", "cleanOffset": "true"}),
        row(200, None, {"groupName": "g9"}),
        row(43),
        row(314, {**CLONE, "destGroup": "a b"}, deviation=CHECKED),
        row(207, {"groupName": "a b", "cleanOffset": "true"}),
        row(314, without(CLONE, "destGroup"), deviation=MISSING),
        row(207, {"groupName": "null", "cleanOffset": "true"}),
        row(200, None, {"groupName": "null"}),
        row(43),
        row(201),
    ],
    "resets": [
        row(222, RESET),
        row(14, OFFSET),
        row(15, COMMIT),
        row(43),
        row(222, {**RESET, "timestamp": "-1", "queueId": "-1"}),
        row(222, {**RESET, "timestamp": "-1", "queueId": "0"}),
        *(
            row(222, {**RESET, "queueId": "0", "offset": offset})
            for offset in ("1", "4", "5", "-1", "-2")
        ),
        *(
            row(222, {**RESET, "topic": "Ordered", "queueId": "99", **end}, deviation=NO_SUCH_QUEUE)
            for end in ({}, {"offset": "0"})
        ),
        row(215, {"topic": "Ordered"}),
        row(17, {**TOPIC, "topic": "Ordered", "order": "true"}),
        *(
            row(222, {**RESET, **change})
            for change in (
                {"topic": "nope"},
                {"group": "nobody"},
                {"topic": "None"},
                {"offset": "1"},
            )
        ),
        row(222, without(RESET, "topic")),
        *(
            row(222, without(RESET, name), deviation=MISSING)
            for name in ("group", "timestamp", "isForce")
        ),
        row(223, {"topic": "T", "group": "nobody"}),
        row(223, {"topic": "T"}),
        row(43),
    ],
    "broker": [
        *(row(code) for code in (907, 1007, 60, 61)),
        *(
            row(2004, fields)
            for fields in (
                None,
                {},
                *({"READ_AHEAD_MODE": mode} for mode in ("1", "2", "-1", "x", "", "0")),
            )
        ),
        *(
            row(354, fields)
            for fields in (None, {"topic": "T", "checkStoreTime": "0"}, {"topic": "nope"})
        ),
        *(
            row(355, {"configType": kinds})
            for kinds in ("", "topics", "TOPICS; subscriptionGroups;;consumerOffsets", "topics;x")
        ),
        row(355),
        *(row(code) for code in (36, 47, 212, 302, 324, 325, 901, 1001, 99999)),
        *(
            row(code, deviation=UNSERVED)
            for code in (400, 513, 905, 906, 908, 1008, 2001, 2002, 2003)
        ),
        *(row(code, deviation=OFF) for code in (54, 3001, 3004, 3005, 3009)),
        *(
            row(code, deviation=UNSERVED)
            for code in (200_050, 200_051, 200_053, 200_054, 200_071, 200_151)
        ),
        row(301, deviation=FILTERS),
        *(row(code) for code in (302, 27, 13, 22, 23)),
        row(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "nope"}),
        row(315, {"statsName": "NOPE", "statsKey": "T"}),
        *(
            row(315, fields, deviation=MISSING)
            for fields in ({"statsName": "TOPIC_PUT_NUMS"}, {"statsKey": "T"})
        ),
        *(
            row(25, None, body)
            for body in (b"", b"brokerPermission=6\n", b"defaultQueryMaxNum=33\n")
        ),
        row(25, None, b"no.such.key=1\n", deviation=UPDATE),
        *(
            row(25, None, body)
            for body in (b"brokerConfigPath=x\n", b"rocketmqHome=x", b"configBlackList=a", b"\\u12")
        ),
        row(25, None, b"defaultQueryMaxNum=x\n", deviation=UPDATE),
        row(25, None, b"defaultQueryMaxNum=32\n"),
    ],
}


@pytest.mark.parametrize("section", SECTIONS)
def test_both_answer_the_same(both_brokers: BrokerConversation, section: str) -> None:
    ask_all(both_brokers, SECTIONS[section])


@pytest.mark.parametrize(
    ("code", "seq", "count"), [(21, "topicSeq", "maxTopicNum"), (201, "groupSeq", "maxGroupNum")]
)
def test_pages_go_on_where_the_last_one_ended(
    both_brokers: BrokerConversation, code: int, seq: str, count: str
) -> None:
    first = both_brokers.ask_each(*[Request(code, {seq: "0", count: "2"})] * 2)
    versions = [
        json.dumps(answer.json()["dataVersion"], separators=(",", ":"), sort_keys=True)
        for answer in first
    ]
    for begin in ("0", "2", "3", "900", "-1"):
        both_brokers.ask_each(
            *(
                Request(code, {seq: begin, count: "2", "dataVersion": version})
                for version in versions
            )
        )


@pytest.fixture
def consumers(both_brokers: BrokerConversation) -> tuple[Connection, Connection]:
    """A consumer of the group `g`, online at both, that was told of itself and read that."""
    subscription = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 1,
        "tagsSet": [],
    }
    group = {
        "groupName": "g",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{**subscription, "topic": "T"}],
        "unitMode": False,
    }
    heartbeat = {"clientID": "client-1", "producerDataSet": [], "consumerDataSet": [group]}
    found = both_brokers.on("consumer")
    for consumer in found:
        consumer.send(Request(34, {}, json.dumps(heartbeat).encode()))
        assert {consumer.receive().code, consumer.receive().code} == {0, 40}
    return found


def test_the_same_is_told_of_a_group_that_is_online(
    both_brokers: BrokerConversation, consumers: tuple[Connection, Connection]
) -> None:
    both_brokers.ask(Request(345, {"group": "g", "topic": "T"}))
    both_brokers.ask(Request(300, {"topic": "T"}))
    both_brokers.ask(Request(321, {**ENTRIES, "consumerGroup": "g"}))
    both_brokers.ask(Request(208, {"consumerGroup": "g", "topic": "Ordered"}))
    both_brokers.ask(Request(314, {"srcGroup": "g", "destGroup": "g8", "topic": "Ordered"}))
    asked = [
        connection.send(Request(223, {"topic": "T", "group": "g"}))
        for connection in both_brokers.on("main")
    ]
    questions = [consumer.receive() for consumer in consumers]
    assert [question.code for question in questions] == [221, 221]
    assert not broker_differences(*questions)
    for consumer, question in zip(consumers, questions, strict=True):
        consumer.send_bytes(
            _answer_to(
                question, b'{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}'
            )
        )
    answers = [connection.receive() for connection in both_brokers.on("main")]
    assert [answer.opaque for answer in answers] == asked
    assert not broker_differences(*answers)
    assert b'"client-1"' in answers[0].body


@pytest.mark.parametrize("language", ["JAVA", "CPP"])
def test_consumers_are_told_the_same_when_offsets_are_not_reset_by_brokers(
    both_brokers: BrokerConversation, consumers: tuple[Connection, Connection], language: str
) -> None:
    both_brokers.ask(Request(25, None, b"useServerSideResetOffset=false\n"))
    for queue_id in range(4):
        both_brokers.ask(Request(15, {**COMMIT, "queueId": str(queue_id)}))
    for change in ({}, {"timestamp": "-1"}, {"timestamp": "-1", "isForce": "false"}):
        both_brokers.ask(Request(222, {**RESET, **change}, language=language))
        told = [consumer.receive() for consumer in consumers]
        assert (told[0].code, told[0].flag) == (220, 2)
        assert not broker_differences(*told)
    for change in ({"topic": "nope"}, {"group": "g2"}, {"group": "nobody"}):
        both_brokers.ask(Request(222, {**RESET, **change}))
    both_brokers.ask(Request(25, None, b"useServerSideResetOffset=true\n"))


def _answer_to(question: Answer, body: bytes) -> bytes:
    header = json.dumps(
        {"code": 0, "flag": 1, "language": "JAVA", "opaque": question.opaque, "version": 513}
    ).encode()
    return (
        (4 + len(header) + len(body)).to_bytes(4, "big")
        + len(header).to_bytes(4, "big")
        + header
        + body
    )


def test_name_servers_hear_when_the_permission_of_a_broker_changes(
    both_brokers: BrokerConversation, name_servers: tuple[str, str]
) -> None:
    both_brokers.ask(Request(17, TOPIC))

    def say(permission: int) -> bool:
        told = [
            route["perm"]
            for server in name_servers
            for route in ask(server, Request(105, {"topic": "T"})).json()["queueDatas"]
        ]
        return told == [permission] * 2

    for permission in (4, 6):
        both_brokers.ask(Request(25, None, f"brokerPermission={permission}\n".encode()))
        wait_until(partial(say, permission), f"both name servers say {permission}")


def test_the_configuration_has_the_same_keys(both_brokers: BrokerConversation) -> None:
    """Which values differ, and why, is told where the configuration is tested."""
    keys = [
        {line.partition("=")[0] for line in connection.ask(Request(26)).body.decode().splitlines()}
        for connection in both_brokers.on("main")
    ]
    assert keys[0] - keys[1] <= {
        "rocketmqHome",
        "storePathCommitLog",
    }, "ours has these as they are by default, and then they are not shown"


def test_the_running_broker_tells_the_same_entries(both_brokers: BrokerConversation) -> None:
    def is_told(connection: Connection) -> bool:
        return connection.ask(Request(28)).code == 0

    for connection in both_brokers.on("main"):
        wait_until(
            partial(is_told, connection),
            "its statistics are there: the original has none, and fails, for a second",
        )
    tables = [connection.ask(Request(28)).json()["table"] for connection in both_brokers.on("main")]
    names = [{name.partition("_/")[0] for name in table} for table in tables]
    assert names[1] - names[0] == {
        "brokerVersion",
        "getTransferedTps",
    }  # of 4.9: its tools look for nothing else, and 5.5.0 breaks them
    assert names[0] <= names[1]
    for name in (
        "commitLogMinOffset",
        "commitLogMaxOffset",
        "brokerActive",
        "brokerVersionDesc",
        "putMessageTimesTotal",
    ):
        assert tables[0][name] == tables[1][name], name
    for name in names[0]:
        if name.endswith("QueueCapacity"):
            assert tables[0][name] == tables[1][name], name
