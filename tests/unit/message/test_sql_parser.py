"""Which texts are SQL92 expressions, how they are parsed, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from orbitmq.common.errors import InvalidExpressionError
from orbitmq.message.sql import expression as expressions
from orbitmq.message.sql.expression import compiled
from orbitmq.message.sql.parser import NESTING_MAX, Parsed, parse
from orbitmq.message.sql.tree import (
    And,
    Equal,
    IsTrue,
    Node,
    Not,
    Number,
    NumberType,
    Or,
    Ordered,
    PropertyRef,
    Text,
)


def tree_of(text: str) -> Node:
    return parse(text).node


def number(value: int) -> Number:
    return Number(value, NumberType.INT)


def test_operators_bind_in_the_order_of_the_original() -> None:
    a, b, c = (Equal(PropertyRef(name), number(1)) for name in "abc")
    assert tree_of("a = 1 OR b = 1 AND c = 1") == Or((a, And((b, c))))
    assert tree_of("(a = 1 OR b = 1) AND c = 1") == And((Or((a, b)), c))
    assert tree_of("NOT a = 1") == Equal(Not(IsTrue(PropertyRef("a"))), number(1))
    assert tree_of("NOT (a = 1)") == Not(a)
    assert tree_of("a > 1 = b < 1") == Equal(
        Ordered(">", PropertyRef("a"), number(1)), Ordered("<", PropertyRef("b"), number(1))
    )
    assert tree_of("a BETWEEN 1 AND 2 AND b = 1") == And(
        (
            And(
                (
                    Ordered(">=", PropertyRef("a"), number(1)),
                    Ordered("<=", PropertyRef("a"), number(2)),
                )
            ),
            b,
        )
    )


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("0", 0, NumberType.INT), ("2147483647", 2147483647, NumberType.INT), ("5l", 5, NumberType.INT), ("5L", 5, NumberType.INT),
        ("2147483648", 2147483648, NumberType.LONG), ("9223372036854775807", (1 << 63) - 1, NumberType.LONG),
        ("5.", 5.0, NumberType.DOUBLE), (".5", 0.5, NumberType.DOUBLE), ("5E1", 50.0, NumberType.DOUBLE), ("00.5", 0.5, NumberType.DOUBLE),
        ("5.5e-1", 0.55, NumberType.DOUBLE), ("1e308", 1e308, NumberType.DOUBLE), ("4.9E-324", 5e-324, NumberType.DOUBLE),
    ],
)  # fmt: skip
def test_numbers_have_the_type_that_their_spelling_says(
    text: str, value: float, kind: NumberType
) -> None:
    assert tree_of(f"a = {text}") == Equal(PropertyRef("a"), Number(value, kind))


def test_spaces_and_comments_stand_between_words() -> None:
    assert tree_of("\ta/* = 2 */=\r\n'x -- y'-- the rest\n\f") == Equal(
        PropertyRef("a"), Text("x -- y")
    )
    assert tree_of("a = '/* it''s */'") == Equal(PropertyRef("a"), Text("/* it's */"))
    assert tree_of("$a_1 = 1 AND _ = 1") == And(
        (Equal(PropertyRef("$a_1"), number(1)), Equal(PropertyRef("_"), number(1)))
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("size > > 3", "at column 8: found `>`, expected a property, a number, a text in single quotes, TRUE, FALSE, NULL or `(`"),
        ("", "at column 1: found the end of the expression, expected a property"),
        ("a = ", "at column 5: found the end of the expression, expected a property"),
        ("a =\n  b AND\n  )", "at line 3, column 3: found `)`, expected a property"),
        ("a = 'x", "at column 5: found a quote that is never closed, expected a name, a number, a text"),
        ("a = 1 /* x", "at column 7: found a comment that is never closed"),
        ("a != 1", "at column 3: found `!`, expected a name"),
        ("größe = 1", "at column 3: found `ö`, expected a name"),
        ("(a = 1", "at column 7: found the end of the expression, expected an operator or `)`"),
        ("a IN ()", "at column 7: found `)`, expected a text in single quotes"),
        ("a IN (5)", "at column 7: found `5`, expected a text in single quotes"),
        ("a IN ('5',)", "at column 11: found `)`, expected a text in single quotes"),
        ("a IN ('5' '6')", "at column 11: found `'6'`, expected `,` or `)`"),
        ("a IN '5'", "at column 6: found `'5'`, expected `(` and texts in single quotes"),
        ("5 IN ('5')", "at column 1: found what is no property before IN, expected the name of a property"),
        ("a CONTAINS 5", "at column 12: found `5`, expected a text in single quotes"),
        ("a NOT = 5", "at column 7: found `=`, expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN"),
        ("a IS 5", "at column 6: found `5`, expected NULL or NOT NULL"),
        ("a IS NOT 5", "at column 10: found `5`, expected NULL"),
        ("a BETWEEN 1 OR 2", "at column 13: found `OR`, expected AND, and the upper end of BETWEEN"),
        ("a BETWEEN 5 AND 4", "at column 17: found an upper end of BETWEEN below the lower one, expected one that is not below 5"),
        ("a BETWEEN NULL AND 4", "at column 11: found what has no order beside `>=`, expected a number or a property"),
        ("a BETWEEN 'a' AND 'b'", "at column 11: found what has no order"),
        ("a > 'x'", "at column 5: found what has no order beside `>`, expected a number or a property"),
        ("TRUE < a", "at column 1: found what has no order beside `<`"),
        ("a > 1 > 2", "at column 1: found what has no order beside `>`"),
        ("a = NULL", "at column 5: found NULL beside `=` or `<>`, expected IS NULL or IS NOT NULL, which is how to ask for that"),
        ("NULL <> a", "at column 1: found NULL beside"),
        ("TRUE = 1", "at column 8: found a constant that is neither TRUE nor FALSE"),
        ("5", "at column 1: found a value that is neither true nor false, expected a comparison, TRUE, FALSE, NULL or a property"),
        ("a = 1 AND 'x'", "at column 11: found a value that is neither true nor false"),
        ("NOT -a", "at column 5: found a value that is neither true nor false"),
        ("a = 9223372036854775808", "at column 5: found `9223372036854775808`, expected an integer up to 9223372036854775807"),
        ("a = 0.0", "at column 5: found `0.0`, expected a decimal number above 0, within the range of a double; 0 is written as `0`"),
        ("a = 1e400", "at column 5: found `1e400`, expected a decimal number above 0"),
        ("contains = 'x'", "at column 1: found `CONTAINS`, expected a property"),
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidExpressionError) as refused:
        compiled(text)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("a LIKE 'x'", "LIKE 'x'"), ("a = 1)", ")"), ("a = 1 b ; !", "b ; !"), ("a + 1 = 2", "+ 1 = 2"), ("a = 5 -- x", "-- x"),
        ("a", None), ("a = 1 -- x\n", None),
    ],
)  # fmt: skip
def test_words_behind_an_expression_are_not_read_as_in_the_original(
    text: str, unread: str | None
) -> None:
    assert compiled(text).unread == unread


def test_an_expression_may_be_long_but_not_deep() -> None:
    chain = " OR ".join(f"a = {number}" for number in range(1000))
    assert compiled(chain).matches({"a": "999"}.get)
    deep = "(" * NESTING_MAX + "a = 1" + ")" * NESTING_MAX
    assert compiled(deep).matches({"a": "1"}.get)
    for text in (
        f"({deep})",
        "NOT " * 2000 + "a",
        "a" + " = 1" * 2000,
        "-" * 2000 + "1 = 1",
        "a" + " IS NULL" * 2000,
    ):
        with pytest.raises(
            InvalidExpressionError,
            match=f"found more than {NESTING_MAX} operators within each other",
        ):
            compiled(text)


def test_an_expression_is_made_once_for_each_text_good_or_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []

    def parse_noted(text: str) -> Parsed:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(expressions, "parse", parse_noted)
    assert compiled("made_once = 1") is compiled("made_once = 1")
    for _ in range(2):
        with pytest.raises(InvalidExpressionError, match="at column 13"):
            compiled("made_once = ")
    assert parsed == ["made_once = 1", "made_once = "]
    long = "made_once = 1" + " OR made_once = 1" * 1000
    assert compiled(long) is compiled(long)
