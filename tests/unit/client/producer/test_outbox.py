"""Messages are validated before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.messages import Message
from orbitmq.client.namespace import Namespace
from orbitmq.client.producer.outbox import Outbox, ProducerSettings
from orbitmq.common.errors import InvalidMessageError
from orbitmq.message.message_id import UniqueIds


def outbox() -> Outbox:
    return Outbox(
        ProducerSettings(),
        Namespace(),
        UniqueIds(address=bytes(4), pid=1, process_number=1, now_ms=lambda: 1),
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"body": "text"},
            r"the body of a message to T is of type str: encode it, for example with text\.encode\(\)",
        ),
        ({"body": "text" * 5_000}, r"text\.encode\(\)"),
        ({"body": None}, "the body of a message to T is of type NoneType: give bytes"),
        ({"topic": 5}, "the topic of a message is 5: give a str"),
        ({"tags": 5}, "tags=5 of a message to T is of type int: convert it to str"),
        ({"keys": 5}, "the keys of a message to T are 5: give a str, or a list of str"),
        ({"keys": [5]}, r"the keys of a message to T are \[5\]"),
        ({"properties": {"a": 1}}, "a=1 of a message to T is of type int: convert it to str"),
        ({"properties": {"a": [1]}}, r"a=\[1\] of a message to T is of type list"),
        ({"properties": {1: "a"}}, "the property 1='a'"),
        ({"properties": 7}, "the properties of a message to T are 7: give a dict of str to str"),
        ({"sharding_key": b"k"}, "sharding_key=b'k' of a message to T is of type bytes"),
    ],
    ids=str,
)
def test_what_has_a_type_that_cannot_be_sent_is_named(wrong: dict[str, Any], words: str) -> None:
    message = Message(**{"topic": "T", "body": b"x", **wrong})
    with pytest.raises(InvalidMessageError, match=words):
        outbox().message(message)
    with pytest.raises(InvalidMessageError, match=words):
        outbox().batches([message])


@pytest.mark.parametrize(
    "body", [bytearray(b"x"), memoryview(b"x")], ids=["bytearray", "memoryview"]
)
def test_a_body_may_be_anything_that_holds_bytes_and_is_copied(body: Any) -> None:
    assert outbox().message(Message("T", body)).body == b"x"
    (batch,) = outbox().batches([Message("T", body)])
    assert b"x" in batch.body
