"""SQL92 filters of the originals, 5.5.0 and 4.9.7, and of ours: the same expressions are taken, and
the same messages come by them.

Expressions and messages are made by chance from a seed: `ORBITMQ_SQL_SEED` gives another one, which
the failure says.
"""

from __future__ import annotations

import json
import os
import re
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from interop.apache import Release
from interop.broker_clients import clusters
from interop.frames import Connection, Request
from support.common.waiting import wait_until
from support.message.sql_expressions import (
    Choose,
    any_expression,
    any_properties,
    damaged,
    debris,
    text_of,
)

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(600)]

ANSWER = 1  # of the flag
SEED = int(os.environ.get("ORBITMQ_SQL_SEED", "1"))
CHECKED = 3000  # expressions that both are asked about
PULLED = 800  # of those that can be used
MESSAGES = 250
SETTINGS = {  # so that one pull brings all messages
    "enablePropertyFilter": "true",
    "maxTransferCountOnMessageInMemory": 1000,
    "maxTransferBytesOnMessageInMemory": 16 << 20,
    "maxTransferCountOnMessageInDisk": 1000,
    "maxTransferBytesOnMessageInDisk": 16 << 20,
}
SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [],
    "expressionType": "SQL92",
    "subVersion": 1,
    "tagsSet": [],
    "topic": "T",
}
PULL = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "0",
    "maxMsgNums": "1000",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "1000",
    "subVersion": "0",
    "expressionType": "SQL92",
}


class Broker:
    """A broker that is asked."""

    def __init__(self, address: str, opened: ExitStack) -> None:
        self.connection = opened.enter_context(Connection(address, timeout_s=60.0))
        self._member = opened.enter_context(Connection(address, timeout_s=60.0))

    def send(self, number: int, properties: dict[str, str]) -> None:
        fields = {
            "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1", "queueId": "0", "sysFlag": "0",
            "bornTimestamp": "1700000000000", "flag": "0", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
            "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        }  # fmt: skip
        answer = self.connection.ask(Request(10, fields, b"%d" % number))
        assert (answer.code, answer.fields["queueOffset"]) == (0, str(number)), answer

    def takes(self, expression: str) -> bool:
        """Whether the broker says that an expression can be used."""
        body: dict[str, Any] = {
            "clientId": "c",
            "group": "g",
            "subscriptionData": {**SUBSCRIPTION, "subString": expression},
        }
        answer = self.connection.ask(Request(46, None, json.dumps(body).encode()))
        assert answer.code in (0, 23), (expression, answer)
        return answer.code == 0

    def delivered(self, expression: str) -> list[int]:
        """The offsets of the messages that come by an expression."""
        found: list[int] = []
        at = 0
        while at < MESSAGES:
            answer = self.connection.ask(
                Request(11, {**PULL, "queueOffset": str(at), "subscription": expression})
            )
            assert answer.code in (0, 20), (
                expression,
                answer,
            )  # found, or nothing of what was looked at
            found += offsets_of(answer.body) if answer.code == 0 else []
            at = int(answer.fields["nextBeginOffset"])
        return found

    def wait_for(self, count: int) -> None:
        """Wait until so many messages can be read: originals answer before a message is in its
        queue.
        """
        wait_until(
            lambda: (
                self.told("any", 0, sysFlag="4", subscription="TRUE", queueOffset=str(count - 1))[0]
                == 0
            ),
            f"message {count}",
        )

    def heartbeat(self, group: str, expression: str, version: int) -> None:
        """Say that a member of a group subscribes by an expression. What it is told besides does
        not matter.
        """
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "BROADCASTING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {**SUBSCRIPTION, "subString": expression, "subVersion": version}
            ],
            "unitMode": False,
        }
        body = {"clientID": f"c-{group}", "producerDataSet": [], "consumerDataSet": [consumer]}
        self._member.send(Request(34, None, json.dumps(body).encode()))
        while not (answer := self._member.receive()).flag & ANSWER:
            pass
        assert answer.code == 0, answer

    def entries(self, group: str) -> dict[str, Any]:
        """The entries of the queue with what ext files say of them, and the filter of a group;
        without times.
        """
        fields = {
            "topic": "T",
            "queueId": "0",
            "index": "0",
            "count": "100",
            "consumerGroup": group,
        }
        answer = self.connection.ask(Request(321, fields))
        text = re.sub(r'(bornTime|msgStoreTime)(\\*)":\d+', r'\1\2":0', answer.body.decode())
        found: dict[str, Any] = json.loads(text)
        return found

    def told(self, group: str, version: int, **changes: str) -> tuple[int, list[int]]:
        """What a pull of a group is answered: the code, and the offsets that came."""
        fields = {
            **PULL,
            "queueOffset": "0",
            "consumerGroup": group,
            "subVersion": str(version),
            "sysFlag": "0",
            **changes,
        }
        answer = self.connection.ask(Request(11, fields))
        return answer.code, offsets_of(answer.body) if answer.code == 0 else []


