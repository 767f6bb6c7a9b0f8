"""Java properties text is read as Java reads it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.common import properties
from orbitmq.common.properties import Property


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in properties.parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listenPort=9876", [("listenPort", "9876")]),
        ("  a = 1 \n\tb:2\nc 3\nd\n", [("a", "1 "), ("b", "2"), ("c", "3"), ("d", "")]),
        ("a\t \f:  x", [("a", "x")]),
        ("a = = b", [("a", "= b")]),
        ("a  b = c", [("a", "b = c")]),
        ("# one\n  ! two\n\n \t\na=#3", [("a", "#3")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("fruits = apple, \\\n         pear\nx=1", [("fruits", "apple, pear"), ("x", "1")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n# no comment here", [("a", "1# no comment here")]),
        ("a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("\\\n# a comment after nothing\n\\\n\n  a=1", [("a", "1")]),
        ("with\\ blank\\=and\\:colon=v", [("with blank=and:colon", "v")]),
        ("a=\\t\\n\\r\\f\\q\\u4e2d\\ud83d\\ude00", [("a", "\t\n\r\fq中😀")]),
        ("=v", [("", "v")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("", []),
    ],
)
def test_an_entry_is_read_as_java_reads_it(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_an_entry_knows_the_line_it_begins_on() -> None:
    assert properties.parse("# c\n\na=1\\\n  2\nb=3") == [
        Property("a", "12", 3),
        Property("b", "3", 5),
    ]


@pytest.mark.parametrize("value", ["\\u00zz", "\\u12", "\\u"])
def test_a_broken_unicode_escape_is_an_error_that_names_the_line(value: str) -> None:
    with pytest.raises(properties.PropertiesError) as caught:
        properties.parse(f"a=1\nb={value}")
    assert str(caught.value) == "line 2: \\u must be followed by four hexadecimal digits"


def test_bytes_that_are_not_utf8_are_latin_1() -> None:
    assert properties.decode("ä=中".encode()) == "ä=中"
    assert properties.decode(b"\xe4=1") == "ä=1"


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_is_read_back(table: dict[str, str]) -> None:
    text = properties.write(table)
    assert text.isascii()
    assert dict(pairs(text)) == table


@given(st.text(alphabet="ab=: \\\n\r\t\f#!u0019f"))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    with contextlib.suppress(properties.PropertiesError):
        assert all(1 <= entry.line <= len(text) + 1 for entry in properties.parse(text))
