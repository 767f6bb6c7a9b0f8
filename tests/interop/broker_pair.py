"""The original broker beside ours, both as they are by default, and the rows of requests that both
get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from interop import apache
from interop.apache import Release
from interop.broker_clients import our_broker
from interop.broker_conversation import BrokerConversation
from interop.frames import Connection, Request
from support.common.waiting import wait_until

MISSING = "a required field is missing: the original goes on without it, ours says which one it is"
OWN_ID = "the id of a message says the port of its broker"

TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


class Row(NamedTuple):
    """One request of the table, and why the answers differ if they should."""

    code: int
    fields: dict[str, str] | None = None
    body: bytes = b""
    deviation: str | None = None


def row(
    code: int, fields: dict[str, str] | None = None, body: Any = b"", deviation: str | None = None
) -> Row:
    return Row(
        code, fields, body if isinstance(body, bytes) else json.dumps(body).encode(), deviation
    )


def without(fields: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}


def sent(number: int, **changes: str) -> Row:
    """A message with two keys, tags and a unique key; by turns in queues 0 and 1."""
    names = {
        "KEYS": f"k{number} all",
        "TAGS": "tag",
        "UNIQ_KEY": f"0A0000010000000000000000000000{number:02d}",
    }
    fields = {
        "producerGroup": "p",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(number % 2),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in names.items()),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    return row(10, fields | changes, b"body%d" % number, deviation=OWN_ID)


def ask_all(both: BrokerConversation, rows: list[Row]) -> None:
    """Put the rows to both, one after the other."""
    for each in rows:
        both.ask(Request(each.code, each.fields, each.body), deviation=each.deviation)


@contextmanager
def conversation(brokers: tuple[str, str]) -> Iterator[BrokerConversation]:
    """A conversation with both that fails when they differed."""
    talk = BrokerConversation(*brokers)
    yield talk
    talk.close_all()
    talk.check()


@contextmanager
def both_brokers(
    release: Release,
    name_servers: tuple[str, str],
    home: Path,
    settings: Mapping[str, object] | None = None,
) -> Iterator[tuple[str, str]]:
    """The addresses of the original and of ours, each with a name server of its own."""
    original = apache.broker(release, home / "original", [name_servers[0]], settings=settings)
    ours = our_broker(home / "ours", [name_servers[1]], settings)
    with apache.running(ours, original):
        wait_until(
            lambda: all(_serves(server.address) for server in (original, ours)),
            "both brokers answer",
        )
        yield original.address, ours.address


def _serves(address: str) -> bool:
    with Connection(address) as connection:
        return connection.ask(Request(305)).code == 0
