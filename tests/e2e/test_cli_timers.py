"""`orbitmq timer`: what waits for its time is seen, and taken back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from orbitmq.admin import timers
from orbitmq.blocking import Producer
from orbitmq.client.messages import Message
from orbitmq.message import properties
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing.local_cluster import LocalCluster
from support.cli.commands import Shell
from support.common.waiting import wait_until
from support.embedded.local_cluster import asked, bodies

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(
        brokers=2, topics=["T", "U"], broker={"recallMessageEnable": "true"}
    ) as running:
        yield running


@pytest.fixture
def shell(mq: LocalCluster) -> Shell:
    return Shell(mq.name_server)


def test_what_waits_is_listed_by_its_time_and_taken_back_by_id_or_handle(
    mq: LocalCluster, shell: Shell
) -> None:
    now_ms = time.time_ns() // 1_000_000
    with Producer(mq.name_server) as producer:
        late = producer.send(Message("T", b"late", "tag", "key", deliver_at_ms=now_ms + 2 * DAY_MS))
        early = producer.send(Message("U", b"early", deliver_at_ms=now_ms + DAY_MS))
        producer.send(Message("T", b"now"))
    rows = shell.json("timer", "list")
    assert [(row["body"], row["topic"], row["msg_id"]) for row in rows] == [
        ("early", "U", early.msg_id),
        ("late", "T", late.msg_id),
    ]
    assert (rows[1]["recall_handle"], rows[1]["tags"], rows[1]["keys"]) == (
        late.recall_handle,
        "tag",
        "key",
    )
    assert [row["body"] for row in shell.json("timer", "list", "--topic", "T")] == ["late"]
    assert [row["body"] for row in shell.json("timer", "list", "--limit", "1")] == ["early"]
    assert shell.table("timer", "list")[0] == [
        "DUE",
        "IN",
        "S",
        "TOPIC",
        "MSG",
        "ID",
        "BROKER",
        "TAGS",
        "KEYS",
        "BODY",
    ]

    assert "will not come" in " ".join(shell.table("timer", "cancel", early.msg_id, "--yes")[0])
    assert [row["body"] for row in shell.json("timer", "list")] == ["late"]
    assert late.recall_handle is not None
    shell.table("timer", "cancel", late.recall_handle)
    assert shell.json("timer", "list") == []
    assert "no message" in shell.fails("timer", "cancel", early.msg_id, "--yes")


def test_messages_that_share_an_id_are_taken_back_one_at_a_time(
    mq: LocalCluster, shell: Shell
) -> None:
    now_ms = time.time_ns() // 1_000_000
    for number in (1, 2):
        names = properties.encode(
            {"UNIQ_KEY": "SAME", "TIMER_DELIVER_MS": str(now_ms + number * DAY_MS)}
        ).decode()
        fields = {
            "a": "p",
            "b": "T",
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "1",
            "h": "0",
            "i": names,
        }
        request = RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"%d" % number
        )
        answer = asked(
            lambda client, request=request: client.invoke(mq.broker_address("broker-a"), request)  # type: ignore[misc]
        )
        assert answer.code == ResponseCode.SUCCESS
    rows = shell.json("timer", "list")
    assert [(row["body"], row["msg_id"]) for row in rows] == [("1", "SAME"), ("2", "SAME")]
    assert "2 messages with the id SAME are pending" in shell.fails(
        "timer", "cancel", "SAME", "--yes"
    )
    shell.table("timer", "cancel", str(rows[0]["offset_msg_id"]), "--yes")
    assert [row["body"] for row in shell.json("timer", "list")] == ["2"]
    shell.table("timer", "cancel", "SAME", "--yes")
    assert shell.json("timer", "list") == []


def test_what_came_is_not_listed_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(virtual_clock=True, topics={"T": 1}) as mq:
        clock = SimpleNamespace(time_ns=lambda: mq.clock.now_ms() * 1_000_000)
        monkeypatch.setattr(timers, "time", clock)
        shell = Shell(mq.name_server)
        with Producer(mq.name_server) as producer:
            producer.send(Message("T", b"soon", delay_ms=60_000))
        mq.advance(50)
        assert [row["body"] for row in shell.json("timer", "list")] == ["soon"]
        mq.advance(15)
        wait_until(lambda: bodies(mq) == [b"soon"], "it came")
        assert shell.json("timer", "list") == []


def test_a_broker_that_may_not_take_back_is_told_how_to() -> None:
    with LocalCluster(topics=["T"]) as mq:
        with Producer(mq.name_server) as producer:
            sent = producer.send(Message("T", b"late", delay_ms=DAY_MS))
        assert "recallMessageEnable=true" in Shell(mq.name_server).fails(
            "timer", "cancel", sent.msg_id, "--yes"
        )
