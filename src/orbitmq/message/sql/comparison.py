"""Comparison of two values of an SQL92 expression, chosen by their types before any message is
seen.

A text beside a number is read as a number of that type, and beside TRUE or FALSE as a boolean;
integers beside a double become doubles. Values of incompatible types are unequal. Where the
original fails, ValueError is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from orbitmq.message.sql import tree
from orbitmq.message.sql.java_numbers import compare_doubles, double_of, int_of, long_of
from orbitmq.message.sql.tree import Node, NumberType

Value: TypeAlias = str | int | float | bool | None
Comparison: TypeAlias = Callable[
    [Any, Any], int
]  # of two values that are not NULL: negative, 0 or positive

READERS: Final[dict[NumberType, Callable[[str], int | float]]] = {
    NumberType.INT: int_of,
    NumberType.LONG: long_of,
    NumberType.DOUBLE: double_of,
}


def number_of(node: Node) -> tree.Number | None:
    """Return the value of a numeric constant, minus signs included."""
    is_negative = False
    while isinstance(node, tree.Negated):
        node, is_negative = node.operand, not is_negative
    if not isinstance(node, tree.Number):
        return None
    return tree.Number(-node.value, node.type) if is_negative else node


def comparison(left: Node, right: Node) -> Comparison:
    """Return how `=` compares the operands: 0 if equal."""
    one, other = number_of(left), number_of(right)
    if one is not None and other is not None:
        return _numbers(one.type, other.type)
    if one is not None:
        return _number_and(one.type, right)
    if other is not None:
        return _text_and_number(other.type) if _is_text(left) else _never
    if _is_text(left):
        return _texts if _is_text(right) else _text_and_truth
    return _truth_and_text if _is_text(right) else _truths


def ordering(left: Node, right: Node) -> Comparison:
    """Return how `<` and its like compare the operands: texts only as numbers."""
    return _texts_as_doubles if _is_text(left) and _is_text(right) else comparison(left, right)


def _is_text(node: Node) -> bool:
    return isinstance(node, (tree.PropertyRef, tree.Text))


def _number_and(kind: NumberType, right: Node) -> Comparison:
    if not _is_text(right):
        return _never
    compare = _text_and_number(kind)
    return lambda number, text: -compare(text, number)


def _text_and_number(kind: NumberType) -> Comparison:
    read, compare = READERS[kind], _numbers(kind, kind)
    return lambda text, number: compare(read(text), number)


def _numbers(left: NumberType, right: NumberType) -> Comparison:
    return _doubles if NumberType.DOUBLE in (left, right) else _integers


def _integers(left: int, right: int) -> int:
    return left - right


def _doubles(left: float, right: float) -> int:
    return compare_doubles(float(left), float(right))


def _texts(left: str, right: str) -> int:
    return 0 if left == right else -1


def _texts_as_doubles(left: str, right: str) -> int:
    return compare_doubles(double_of(left), double_of(right))


def _truths(left: bool, right: bool) -> int:
    return left - right


def _text_and_truth(left: str, right: bool) -> int:
    return (left.lower() == "true") - right


def _truth_and_text(_left: bool, right: str) -> int:
    raise ValueError(
        f"TRUE or FALSE cannot be compared with the text {right!r} after it: write the text first"
    )


def _never(_left: Value, _right: Value) -> int:
    return -1
