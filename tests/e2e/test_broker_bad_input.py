"""Bad requests against a real broker process, one by one: each gets an answer that says what is
wrong, and changes nothing.

Every request that the broker serves is asked with every field missing or wrong and with every body
that is none, in both encodings of the header; then those faults that users make, with the words
that they have to hear.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest

from interop.apache import Server, running
from interop.broker_clients import our_broker
from interop.frames import BINARY_TYPE, JSON_TYPE, Answer, Closed, Connection, Request
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.bad_input import NOT_UTF8, SERVED, Bad, bad_bodies, bad_fields
from support.broker.bad_peers import SERVED_WITHIN_S

RESPONSE, ONEWAY = 1, 2
BODY_SIZE_MAX = 64 << 10  # so that an oversize body is small too
DONE = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
A_PROGRAM_FAILED = re.compile(r", \S+ line \d+$")  # how an exception that nobody expected is told
# The first of the topics and of the groups, with the version of all; offsets, modes, the ends of
# the queues of T.
STATE = (
    Request(21, {"topicSeq": "0", "maxTopicNum": "1"}),
    Request(201, {"groupSeq": "0", "maxGroupNum": "1"}),
    Request(43),
    Request(402),
    Request(202, {"topic": "T"}),
)
RATE = re.compile(rb'"topicPutTps":[^,}]*')  # it changes by itself
SEND = SERVED[310].good_fields
PULL = SERVED[11].good_fields
COMMIT = SERVED[15].good_fields
SUBSCRIPTION, SUSPEND, COMMIT_OFFSET = 4, 2, 1


class Talk:
    """A connection that is opened again when the broker closes it, and passes over what the broker
    tells by itself.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._opaques = count(100)
        self._connection = Connection(server.address, SERVED_WITHIN_S)

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: Request) -> Answer:
        (answer,) = self.ask_all((request,))
        return answer

    def ask_all(self, requests: tuple[Request, ...], before: bytes = b"") -> list[Answer]:
        """The answers to all of them, and to no other request; `before` is sent first, and is not
        to be answered.
        """
        opaques = [next(self._opaques) for _ in requests]
        frames = (request.encode(opaque) for request, opaque in zip(requests, opaques, strict=True))
        self._connection.send_bytes(before + b"".join(frames))
        answers = [self._receive() for _ in requests]
        found = {answer.opaque: answer for answer in answers}
        assert list(found) == opaques or set(found) == set(opaques), (
            f"asked {opaques}, answered {answers}"
        )
        return [found[opaque] for opaque in opaques]

    def try_raw(self, frame: bytes) -> Answer | None:
        """The answer to a frame; None when the connection was closed instead."""
        try:
            self._connection.send_bytes(frame)
            return self._receive()
        except (Closed, ConnectionError):
            self._connection.close()
            self._connection = Connection(self._server.address, SERVED_WITHIN_S)
            return None

    def state(self) -> list[bytes]:
        """All that requests may change: topics, groups, offsets and the ends of queues."""
        return state_of(self.ask_all(STATE))

    def _receive(self) -> Answer:
        while not (answer := self._connection.receive()).flag & RESPONSE:
            pass
        return answer


