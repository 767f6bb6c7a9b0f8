"""Limits on the cost of an SQL92 expression: to read it, to compile it, and per message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from orbitmq.common.errors import InvalidExpressionError
from orbitmq.message.properties import encode as encode_properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.message.sql.expression import Expression, compiled
from orbitmq.message.sql.java_numbers import double_of, int_of, long_of
from orbitmq.message.sql.parser import CHARS_MAX, COST_MAX, WORDS_MAX, parse
from orbitmq.message.sql.tokens import words_of
from support.common.linear_work import GROWTH, assert_linear, cpu_s, outcome


def record_of(properties: dict[str, str]) -> RecordCursor:
    message, host = (
        MessageRecord(
            b"T", b"", born_host=bytes(8), born_time_ms=0, properties=encode_properties(properties)
        ),
        bytes(8),
    )
    record = bytearray(record_size(message, host))
    encode(message, record, 0, 0, 0, 0, host)
    return RecordCursor.on(bytes(record))


@pytest.mark.parametrize(
    "spelled",
    [
        lambda size: "-" * size + "1 < a",
        lambda size: "a = " + "0" * size,
        lambda size: "a = --1 AND " * (size // 12) + "a = 1",
        lambda size: "a = " + "9" * size + "x",
        lambda size: "a = " + "9" * size + ".",
        lambda size: "a = 1e" + "9" * size,
        lambda size: "a = '" + "''" * size,
        lambda size: "a = '" + "x" * size,
        lambda size: "/*" * size,
        lambda size: "/**/" * size + "a",
        lambda size: "-- x\n" * size + "a",
        lambda size: " " * size + "a",
        lambda size: "(" * size,
        lambda size: "a" * size + " = 1",
        lambda size: "a = 1 " + "\n" * size + "!",
    ],
)
def test_reading_an_expression_is_work_in_proportion_to_its_text(
    spelled: Callable[[int], str],
) -> None:
    assert_linear(
        lambda size: outcome(partial(parse, spelled(size)), InvalidExpressionError), 2_000
    )


@pytest.mark.parametrize(
    "part", ["-", "a = --1 AND ", "'x'", "/**/a ", "-- x\n", "1.5 ", "<>", "a"]
)
def test_reading_all_words_is_work_in_proportion_to_their_text(part: str) -> None:
    assert_linear(lambda size: lambda: list(words_of(part * (size // len(part)))), 2_000)


def test_a_text_that_would_hold_a_broker_is_refused_at_once_and_the_limit_is_named() -> None:
    for text in ("-" * CHARS_MAX + "1 < a", "a = 1 OR " * (CHARS_MAX // 9 + 1) + "a = 1"):
        with pytest.raises(InvalidExpressionError, match=f"at most {CHARS_MAX} are read"):
            compiled(text)
    with pytest.raises(InvalidExpressionError, match=f"more than {WORDS_MAX} words"):
        compiled("a = 1 OR " * (WORDS_MAX // 4) + "a = 1")
    with pytest.raises(InvalidExpressionError, match="more than 100 operators within each other"):
        compiled("-" * 10_000 + "1 < a")


def test_an_expression_at_the_limits_is_taken() -> None:
    texts = [f"'{number}'" for number in range((WORDS_MAX - 4) // 2)]
    assert compiled(f"a IN ({', '.join(texts)})").matches({"a": "17"}.get)
    assert compiled(" OR ".join(f"a = {number}" for number in range(WORDS_MAX // 4))).matches(
        {"a": "17"}.get
    )
    longest = f"a = '{'x' * (CHARS_MAX - 6)}'"
    assert compiled(longest).matches({"a": "x" * (CHARS_MAX - 6)}.get)


def test_errors_do_not_repeat_what_is_long() -> None:
    for text in ("a CONTAINS " + "x" * 60_000, "a = 1" + "0" * 60_000, "a IN (" + "x" * 60_000):
        with pytest.raises(InvalidExpressionError) as refused:
            compiled(text)
        assert len(str(refused.value)) < 500


def test_a_between_within_a_between_is_worked_out_twice_and_so_limited() -> None:
    text = "a"
    for _ in range(3):
        text = f"-({text} BETWEEN 1 AND 2)"
    assert 30 < parse(f"{text} = 1").cost < COST_MAX
    for _ in range(27):
        text = f"-({text} BETWEEN 1 AND 2)"
    with pytest.raises(InvalidExpressionError, match=f"COST_MAX={COST_MAX}"):
        compiled(f"{text} = 1")


def test_compiling_is_work_in_proportion_to_the_words() -> None:
    minuses = "-" * 90
    for part in (
        "a = 1",
        "a BETWEEN 1 AND 2",
        "NOT (a IS NULL)",
        f"a = {minuses}b",
        f"a = {minuses}1",
        f"{minuses}a IS NULL",
    ):
        most = WORDS_MAX // len(list(words_of(f"{part} OR")))
        small, large = (
            cpu_s(partial(Expression, " OR ".join([part] * count)))
            for count in (max(most // GROWTH, 1), most)
        )
        assert large <= 4 * GROWTH * (small + 0.001), part


@pytest.mark.parametrize("read", [int_of, long_of, double_of])
@pytest.mark.parametrize(
    "spelled",
    [
        lambda size: "1" * size + "x",
        lambda size: "1" * size,
        lambda size: "0" * size + "5",
        lambda size: "\u0661" * size,
        lambda size: "1" * size + ".x",
        lambda size: "1." + "1" * size + "e",
        lambda size: "1e" + "1" * size + "x",
        lambda size: "0x" + "f" * size + "z",
        lambda size: "0x" + "f" * size + "p1",
        lambda size: " " * size + "1" + " " * size,
    ],
)
def test_a_text_is_read_as_a_number_by_work_in_proportion_to_it(
    read: Callable[[str], float], spelled: Callable[[int], str]
) -> None:
    count = iter(range(1_000_000))
    assert_linear(
        lambda size: (
            lambda: outcome(lambda: read(spelled(size) + " " * (next(count) % 7)), ValueError)()
        ),
        2_000,
    )


def test_an_integer_may_have_many_leading_zeros_as_in_java() -> None:
    assert int_of("0" * 30_000 + "5") == long_of("+" + "0" * 30_000 + "5") == 5
    assert int_of("-" + "\u0660" * 300 + "5") == -5
    with pytest.raises(ValueError, match="bits"):
        int_of("0" * 300 + "9" * 300)


def test_an_in_of_thousands_costs_a_record_no_more_than_one_of_few() -> None:
    record = record_of({"a": "zz"})
    few, many = (
        Expression("a IN ('" + "', '".join(map(str, range(count))) + "')") for count in (10, 2_000)
    )

    def matched(expression: Expression) -> Callable[[], object]:
        return lambda: [expression.matches_record(record) for _ in range(2_000)]

    assert not many.matches_record(record)
    assert many.matches_record(record_of({"a": "1999"}))
    assert not Expression(many.text.replace(" IN ", " NOT IN ")).matches_record(
        record_of({"a": "1999"})
    )
    assert cpu_s(matched(many)) <= 20 * cpu_s(matched(few)) + 0.005


@pytest.mark.parametrize(
    "part", ["a{} = 1", "b = {}", "b <> '{}'", "b > {}.5", "b CONTAINS '{}'", "a{} IS NOT NULL"]
)
def test_many_comparisons_of_a_record_with_many_properties_are_not_their_product(part: str) -> None:
    """Properties are parsed once where each comparison would search all of them."""
    whole = Expression(" OR ".join(part.format(number) for number in range(500)))
    wide = {f"p{number}": "1" for number in range(4_000)} | {"b": "5" * 5}
    record = record_of(wide)
    looked_up = 0

    class Counted(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            nonlocal looked_up
            looked_up += 1
            return super().get(name, default)

    assert whole.matches_record(record) == whole.matches(Counted(wide).get)
    assert 1 <= looked_up <= whole.cost
    plain = cpu_s(lambda: [record.property(f"q{number}") for number in range(500)])
    assert cpu_s(lambda: whole.matches_record(record)) <= 4 * plain + 0.02


def test_a_record_costs_no_more_than_the_expression_says() -> None:
    for text in (
        "a = 1",
        "a BETWEEN 1 AND 2 OR b IN ('x', 'y')",
        "NOT (a CONTAINS 'x') AND -b IS NULL",
        "a = b = TRUE",
    ):
        looked_up: list[str] = []
        expression = Expression(text)
        expression.evaluate(lambda name, looked_up=looked_up: looked_up.append(name))  # type: ignore[misc]
        assert 1 <= len(looked_up) <= expression.cost
