"""Sends and pulls that the compiled path serves are checked one by one, in whatever company they
come; nothing else passes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from orbitmq.admin import Admin
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.testing import LocalCluster
from support.access.people import (
    ALICE,
    BOB,
    OPERATOR,
    PLAIN_ACL,
    USERS,
    add_alice,
    run,
    settings,
    signed,
)

REFUSED = (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)


@pytest.fixture(params=["accounts", "users"])
def mq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    (tmp_path / "plain_acl.yml").write_text(PLAIN_ACL)
    keys = (
        {"aclEnable": "true", "aclFolder": str(tmp_path)}
        if request.param == "accounts"
        else dict(USERS)
    )
    with LocalCluster(broker=keys) as mq:

        async def prepare() -> None:
            if request.param == "users":
                async with Admin(settings(mq.name_server, OPERATOR)) as admin:
                    await add_alice(admin)
            async with Producer(settings(mq.name_server, OPERATOR)) as producer:
                for topic in ("Allowed", "Denied"):
                    await producer.send(Message(topic, b"first"))

        run(prepare)
        yield mq


def send(topic: str, opaque: int, kind: SerializeType = SerializeType.JSON) -> RemotingCommand:
    fields = {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
    }
    return RemotingCommand(
        RequestCode.SEND_MESSAGE_V2,
        ext_fields=fields,
        body=b"body",
        opaque=opaque,
        serialize_type=kind,
    )


def end_of(topic: str, opaque: int) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.GET_MAX_OFFSET, ext_fields={"topic": topic, "queueId": "3"}, opaque=opaque
    )


def conversation(mq: LocalCluster, *frames: bytes) -> dict[int, RemotingCommand]:
    """The answers, by opaque, to frames that arrive at once."""
    host, port = mq.broker_address().rsplit(":", 1)
    answers: dict[int, RemotingCommand] = {}
    with socket.create_connection((host, int(port)), 30) as peer:
        peer.sendall(b"".join(frames))
        data = bytearray()
        while len(answers) < len(frames):
            read = peer.recv(65536)
            assert read, f"the connection ended after {answers}"
            data += read
            while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4])):
                answer = frame.decode(data, 0, size)
                answers[answer.opaque] = answer
                del data[:size]
    return answers


@pytest.mark.parametrize("kind", SerializeType)
def test_each_request_of_many_is_checked_and_those_that_may_are_served_in_order(
    mq: LocalCluster, kind: SerializeType
) -> None:
    requests = [
        (send("Allowed", 1, kind), ALICE),
        (send("Denied", 2, kind), ALICE),
        (send("Allowed", 3, kind), None),
        (send("Allowed", 4, kind), BOB),
        (send("Allowed", 5, kind), ALICE),
        (end_of("Allowed", 6), OPERATOR),
        (send("Allowed", 7, kind), ALICE),
        (end_of("Denied", 8), OPERATOR),
    ]
    answers = conversation(mq, *(frame.encode(signed(request, who)) for request, who in requests))
    assert {number: answer.code == ResponseCode.SUCCESS for number, answer in answers.items()} == {
        **dict.fromkeys((1, 5, 6, 7, 8), True),
        **dict.fromkeys((2, 3, 4), False),
    }
    assert all(answers[number].code in REFUSED for number in (2, 3, 4))
    ends = [int((answers[number].ext_fields or {})["offset"]) for number in (6, 8)]
    stored = [int((answers[number].ext_fields or {})["queueOffset"]) for number in (1, 5, 7)]
    assert stored == [ends[0] - 2, ends[0] - 1, ends[0]]
    assert ends[1] <= 1, "nothing of it is in the topic that was denied"


def test_a_field_that_is_said_twice_does_not_slip_by(mq: LocalCluster) -> None:
    """What is checked is the last of two: so is what is done."""
    request = signed(send("Allowed", 1), ALICE)
    header = {
        "code": request.code,
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "version": 399,
        "extFields": request.ext_fields,
    }
    texts = []
    for opaque, twice in enumerate(('"b":"Denied","b":"Allowed"', '"b":"Allowed","b":"Denied"'), 1):
        text = json.dumps({**header, "opaque": opaque}, separators=(",", ":"))
        assert text.count('"b":"Allowed"') == 1
        texts.append(text.replace('"b":"Allowed"', twice).encode())
    frames = [
        (8 + len(text)).to_bytes(4) + len(text).to_bytes(4) + text + b"body" for text in texts
    ]
    answers = conversation(mq, *frames, frame.encode(signed(end_of("Denied", 3), OPERATOR)))
    assert answers[1].code == ResponseCode.SUCCESS
    assert answers[2].code in REFUSED
    assert int((answers[3].ext_fields or {})["offset"]) <= 1