def state_of(answers: list[Answer]) -> list[bytes]:
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}, answers
    return [RATE.sub(b"", answer.body) for answer in answers]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker on which topics and groups do not come to be by themselves."""
    settings = {
        "autoCreateTopicEnable": "false",
        "autoCreateSubscriptionGroup": "false",
        "maxMessageSize": BODY_SIZE_MAX,
        "mappedFileSizeCommitLog": 64 << 20,
    }
    started = our_broker(tmp_path_factory.mktemp("bad_input") / "home", ["127.0.0.1:1"], settings)
    with running(started):
        talk = Talk(started)
        for topic in ("T", "Kept", "Other"):
            assert talk.ask(Request(17, {**SERVED[17].good_fields, "topic": topic})).code == 0
        for group in ("g", "g2", "online"):
            assert talk.ask(Request(200, body=b'{"groupName":"%s"}' % group.encode())).code == 0
        for topic in ("T", "Kept"):
            assert talk.ask(Request(310, {**SEND, "b": topic}, b"hello")).code == 0
        assert talk.ask(Request(15, {**COMMIT, "topic": "Kept"})).code == 0
        talk.close()
        yield started


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    """A connection; another one is served after whatever was asked on it."""
    opened = Talk(server)
    yield opened
    opened.close()
    with Connection(server.address, SERVED_WITHIN_S) as other:
        sent = other.ask(Request(310, {**SEND, "b": "Other"}, b"still here"))
        assert sent.code == 0, sent
        offset = sent.fields["queueOffset"]
        pulled = other.ask(Request(11, {**PULL, "topic": "Other", "queueOffset": offset}))
        assert pulled.code == 0, pulled
        assert b"still here" in pulled.body


# ---------------------------------------------------------------- every request, every field, every
# body


def test_no_request_that_the_broker_serves_is_left_out(talk: Talk) -> None:
    codes = [int(code) for code in RequestCode]
    answers = [talk.ask(Request(code)) for code in codes]
    served = {
        code
        for code, answer in zip(codes, answers, strict=True)
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    }
    assert served == set(SERVED)


def cases_of(code: int) -> Iterator[Bad]:
    for serialize_type in (JSON_TYPE, BINARY_TYPE):
        yield from bad_fields(code, serialize_type)
    yield from bad_bodies(code)


@pytest.mark.parametrize("code", SERVED)
def test_every_wrong_field_and_body_is_answered_in_words_and_a_refusal_changes_nothing(
    talk: Talk, code: int
) -> None:
    state = talk.state()
    for opaque, bad in enumerate(cases_of(code)):
        answer = talk.try_raw(bad.request.encode(opaque))
        if answer is None:
            assert bad.value == NOT_UTF8, f"{bad}: closed"
        else:
            assert answer.opaque == opaque, bad
            check_words(bad, answer)
        after = talk.state()
        is_done = answer is not None and (
            answer.code in DONE or "msgId" in answer.fields
        )  # a reply for nobody is stored, and says so
        assert after == state or is_done, f"{bad} is refused and changed something: {answer}"
        state = after


def check_words(bad: Bad, answer: Answer) -> None:
    remark = answer.remark or ""
    assert not A_PROGRAM_FAILED.search(remark), f"{bad}: {remark}"
    if answer.code != ResponseCode.SUCCESS:
        assert remark, f"{bad}: refused with {answer.code} and no word"
    if not bad.is_needed:
        return
    assert answer.code not in DONE, f"{bad}: taken, and {answer}"
    if bad.field is None:
        assert f"request {bad.request.code}" in remark or "is missing; it must be sent" in remark, (
            f"{bad}: {remark}"
        )
    elif bad.value is None:
        assert f"the field {bad.field} of" in remark, f"{bad}: {remark}"
        assert "is missing; it must be sent" in remark, f"{bad}: {remark}"
    else:
        assert f"the field {bad.field} of" in remark, f"{bad}: {remark}"
        assert f"cannot be read from {bad.value[:100]!r}; it must be sent" in remark, (
            f"{bad}: {remark}"
        )


@pytest.mark.parametrize("code", SERVED)
def test_one_way_requests_are_never_answered_and_bad_ones_change_nothing(
    talk: Talk, code: int
) -> None:
    cases = [
        bad for bad in cases_of(code) if bad.value != NOT_UTF8 and len(bad.request.body) < 10_000
    ]
    needed, others = (
        [as_oneway(bad.request) for bad in cases if bad.is_needed is needed]
        for needed in (True, False)
    )
    state = talk.state()
    assert state_of(talk.ask_all(STATE, before=b"".join(needed))) == state
    talk.ask_all(STATE, before=b"".join(others))


def as_oneway(request: Request) -> bytes:
    return Request(
        request.code,
        request.fields,
        request.body,
        flag=ONEWAY,
        serialize_type=request.serialize_type,
    ).encode(7)


def test_a_one_way_pull_that_finds_nothing_does_not_wait_to_be_answered(talk: Talk) -> None:
    waits = {
        **PULL,
        "topic": "Other",
        "queueId": "3",
        "queueOffset": "0",
        "suspendTimeoutMillis": "1",
        "sysFlag": str(SUSPEND | SUBSCRIPTION),
    }
    talk.ask_all(
        (Request(310, {**SEND, "b": "Other", "e": "3"}, b"x"), Request(26)),
        before=Request(11, waits, flag=ONEWAY).encode(7),
    )


# ---------------------------------------------------------------- frames that nobody asked for


@pytest.mark.parametrize("serialize_type", [JSON_TYPE, BINARY_TYPE])
def test_answers_to_nothing_are_passed_over(talk: Talk, serialize_type: int) -> None:
    state = talk.state()
    frames = [
        Request(
            code,
            SERVED[code].good_fields,
            SERVED[code].good_body,
            flag=flag,
            serialize_type=serialize_type,
        ).encode(opaque)
        for code in SERVED
        for flag in (RESPONSE, RESPONSE | ONEWAY)
        for opaque in (0, 1, -1)
    ]
    assert state_of(talk.ask_all(STATE, before=b"".join(frames))) == state


@pytest.mark.parametrize("code", [-1, 0, 9, 999, 32_767])
@pytest.mark.parametrize("serialize_type", [JSON_TYPE, BINARY_TYPE])
def test_a_code_that_nobody_knows_is_refused_by_its_number(
    talk: Talk, code: int, serialize_type: int
) -> None:
    state = talk.state()
    answer = talk.ask(Request(code, {"topic": "T"}, b"body", serialize_type=serialize_type))
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f" request type {code} not supported",
    )
    assert talk.state() == state


def test_requests_with_the_same_opaque_are_each_answered(server: Server) -> None:
    with Connection(server.address, SERVED_WITHIN_S) as connection:
        connection.send_bytes(
            b"".join(
                Request(30, {"topic": "Kept", "queueId": str(queue)}).encode(5)
                for queue in (0, 1, 0, 1)
            )
        )
        answers = [connection.receive() for _ in range(4)]
    assert [(answer.opaque, answer.fields["offset"]) for answer in answers] == [
        (5, "1"),
        (5, "0"),
        (5, "1"),
        (5, "0"),
    ]


# ---------------------------------------------------------------- the faults that users make


class Fault(NamedTuple):
    """A request, and how it is refused: by which code, and in which words."""

    request: Request
    code: ResponseCode
    words: tuple[str, ...]


def batch(*items: bytes) -> bytes:
    """Messages of a batch, each said to be as long as it is."""
    return b"".join(struct.pack(">i", 4 + len(item)) + item for item in items)


ITEM = struct.pack(">iiii", 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
PROPERTIES_MAX = 32_767
FAULTS = {
    "a send to a topic that is not there": Fault(
        Request(310, {**SEND, "b": "Nowhere"}, b"x"),
        ResponseCode.TOPIC_NOT_EXIST,
        ("topic[Nowhere] not exist", "Create it"),
    ),
    "a send to an illegal name": Fault(
        Request(310, {**SEND, "b": "a b/../c"}, b"x"),
        ResponseCode.INVALID_PARAMETER,
        ("a b/../c", "illegal characters", "the first is ' '"),
    ),
    "a send to a name that is too long": Fault(
        Request(310, {**SEND, "b": "x" * 128}, b"x"),
        ResponseCode.INVALID_PARAMETER,
        ("127", "it has 128 characters", "shorter"),
    ),
    "a send to the broker's own topic": Fault(
        Request(310, {**SEND, "b": "SCHEDULE_TOPIC_XXXX"}, b"x"),
        ResponseCode.NO_PERMISSION,
        ("SCHEDULE_TOPIC_XXXX", "the broker alone"),
    ),
    "a send to a queue that is not there": Fault(
        Request(310, {**SEND, "e": "4"}, b"x"),
        ResponseCode.INVALID_PARAMETER,
        ("queueId[4]", "T has 4 queues", "0 to 3"),
    ),
    "a body that is too big": Fault(
        Request(310, SEND, b"x" * (BODY_SIZE_MAX + 1)),
        ResponseCode.MESSAGE_ILLEGAL,
        (str(BODY_SIZE_MAX + 1), str(BODY_SIZE_MAX)),
    ),
    "properties that are too long": Fault(
        Request(310, {**SEND, "i": f"KEYS\x01{'k' * PROPERTIES_MAX}\x02"}, b"x"),
        ResponseCode.MESSAGE_ILLEGAL,
        ("properties", "32767"),
    ),
    "a batch that is cut": Fault(
        Request(320, {**SEND, "m": "true"}, batch(ITEM, ITEM)[:-3]),
        ResponseCode.MESSAGE_ILLEGAL,
        ("batch of 43 bytes", "no item"),
    ),
    "a batch without messages": Fault(
        Request(320, {**SEND, "m": "true"}), ResponseCode.MESSAGE_ILLEGAL, ("batch", "at least one")
    ),
    "a batch whose message is longer than it": Fault(
        Request(320, {**SEND, "m": "true"}, struct.pack(">i", 1 << 30) + ITEM),
        ResponseCode.MESSAGE_ILLEGAL,
        ("batch", str(1 << 30)),
    ),
    "a message for a time that is none": Fault(
        Request(310, {**SEND, "i": "TIMER_DELIVER_MS\x01soon\x02"}, b"x"),
        ResponseCode.MESSAGE_ILLEGAL,
        ("TIMER_DELIVER_MS", "soon"),
    ),
    "a pull of a topic that is not there": Fault(
        Request(11, {**PULL, "topic": "Nowhere"}),
        ResponseCode.TOPIC_NOT_EXIST,
        ("topic[Nowhere] not exist", "create it"),
    ),
    "a pull by a group that is not there": Fault(
        Request(11, {**PULL, "consumerGroup": "nobody"}),
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ("[nobody]", "create it"),
    ),
    "a pull of a queue that is not there": Fault(
        Request(11, {**PULL, "queueId": "4"}),
        ResponseCode.INVALID_PARAMETER,
        ("queueId[4]", "readQueueNums:[4]", "0 to 3"),
    ),
    "a pull of a queue below zero": Fault(
        Request(11, {**PULL, "queueId": "-1"}),
        ResponseCode.INVALID_PARAMETER,
        ("queueId[-1]", "readQueueNums:[4]", "0 to 3"),
    ),
    "a pull without a subscription": Fault(
        Request(11, {**PULL, "sysFlag": "0"}),
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ("group info not exist, g", "heartbeat"),
    ),
    "a pull by an expression": Fault(
        Request(11, {**PULL, "subscription": "a > 1", "expressionType": "SQL92"}),
        ResponseCode.SYSTEM_ERROR,
        ("SQL92", "subscribe by tags"),
    ),
    "an offset below zero": Fault(
        Request(15, {**COMMIT, "commitOffset": "-1"}),
        ResponseCode.INVALID_PARAMETER,
        ("offset -1", "queue 0 of T", "begin with 0"),
    ),
    "an offset of a queue that is not there": Fault(
        Request(15, {**COMMIT, "queueId": "4"}),
        ResponseCode.INVALID_PARAMETER,
        ("queueId[4]", "T has 4 queues", "0 to 3"),
    ),
    "an offset of a topic that is not there": Fault(
        Request(15, {**COMMIT, "topic": "Nowhere"}),
        ResponseCode.TOPIC_NOT_EXIST,
        ("Topic Nowhere not exist", "create it"),
    ),
    "an offset of a group that is not there": Fault(
        Request(15, {**COMMIT, "consumerGroup": "nobody"}),
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ("Group nobody not exist", "create it"),
    ),
    "a reset of a queue that is not there": Fault(
        Request(222, {**SERVED[222].good_fields, "queueId": "4"}),
        ResponseCode.INVALID_PARAMETER,
        ("queueId[4]", "T has 4 queues", "0 to 3"),
    ),
    "a reset of a queue that is no number": Fault(
        Request(222, {**SERVED[222].good_fields, "queueId": "one"}),
        ResponseCode.SYSTEM_ERROR,
        ("queueId", "'one'", "leave it out"),
    ),
    "a reset beyond the end of a queue": Fault(
        Request(222, {**SERVED[222].good_fields, "topic": "Kept", "queueId": "0", "offset": "-7"}),
        ResponseCode.SYSTEM_ERROR,
        ("-7", "[0-1]"),
    ),
    "a message that is not there": Fault(
        Request(33, {"offset": "-1"}),
        ResponseCode.SYSTEM_ERROR,
        ("the offset, -1", "no message begins there"),
    ),
    "a topic with too many queues": Fault(
        Request(17, {**SERVED[17].good_fields, "writeQueueNums": "70000"}),
        ResponseCode.INVALID_PARAMETER,
        ("writeQueueNums=70000", "65536"),
    ),
    "a group with too many retry queues": Fault(
        Request(200, body=b'{"groupName":"greedy","retryQueueNums":2147483647}'),
        ResponseCode.INVALID_PARAMETER,
        ("retryQueueNums=2147483647", "group[greedy]", "65536"),
    ),
    "a group with an illegal name": Fault(
        Request(200, body=b'{"groupName":"a b"}'),
        ResponseCode.INVALID_PARAMETER,
        ("a b", "illegal characters"),
    ),
    "a switch that is neither on nor off": Fault(
        Request(200, body=b'{"groupName":"odd","consumeEnable":"maybe"}'),
        ResponseCode.SYSTEM_ERROR,
        ("consumeEnable", "true or false", "maybe"),
    ),
    "a body that is no JSON": Fault(
        Request(34, body=b'{"clientID":"c",'),
        ResponseCode.SYSTEM_ERROR,
        ("body of request 34", "bad JSON text at character 16"),
    ),
    "a body of another shape": Fault(
        Request(34, body=b'["clientID"]'),
        ResponseCode.SYSTEM_ERROR,
        ("body of request 34", "HeartbeatData must be a JSON object"),
    ),
    "a body nested too deeply": Fault(
        Request(200, body=b"[" * 10_000),
        ResponseCode.SYSTEM_ERROR,
        ("body of request 200", "levels"),
    ),
    "a setting that is no number": Fault(
        Request(25, body=b"defaultQueryMaxNum=many\n"),
        ResponseCode.SYSTEM_ERROR,
        ("defaultQueryMaxNum", "many"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("serialize_type", [JSON_TYPE, BINARY_TYPE], ids=["json", "binary"])
def test_what_is_wrong_is_said_in_words_that_help(
    talk: Talk, fault: str, serialize_type: int
) -> None:
    request, code, words = FAULTS[fault]
    state = talk.state()
    answer = talk.ask(
        Request(request.code, request.fields, request.body, serialize_type=serialize_type)
    )
    assert answer.code == code, answer
    remark = answer.remark or ""
    assert [word for word in words if word not in remark] == [], remark
    assert talk.state() == state


def test_a_pull_from_an_offset_below_zero_is_told_where_the_queue_begins(talk: Talk) -> None:
    answer = talk.ask(Request(11, {**PULL, "topic": "Kept", "queueOffset": "-5"}))
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (
        ResponseCode.PULL_OFFSET_MOVED,
        "OFFSET_TOO_SMALL",
        "0",
    )


def test_a_pull_that_commits_an_offset_below_zero_leaves_how_far_the_group_is(talk: Talk) -> None:
    committed = Request(14, {**SERVED[14].good_fields, "topic": "Kept"})
    assert talk.ask(committed).fields["offset"] == "1"
    flag = str(COMMIT_OFFSET | SUBSCRIPTION)
    assert (
        talk.ask(Request(11, {**PULL, "topic": "Kept", "commitOffset": "-1", "sysFlag": flag})).code
        == ResponseCode.SUCCESS
    )
    assert talk.ask(committed).fields["offset"] == "1"


def test_a_frame_of_the_largest_size_is_answered_and_a_larger_one_ends_its_connection(
    talk: Talk,
) -> None:
    head = len(Request(310, SEND).encode(1))
    fits = Request(310, SEND, bytes((16 << 20) - head))
    answer = talk.try_raw(fits.encode(1))
    assert answer is not None
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer
    assert talk.try_raw(Request(310, SEND, fits.body + b"x").encode(1)) is None
