"""SQL92 expressions by chance: they are what a second, simple way to work them out says, and
nothing breaks on any text.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.common.errors import InvalidExpressionError
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.message.sql.expression import Expression
from support.message import sql_reference
from support.message.sql_expressions import (
    NAMES,
    VALUES,
    Choose,
    Tree,
    any_expression,
    damaged,
    debris,
    text_of,
)


@st.composite
def trees(draw: Any) -> Tree:
    return any_expression(Choose(lambda choices: draw(st.sampled_from(choices))))


@st.composite
def texts(draw: Any) -> str:
    choose = Choose(lambda choices: draw(st.sampled_from(choices)))
    return (
        damaged(choose, text_of(any_expression(choose))) if draw(st.booleans()) else debris(choose)
    )


messages = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(VALUES) | st.text(min_size=1, max_size=8)
)


@given(tree=trees(), properties=st.lists(messages, min_size=1, max_size=8))
def test_an_expression_is_what_the_simple_way_says(
    tree: Tree, properties: list[dict[str, str]]
) -> None:
    text = text_of(tree)
    try:
        sql_reference.check(tree)
    except sql_reference.Refused:
        try:
            Expression(text)
        except InvalidExpressionError:
            return
        raise AssertionError(f"{text} cannot be used, and was taken") from None
    expression = Expression(text)
    assert expression.unread is None
    for each in properties:
        try:
            wanted = sql_reference.value_of(tree, each)
        except sql_reference.Failed:
            assert not expression.matches(each.get)
            try:
                found = expression.evaluate(each.get)
            except ValueError:
                continue
            raise AssertionError(f"{text} has no value for {each}, and was {found}") from None
        assert expression.evaluate(each.get) is wanted, (text, each)
        assert expression.matches(each.get) is (wanted is True)


def record_with(properties: bytes) -> RecordCursor:
    message, host = (
        MessageRecord(b"T", b"body", born_host=bytes(8), born_time_ms=0, properties=properties),
        bytes(8),
    )
    record = bytearray(record_size(message, host))
    encode(message, record, 0, 0, 0, 0, host)
    return RecordCursor.on(bytes(record))


raw_values = (
    st.sampled_from(VALUES).map(str.encode)
    | st.integers(-(10**10), 10**10).map(b"%d".__mod__)
    | st.binary(max_size=6)
)
raw_properties = st.lists(
    st.tuples(st.sampled_from(NAMES).map(str.encode), raw_values).map(b"\1".join), max_size=6
).map(b"\2".join)


@given(
    tree=trees(), records=st.lists(raw_properties | st.binary(max_size=30), min_size=1, max_size=8)
)
@example(
    tree=("equality", ("name", "a"), [("=", ("text", "\ufffd"))]),
    records=[b"a\1\xff", b"a\1\xef\xbf\xbd\2", b"a\1\xed\xa0\x80"],
)
def test_an_expression_is_the_same_of_a_stored_record(tree: Tree, records: list[bytes]) -> None:
    try:
        expression = Expression(text_of(tree))
    except InvalidExpressionError:
        return
    for properties in records:
        for much in (
            b"",
            b"\2z\1" + bytes(30_000),
        ):  # with so many bytes, they are parsed once, and not looked up one by one
            cursor = record_with(properties + much)
            assert expression.matches_record(cursor) is expression.matches(cursor.property), (
                expression,
                properties,
            )


@given(text=texts() | st.text())
@example("'")
@example("a = 1 --")
@example("\ud800 = 1")
@example("a = '\ud800'")
def test_any_text_is_an_expression_or_is_refused_with_a_place(text: str) -> None:
    nothing: dict[str, str] = {}
    try:
        found: bool | str = Expression(text).matches(nothing.get)
    except InvalidExpressionError as problem:
        found = str(problem)
    assert isinstance(found, bool) or re.match(
        r"at (line \d+, )?column \d+: found .*, expected ", found, re.DOTALL
    )
