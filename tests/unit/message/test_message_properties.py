"""The properties text: what is read, what is written, and the names reserved for the system."""

from __future__ import annotations

import pytest

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import properties
from orbitmq.message.properties import closed, decode_text, encode, extended, parse, without, write


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # each was checked against the original's parser
        ("a\1b\2", {"a": "b"}),
        ("a\1b", {"a": "b"}),
        ("\1a\1b\2", {}),
        ("a\1\2", {}),
        ("\1b\2", {}),
        ("a\1b\1c\2", {"a": "b\1c"}),
        ("a\1b\2a\1c\2", {"a": "c"}),
        ("a\1b\2a\1\2", {"a": "b"}),
        ("ab\2c\1d\2", {"c": "d"}),
        ("\2\2a\1b\2\2", {"a": "b"}),
        ("a\1b\2c", {"a": "b"}),
        ("", {}),
    ],
)
def test_what_is_no_whole_property_is_dropped_and_the_last_of_a_name_counts(
    text: str, expected: dict[str, str]
) -> None:
    assert parse(text) == parse(text.encode()) == expected


def test_properties_are_written_with_every_end_and_without_those_that_have_no_value() -> None:
    assert (
        write({"a": "b", "none": None, "empty": "", "ключ": "значение"})
        == "a\1b\2empty\1\2ключ\1значение\2"
    )
    assert encode({"a": "x\ud800y"}) == b"a\1x?y\2"


@pytest.mark.parametrize(("name", "value"), [("a\1", "b"), ("a\2", "b"), ("a", "b\2c\1d")])
def test_a_separator_that_would_cut_a_property_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidMessageError, match="separator"):
        write({name: value})
    assert parse(write({"a": "b\1c"})) == {"a": "b\1c"}


@pytest.mark.parametrize(
    ("raw", "text"),
    [  # as Java reads them
        (b"\xed\xa0\x80A", "\ufffdA"),
        (b"\xc0\x80A", "\ufffd\ufffdA"),
        (b"\xf0\x9fA", "\ufffdA"),
        (b"\xe4\xb8\x02A", "\ufffd\x02A"),
        (b"\xf5\x80\x80\x80A", "\ufffd\ufffd\ufffd\ufffdA"),
        (b"\xf4\x90\x80\x80A", "\ufffd\ufffd\ufffd\ufffdA"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_malformed_utf8_reads_as_in_java(raw: bytes, text: str) -> None:
    assert decode_text(raw) == text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\1b\2c\1d\2", b"c\1d\2"),
        (b"c\1d\2a\1b\2", b"c\1d\2"),
        (b"c\1d\2a\1b", b"c\1d\2"),
        (b"a\1b", b""),
        (b"a\1b\2", b""),
        (b"a\1\2c\1d", b"c\1d"),
        (b"a\1b\2a\1c\2ba\1d\2", b"ba\1d\2"),
        (b"x\2a\1b\2\2y", b"x\2\2y"),
        (b"ba\1c\2", b"ba\1c\2"),
        (b"", b""),
    ],
)
def test_a_property_is_taken_out_and_nothing_else_changes(raw: bytes, expected: bytes) -> None:
    assert without(raw, "a") == expected


def test_what_is_added_stands_behind_and_wins() -> None:
    assert extended(b"", {"a": "b"}) == b"a\1b\2"
    assert extended(b"a\1b", {"c": "d"}) == b"a\1b\2c\1d\2"
    assert parse(extended(b"a\1b\2", {"a": "c"})) == {"a": "c"}
    assert closed(b"") == b""


def test_the_reserved_names_are_those_of_the_original() -> None:
    assert len(properties.RESERVED) == 54
    names = {
        value
        for name, value in vars(properties).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    } - {properties.NAME_END, properties.VALUE_END, properties.KEY_SEPARATOR}
    assert names - properties.RESERVED == {
        "INNER_NUM",
        "INNER_BASE",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "__SHARDINGKEY",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "INNER_MULTI_DISPATCH",
        "TRACE_CONTEXT",
        "__RMQ.TRANSIENT.",
    }