def offsets_of(records: bytes) -> list[int]:
    found: list[int] = []
    while records:
        (size,) = struct.unpack_from(">i", records)
        found += struct.unpack_from(">q", records, 20)
        records = records[size:]
    return found


def made_up(choose: Choose, count: int) -> list[str]:
    """Texts, each once: most of them are expressions, some nearly so, some nothing at all."""
    found: dict[str, None] = {}
    while len(found) < count:
        text = text_of(any_expression(choose))
        kind = choose.one_of(range(10))
        text = text if kind < 7 else damaged(choose, text) if kind < 9 else debris(choose)
        if choose.searches or not any(
            word in text.upper() for word in ("CONTAINS", "STARTSWITH", "ENDSWITH")
        ):
            found[text] = None
    return list(found)


def by_heartbeats(broker: Broker) -> list[tuple[int, list[int]]]:
    """What pulls by the expression of their group are answered as that changes."""
    found = []
    for expression, version in (
        ("a IS NULL", 5),
        ("b IS NULL", 5),
        ("b IS NULL", 4),
        ("b IS NULL", 6),
        ("a > > 1", 7),
        ("a IS NULL", 8),
    ):
        broker.heartbeat("beats", expression, version)
        found += [broker.told("beats", asked) for asked in (0, 5, 6, 7, 8)]
    broker.heartbeat("wrong", "a > > 1", 1)
    return [
        *found,
        broker.told("wrong", 1),
        broker.told("strange", 1),
        broker.told("own", 1, sysFlag="4", subscription=""),
    ]


def test_the_same_expressions_are_taken_and_the_same_messages_come_by_them(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBITMQ_APACHE_LOG", "OFF")  # the original logs each comparison that fails
    choose = Choose.seeded(SEED, searches=release.is_5)
    messages = [any_properties(choose) for _ in range(MESSAGES)]
    expressions = made_up(choose, CHECKED)
    with ExitStack() as opened:
        both = opened.enter_context(clusters(release, tmp_path, SETTINGS))
        for cluster in both:
            cluster.make_topics({"T": 1})
        original, ours = (Broker(cluster.broker.address, opened) for cluster in both)
        for number, properties in enumerate(messages):
            original.send(number, properties)
            ours.send(number, properties)
        for broker in (original, ours):
            broker.wait_for(MESSAGES)
        assert by_heartbeats(ours) == by_heartbeats(original)
        assert ours.told("own", 1, sysFlag="4", subscription="a > > 1")[0] == 23, (
            "where the original delivers everything"
        )
        taken = {
            expression: (original.takes(expression), ours.takes(expression))
            for expression in expressions
        }
        assert {
            expression: said for expression, said in taken.items() if said[0] is not said[1]
        } == {}, f"seed {SEED}"
        usable = [expression for expression, said in taken.items() if all(said)]
        delivered = {
            each: (original.delivered(each), ours.delivered(each)) for each in usable[:PULLED]
        }
    differing = {
        expression: found for expression, found in delivered.items() if found[0] != found[1]
    }
    assert differing == {}, f"seed {SEED}"
    assert len(delivered) == PULLED, "most expressions should be ones that can be used"
    assert len(usable) < CHECKED - 500, "some should be such as are refused"
    assert sum(0 < len(found) < MESSAGES for found, _ in delivered.values()) > PULLED // 10, (
        "many should choose"
    )


def test_the_same_bits_are_kept_of_the_filters_that_a_message_passed(
    apache_5: Release, tmp_path: Path
) -> None:
    with ExitStack() as opened:
        both = opened.enter_context(
            clusters(
                apache_5,
                tmp_path,
                {**SETTINGS, "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"},
            )
        )
        found = []
        for cluster in both:
            cluster.make_topics({"T": 1})
            broker = Broker(cluster.broker.address, opened)
            broker.send(0, {"a": "1"})
            broker.wait_for(1)
            for group, expression in (("high", "a > 1"), ("low", "a < 3"), ("none", "zz = 1")):
                broker.heartbeat(group, expression, 1)
            for number, value in enumerate(("1", "2", "3", "x", "2"), 1):
                broker.send(number, {"a": value, "TAGS": "t"})
            broker.wait_for(6)
            groups = ("high", "low", "none")
            found.append([(broker.told(group, 1), broker.entries(group)) for group in groups])
    assert found[0] == found[1]
    (_, offsets), entries = found[1][0]
    assert offsets == [2, 3, 5]
    assert [entry["eval"] for entry in entries["queueData"]] == [
        True,
        False,
        True,
        True,
        False,
        True,
    ]
