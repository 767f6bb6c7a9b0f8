"""Evaluation of SQL92 expressions: compiles a tree into functions that yield true, false or None
(NULL).

A compiled function takes the property lookup as its argument. It raises ValueError where the
original fails on a comparison, such as a number with a non-numeric text; filters treat that, like
NULL, as no match. AND and OR are evaluated left to right with short-circuiting, which decides
whether such an error occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from orbitmq.message.sql import tree
from orbitmq.message.sql.comparison import READERS, Value, comparison, number_of, ordering
from orbitmq.message.sql.java_numbers import PLAIN_DIGITS_MAX
from orbitmq.message.sql.tree import Node, NumberType

Lookup: TypeAlias = Callable[[str], str | None]
Test: TypeAlias = Callable[[Lookup], bool | None]
ValueFunction: TypeAlias = Callable[[Lookup], Value]


def test_of(node: Node) -> Test:
    """Return the function of a node that is true, false or NULL."""
    return _MAKERS[type(node)](node)


# -- logic


def _truth(node: tree.Truth) -> Test:
    value = node.value
    return lambda _: value


def _is_true(node: tree.IsTrue) -> Test:
    name = node.operand.name
    return lambda get: None if get(name) is None else False


def _not(node: tree.Not) -> Test:
    operand = test_of(node.operand)

    def test(get: Lookup) -> bool | None:
        value = operand(get)
        return None if value is None else not value

    return test


def _and(node: tree.And) -> Test:
    operands = tuple(map(test_of, node.operands))

    def test(get: Lookup) -> bool | None:
        result: bool | None = True
        for operand in operands:
            value = operand(get)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return test


def _or(node: tree.Or) -> Test:
    operands = tuple(map(test_of, node.operands))

    def test(get: Lookup) -> bool | None:
        result: bool | None = False
        for operand in operands:
            value = operand(get)
            if value:
                return True
            if value is None:
                result = None
        return result

    return test


# -- texts


def _one_of(node: tree.OneOf) -> Test:
    name, texts, negated = node.operand.name, node.texts, node.negated

    def test(get: Lookup) -> bool | None:
        value = get(name)
        return None if value is None else (value in texts) is not negated

    return test


def _search(node: tree.Search) -> Test:
    if not node.text:  # an empty text matches nothing, negated or not
        return lambda _: False
    value_of, found_in, text, negated = (
        value_function(node.operand),
        _SEARCHES[node.word],
        node.text,
        node.negated,
    )

    def test(get: Lookup) -> bool | None:
        value = value_of(get)
        return isinstance(value, str) and found_in(value, text) is not negated

    return test


_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


# -- comparisons


def _is_null(node: tree.IsNull) -> Test:
    value_of = value_function(node.operand)
    return lambda get: value_of(get) is None


def _equal(node: tree.Equal) -> Test:
    left, right = node.left, node.right
    number = number_of(right)
    if isinstance(left, tree.PropertyRef) and (isinstance(right, tree.Text) or number is not None):
        return _equal_property(left.name, right.value if isinstance(right, tree.Text) else number)
    value_of, other_of, compare = (
        value_function(left),
        value_function(right),
        comparison(left, right),
    )

    def test(get: Lookup) -> bool | None:
        value, other = value_of(get), other_of(get)
        if value is None:
            return True if other is None else None
        return other is not None and compare(value, other) == 0

    return test


def _equal_property(name: str, constant: str | tree.Number | None) -> Test:
    """Compile the common case: a property and a constant."""
    assert constant is not None
    if isinstance(constant, str):

        def is_text(get: Lookup) -> bool | None:
            value = get(name)
            return None if value is None else value == constant

        return is_text
    read, number = READERS[constant.type], constant.value

    def is_number(get: Lookup) -> bool | None:
        value = get(name)
        return None if value is None else read(value) == number

    return is_number


def _ordered(node: tree.Ordered) -> Test:
    left, right, sign = node.left, node.right, node.sign
    number = number_of(right)
    if isinstance(left, tree.PropertyRef) and number is not None:
        return _ordered_property(left.name, sign, number)
    value_of, other_of, compare = value_function(left), value_function(right), ordering(left, right)
    holds = _SIGNS[sign]

    def test(get: Lookup) -> bool | None:
        value = value_of(get)
        if value is None:
            return None
        other = other_of(get)
        return None if other is None else holds(compare(value, other))

    return test


def _ordered_property(name: str, sign: str, number: tree.Number) -> Test:
    """Compile the common case: a property and a number. The number is never NaN, which is above
    every number, and never a double 0.
    """
    read, bound = READERS[number.type], number.value
    is_below, is_inverted = sign in ("<", ">="), sign in (">", ">=")
    plain_max = 0 if number.type is NumberType.DOUBLE else PLAIN_DIGITS_MAX

    def test(get: Lookup) -> bool | None:
        value = get(name)
        if value is None:
            return None
        found = (
            int(value)
            if len(value) <= plain_max and value.isascii() and value.isdigit()
            else read(value)
        )
        return (found < bound if is_below else found <= bound) is not is_inverted

    return test


_SIGNS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


# -- values


def value_function(node: Node) -> ValueFunction:
    """Return the function that evaluates a node of any type."""
    if isinstance(node, tree.PropertyRef):
        name = node.name
        return lambda get: get(name)
    if isinstance(node, (tree.Text, tree.Number)):
        constant = node.value
        return lambda _: constant
    if isinstance(node, tree.Negated):
        number = number_of(node)
        if number is not None:
            negative = number.value
            return lambda _: negative
        operand: Node = node
        while isinstance(operand, tree.Negated):
            operand = operand.operand
        inner = value_function(operand)  # not a number, so NULL; but evaluating it may fail

        def nothing(get: Lookup) -> None:
            inner(get)

        return nothing
    return test_of(node)


_MAKERS: Final[dict[type[Any], Callable[[Any], Test]]] = {
    tree.Truth: _truth,
    tree.IsTrue: _is_true,
    tree.Not: _not,
    tree.And: _and,
    tree.Or: _or,
    tree.OneOf: _one_of,
    tree.Search: _search,
    tree.IsNull: _is_null,
    tree.Equal: _equal,
    tree.Ordered: _ordered,
}
