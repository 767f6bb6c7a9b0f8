"""Sends that are refused, by the original 5.5.0 and by ours: the same codes, and the same fields,
which Java clients read unasked.
"""

from __future__ import annotations

import pytest

from interop.broker_conversation import BrokerConversation
from interop.broker_pair import TOPIC, row, sent, without
from interop.frames import Request

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

SEND = sent(0).fields or {}
WHERE = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
REPLY = SEND | {"topic": "DefaultCluster_REPLY_TOPIC", "properties": "REPLY_TO_CLIENT\x01gone\x02"}
TIMED = "UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x019000000000000\x02"
LETTERS = "abcdefghijkm"

REFUSED: dict[str, Request] = {
    "a topic that cannot be": Request(10, SEND | {"topic": "a b"}, b"x"),
    "a topic of the broker's own": Request(10, SEND | {"topic": "SCHEDULE_TOPIC_XXXX"}, b"x"),
    "a topic that is not there": Request(
        10, SEND | {"topic": "Unknown", "defaultTopic": "nothing"}, b"x"
    ),
    "a queue that is not there": Request(10, SEND | {"queueId": "9"}, b"x"),
    "the same in letters": Request(
        310, dict(zip(LETTERS, (SEND | {"queueId": "9"}).values(), strict=True)), b"x"
    ),
    "a batch to a retry topic": Request(10, SEND | {"topic": "%RETRY%g", "batch": "true"}, b"x"),
    "a body that is too large": Request(10, SEND, bytes((4 << 20) + 1)),
    "properties that are too large": Request(
        10, SEND | {"properties": f"x\x01{'y' * 40_000}\x02"}, b"x"
    ),
    "a time that is too far away": Request(10, SEND | {"properties": TIMED}, b"x"),
    "a reply to a queue that is not there": Request(324, REPLY | {"queueId": "9"}, b"x"),
}
UNREAD: dict[str, Request] = {
    "a header that lacks a field": Request(10, without(SEND, "bornTimestamp"), b"x"),
    "a number that is none": Request(10, SEND | {"queueId": "four"}, b"x"),
    "a reply that lacks a field": Request(324, without(REPLY, "bornTimestamp"), b"x"),
}
CONFIGURED: dict[str, tuple[str, str, Request]] = {
    "before its time": (
        "startAcceptSendRequestTimeStamp=9000000000000",
        "startAcceptSendRequestTimeStamp=0",
        Request(10, SEND, b"x"),
    ),
    "a reply before its time": (
        "startAcceptSendRequestTimeStamp=9000000000000",
        "startAcceptSendRequestTimeStamp=0",
        Request(324, REPLY, b"x"),
    ),
    "a transaction where none may be": (
        "rejectTransactionMessage=true",
        "rejectTransactionMessage=false",
        Request(
            10,
            SEND
            | {
                "properties": "UNIQ_KEY\x01K\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02",
                "sysFlag": "4",
            },
            b"x",
        ),
    ),
    "a reply that is not to be kept": (
        "storeReplyMessageEnable=false",
        "storeReplyMessageEnable=true",
        Request(324, REPLY, b"x"),
    ),
}


@pytest.fixture
def both(both_brokers: BrokerConversation) -> BrokerConversation:
    for connection in both_brokers.on("main"):
        for each in (
            row(17, TOPIC),
            row(
                17,
                TOPIC
                | {
                    "topic": "DefaultCluster_REPLY_TOPIC",
                    "readQueueNums": "1",
                    "writeQueueNums": "1",
                },
            ),
        ):
            connection.ask(Request(each.code, each.fields))
    return both_brokers


def refused(both: BrokerConversation, request: Request, fields: dict[str, str]) -> None:
    original, ours = (connection.ask(request) for connection in both.on("main"))
    assert (original.code, ours.code) == (original.code, original.code), (original, ours)
    assert original.code != 0
    assert (original.fields, ours.fields) == (fields, fields), (original, ours)


@pytest.mark.parametrize("case", REFUSED)
def test_who_is_refused_hears_where(both: BrokerConversation, case: str) -> None:
    refused(both, REFUSED[case], WHERE)


@pytest.mark.parametrize("case", UNREAD)
def test_what_cannot_be_read_is_answered_without_fields(
    both: BrokerConversation, case: str
) -> None:
    refused(both, UNREAD[case], {})


@pytest.mark.parametrize("case", CONFIGURED)
def test_who_is_refused_by_a_setting_hears_where(both: BrokerConversation, case: str) -> None:
    setting, back, request = CONFIGURED[case]
    try:
        for connection in both.on("main"):
            assert connection.ask(Request(25, None, setting.encode())).code == 0
        refused(both, request, WHERE)
    finally:
        for connection in both.on("main"):
            connection.ask(Request(25, None, back.encode()))
