"""SQL92 expressions and properties made by chance, for tests: as trees that follow the grammar word
by word, and as texts.

Who makes them says what to choose (`Choose`): Hypothesis, which then finds small ones, or a seeded
random generator. A tree is a tuple whose first item says what it is; it is rendered without any
parentheses but its own, so reading the text has to find the tree again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Tree = tuple[Any, ...]

NAMES = ("a", "b", "c", "TAGS", "_x1")
VALUES = (
    "5", "-5", "5.5", "0", "true", "FALSE", "x", "x'y", "9999999999", "2147483648", "-2147483648", "9223372036854775808", "1f",
    "1d", "0x1p3", "NaN", "-Infinity", " 5 ", "5 ", "+5", "٥", "-0.0", "0.0", "1e400", "1e-400", "5E1", ".5", "5.", "abc",
    "größe", "1_0", "inf", "nan", "0x5", "00005", "𝟓", "5l", "-", "+", "--5", "\u00a05", "５", "it's",
)  # fmt: skip
NUMBERS = (
    "0", "5", "5.5", "5L", "2147483647", "2147483648", "9999999999", "9223372036854775807", "9223372036854775808", "0.5", "1E5", "5.", ".5",
    "0.0", "1e400", "9007199254740993", "9007199254740992.0", "00.5", "10l", "4", "6",
)  # fmt: skip
TEXTS = ("5", "x", "", "it's", "true", "größe", "5.5", "a b", "b")
WORDS = ("TRUE", "FALSE", "NULL")
SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
ORDERS = (">", ">=", "<", "<=")
_DEBRIS = (
    *NAMES, *NUMBERS[:6], *WORDS, *ORDERS, "=", "<>", "(", ")", ",", "+", "-", "NOT", "AND", "OR", "BETWEEN", "IN", "IS", "'x'", "'", "--",
    "/*", "*/", "/* x */", "\n", "\t", "\f", "\r\n", "\x0b", "\u00a0", ";", "!", "*", "/", ".", "#", "LIKE", "not", "iN", "007", "5e", "ä",
)  # fmt: skip


class Choose:
    """Chance. `searches`: whether there are CONTAINS and its like, which 4.9 does not know."""

    def __init__(self, one_of: Callable[[Sequence[Any]], Any], *, searches: bool = True) -> None:
        self._one_of = one_of
        self.searches = searches

    @classmethod
    def seeded(cls, seed: int, *, searches: bool = True) -> Choose:
        return cls(random.Random(seed).choice, searches=searches)

    def one_of(self, choices: Sequence[T]) -> T:
        chosen: T = self._one_of(choices)
        return chosen

    def chance(self, percent: int) -> bool:
        return self.one_of(range(100)) >= 100 - percent

    def some(self, most: int) -> range:
        return range(self.one_of(range(most + 1)))


# -- trees


def any_expression(choose: Choose, depth: int = 2) -> Tree:
    """OR of ANDs of equalities; most can be used, not all."""
    return (
        "or",
        [
            ("and", [_equality(choose, depth) for _ in range(1 + choose.chance(25))])
            for _ in range(1 + choose.chance(25))
        ],
    )


def _equality(choose: Choose, depth: int) -> Tree:
    steps: list[Tree] = []
    while choose.chance(40 if not steps else 15):
        kind = choose.one_of(("=", "=", "<>", "IS NULL", "IS NOT NULL"))
        steps.append((kind,) if kind.startswith("IS") else (kind, _comparison(choose, depth)))
    return ("equality", _comparison(choose, depth, is_bare=bool(steps)), steps)


def _comparison(choose: Choose, depth: int, *, is_bare: bool = True) -> Tree:
    steps: list[Tree] = []
    while choose.chance((15 if is_bare else 85) if not steps else 8):
        kind = choose.one_of(
            (*ORDERS, *ORDERS, "BETWEEN", "IN", "IN", *(SEARCHES if choose.searches else ()))
        )
        negated = choose.chance(40)
        if kind in ORDERS:
            steps.append((kind, _unary(choose, depth)))
        elif kind == "BETWEEN":
            steps.append((kind, negated, _unary(choose, depth), _unary(choose, depth)))
        elif kind == "IN":
            steps.append(
                (kind, negated, [choose.one_of(TEXTS) for _ in range(1 + choose.one_of(range(3)))])
            )
        else:
            steps.append((kind, negated, choose.one_of(TEXTS)))
    return ("comparison", _unary(choose, depth), steps)


def _unary(choose: Choose, depth: int) -> Tree:
    if choose.chance(12):
        return ("unary", choose.one_of(("-", "-", "+", "NOT")), _unary(choose, depth))
    if depth and choose.chance(15):
        return ("paren", any_expression(choose, depth - 1))
    kind = choose.one_of(("name",) * 6 + ("number",) * 3 + ("text", "word"))
    return (
        kind,
        choose.one_of({"name": NAMES, "number": NUMBERS, "text": TEXTS, "word": WORDS}[kind]),
    )


# -- texts


def text_of(tree: Tree) -> str:
    """The expression."""
    kind, first, *rest = tree
    if kind in ("or", "and"):
        return f" {kind.upper()} ".join(map(text_of, first))
    if kind in ("equality", "comparison"):
        return " ".join([text_of(first), *map(_step_text, rest[0])])
    if kind == "unary":
        return f"{first} {text_of(rest[0])}"
    if kind == "paren":
        return f"({text_of(first)})"
    return _quoted(first) if kind == "text" else str(first)


def _step_text(step: Tree) -> str:
    kind, *rest = step
    if not rest:
        return str(kind)
    if isinstance(rest[0], tuple):
        return f"{kind} {text_of(rest[0])}"
    word = f"NOT {kind}" if rest[0] else kind
    if kind == "BETWEEN":
        return f"{word} {text_of(rest[1])} AND {text_of(rest[2])}"
    return (
        f"{word} ({', '.join(map(_quoted, rest[1]))})"
        if kind == "IN"
        else f"{word} {_quoted(rest[1])}"
    )


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def damaged(choose: Choose, text: str) -> str:
    """A text like it that may mean nothing."""
    for _ in range(1 + choose.chance(40)):
        at = choose.one_of(range(len(text) + 1))
        text = text[:at] + (
            choose.one_of(_DEBRIS) + text[at:] if choose.chance(60) else text[at + 1 :]
        )
    return text


def debris(choose: Choose) -> str:
    """Words without a meaning."""
    return choose.one_of((" ", " ", "")).join(
        choose.one_of(_DEBRIS) for _ in range(1 + choose.one_of(range(7)))
    )


# -- messages


def any_properties(choose: Choose) -> dict[str, str]:
    """Of one message."""
    return {name: choose.one_of(VALUES) for name in NAMES if choose.chance(70)}
