"""Texts parsed as numbers as Java's `Integer`, `Long` and `Double` do."""

from __future__ import annotations

import math

import pytest

from orbitmq.message.sql.java_numbers import compare_doubles, double_of, int_of, long_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("0005", 5),
        ("-0", 0),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("٥5", 55),
        ("５", 5),
    ],
)
def test_integers(text: str, value: int) -> None:
    assert int_of(text) == long_of(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 5",
        "5 ",
        "5.0",
        "1_0",
        "0x5",
        "5l",
        "-",
        "+",
        "--5",
        "x",
        "𝟓",
        "1e1",
        "²",
        "9" * 5000,
        "-" + "9" * 20,
    ],
)
def test_what_is_no_integer(text: str) -> None:
    for read in (int_of, long_of):
        with pytest.raises(ValueError, match="integer"):
            read(text)


def test_integers_have_bounds() -> None:
    assert long_of("9223372036854775807") == (1 << 63) - 1
    for read, text in (
        (int_of, "2147483648"),
        (int_of, "-2147483649"),
        (long_of, "9223372036854775808"),
    ):
        with pytest.raises(ValueError, match="bits"):
            read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0), (" 5 ", 5.0), ("\x005\n", 5.0), ("5.", 5.0), (".5", 0.5), ("-5E1", -50.0), ("5e+1d", 50.0), ("1f", 1.0),
        ("1D", 1.0), ("0x1p3", 8.0),
        ("-0X.8P1f", -1.0), ("0x1.8p1", 3.0), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1e400", math.inf), ("-1e400", -math.inf),
        ("0x1p5000", math.inf), ("-0x1p5000", -math.inf), ("1e-400", 0.0), ("+5", 5.0),
    ],
)  # fmt: skip
def test_doubles(text: str, value: float) -> None:
    assert double_of(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "5 5",
        "1_0",
        "inf",
        "nan",
        "infinity",
        "0x5",
        "0x",
        "e5",
        "٥",
        "\u00a05",
        "5ff",
        "NaNd",
        "--5",
        "x",
    ],
)
def test_what_is_no_double(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        double_of(text)


def test_doubles_have_one_order() -> None:
    ordered = [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
    assert math.isnan(double_of("-NaN"))
    for left, one in enumerate(ordered):
        for right, other in enumerate(ordered):
            order = compare_doubles(one, other)
            assert (order > 0) - (order < 0) == (left > right) - (left < right), (one, other)
