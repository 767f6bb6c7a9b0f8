"""`orbitmq timer`: what waits for its time is seen, and taken back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from cli_room import Shell
from local_cluster_room import until
from orbitmq.blocking import Producer
from orbitmq.client.messages import Message
from orbitmq.testing.local_cluster import LocalCluster

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, topics=["T", "U"], broker={"recallMessageEnable": "true"}) as running:
        yield running


@pytest.fixture
def shell(mq: LocalCluster) -> Shell:
    return Shell(mq.name_server)


def test_what_waits_is_listed_by_its_time_and_taken_back_by_id_or_handle(mq: LocalCluster, shell: Shell) -> None:
    now_ms = time.time_ns() // 1_000_000
    with Producer(mq.name_server) as producer:
        late = producer.send(Message("T", b"late", "tag", "key", deliver_at_ms=now_ms + 2 * DAY_MS))
        early = producer.send(Message("U", b"early", deliver_at_ms=now_ms + DAY_MS))
        producer.send(Message("T", b"now"))
    rows = shell.json("timer", "ls")
    assert [(row["body"], row["topic"], row["msg_id"]) for row in rows] == [("early", "U", early.msg_id), ("late", "T", late.msg_id)]
    assert (rows[1]["recall_handle"], rows[1]["tags"], rows[1]["keys"]) == (late.recall_handle, "tag", "key")
    assert [row["body"] for row in shell.json("timer", "ls", "--topic", "T")] == ["late"]
    assert [row["body"] for row in shell.json("timer", "ls", "--limit", "1")] == ["early"]
    assert shell.table("timer", "ls")[0] == ["DUE", "IN", "S", "TOPIC", "MSG", "ID", "BROKER", "TAGS", "KEYS", "BODY"]

    assert "will not come" in " ".join(shell.table("timer", "cancel", early.msg_id, "--yes")[0])
    assert [row["body"] for row in shell.json("timer", "ls")] == ["late"]
    assert late.recall_handle is not None
    shell.table("timer", "cancel", late.recall_handle)
    assert shell.json("timer", "ls") == []
    assert "no message" in shell.fails("timer", "cancel", early.msg_id, "--yes")


def test_what_came_is_not_listed_any_more(mq: LocalCluster, shell: Shell) -> None:
    with Producer(mq.name_server) as producer:
        producer.send(Message("T", b"soon", delay_ms=700))
    until(lambda: "soon" not in json.dumps(shell.json("timer", "ls")), "it came")


def test_a_broker_that_may_not_take_back_is_told_how_to() -> None:
    with LocalCluster(topics=["T"]) as mq:
        with Producer(mq.name_server) as producer:
            sent = producer.send(Message("T", b"late", delay_ms=DAY_MS))
        assert "recallMessageEnable=true" in Shell(mq.name_server).fails("timer", "cancel", sent.msg_id, "--yes")
