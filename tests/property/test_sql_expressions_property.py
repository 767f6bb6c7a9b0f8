"""SQL92 expressions by chance: they are what a second, simple way to work them out says, and nothing breaks on any text."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import sql_reference
from orbitmq.common.errors import ExpressionIllegal
from orbitmq.message.sql.expression import Expression
from sql_expressions import NAMES, VALUES, Choose, Tree, any_expression, damaged, debris, text_of


@st.composite
def trees(draw: Any) -> Tree:
    return any_expression(Choose(lambda choices: draw(st.sampled_from(choices))))


@st.composite
def texts(draw: Any) -> str:
    choose = Choose(lambda choices: draw(st.sampled_from(choices)))
    return damaged(choose, text_of(any_expression(choose))) if draw(st.booleans()) else debris(choose)


messages = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.text(min_size=1, max_size=8))


@given(tree=trees(), properties=st.lists(messages, min_size=1, max_size=8))
def test_an_expression_is_what_the_simple_way_says(tree: Tree, properties: list[dict[str, str]]) -> None:
    text = text_of(tree)
    try:
        sql_reference.check(tree)
    except sql_reference.Refused:
        try:
            Expression(text)
        except ExpressionIllegal:
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


@given(text=texts() | st.text())
@example("'")
@example("a = 1 --")
@example("\ud800 = 1")
@example("a = '\ud800'")
def test_any_text_is_an_expression_or_is_refused_with_a_place(text: str) -> None:
    nothing: dict[str, str] = {}
    try:
        found: bool | str = Expression(text).matches(nothing.get)
    except ExpressionIllegal as problem:
        found = str(problem)
    assert isinstance(found, bool) or re.match(r"at (line \d+, )?column \d+: found .*, expected ", found, re.DOTALL)
