"""SQL92 expressions worked out the simple way, from the trees of `sql_expressions`: a second
opinion on what the product makes of a text.

Written from the rules alone: values carry Java's types with them, and everything is decided when it
is needed. `Refused` is an expression that cannot be used, `Failed` a comparison that cannot be
made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from support.message.sql_expressions import ORDERS, SEARCHES, Tree

INT, LONG, DOUBLE, STRING, BOOLEAN = "Integer", "Long", "Double", "String", "Boolean"
NUMBERS = (INT, LONG, DOUBLE)
PROPERTY, CONSTANT, BOOLEAN_CONSTANT, BOOLEAN_EXPRESSION, OTHER = (
    "property",
    "constant",
    "boolean constant",
    "boolean",
    "other",
)
_BOOLEANS = (BOOLEAN_CONSTANT, BOOLEAN_EXPRESSION)
_RANGES = {INT: 1 << 31, LONG: 1 << 63}


class Refused(Exception):
    """There is no such expression."""


class Failed(Exception):
    """It has no value for this message."""


class Value(NamedTuple):
    """A value that is not NULL."""

    type: str
    value: Any


Maybe = Value | None


# -- what may be used


def check(tree: Tree) -> None:
    """Refused when the expression means nothing."""
    _check_boolean(tree)


def _check_boolean(tree: Tree) -> None:
    if _sort(tree) not in (*_BOOLEANS, PROPERTY):
        raise Refused(tree)


def _sort(tree: Tree) -> str:
    """What sort of thing it is to whatever stands around it; Refused for what means nothing inside
    of it.
    """
    kind, first, *rest = tree
    if kind in ("or", "and"):
        if len(first) == 1:
            return _sort(first[0])
        for each in first:
            _check_boolean(each)
        return BOOLEAN_EXPRESSION
    if kind in ("equality", "comparison"):
        sort, left = _sort(first), first
        for number, step in enumerate(rest[0]):
            _check_step(sort, _constant(left) if number == 0 else None, step)
            sort = BOOLEAN_EXPRESSION
        return sort
    if kind == "paren":
        return _sort(first)
    if kind == "unary":
        if first == "NOT":
            _check_boolean(rest[0])
            return BOOLEAN_EXPRESSION
        inner = _sort(rest[0])
        return inner if first == "+" else OTHER
    if kind == "name":
        return PROPERTY
    if kind == "word":
        return BOOLEAN_CONSTANT
    if kind == "number":
        _number(first)
    return CONSTANT


def _check_step(left: str, constant: Value | str | None, step: Tree) -> None:
    kind, *rest = step
    if kind in ("=", "<>"):
        right, other = _sort(rest[0]), _constant(rest[0])
        if (
            constant == "NULL"
            or other == "NULL"
            or (left == BOOLEAN_CONSTANT and right == CONSTANT)
        ):
            raise Refused(step)
    elif kind in ORDERS:
        _check_order(left, constant)
        _check_order(_sort(rest[0]), _constant(rest[0]))
    elif kind == "BETWEEN":
        negated, low, high = rest
        for part in (low, high):
            _check_order(_sort(part), _constant(part))
        _check_order(left, constant)
        ends = _constant(low), _constant(high)
        if (
            not negated
            and isinstance(ends[0], Value)
            and isinstance(ends[1], Value)
            and _compare(ends[1], ends[0]) < 0
        ):
            raise Refused(step)
    elif kind == "IN" and left != PROPERTY:
        raise Refused(step)


def _check_order(sort: str, constant: Value | str | None) -> None:
    if sort in _BOOLEANS or (
        sort == CONSTANT and not (isinstance(constant, Value) and constant.type in NUMBERS)
    ):
        raise Refused(sort)


def _constant(tree: Tree) -> Value | str | None:
    """The constant that a tree is, "NULL" for that; None when it is none. A minus sign makes
    something else of it.
    """
    kind, first, *rest = tree
    if kind == "paren" or (kind in ("or", "and") and len(first) == 1):
        return _constant(first if kind == "paren" else first[0])
    if kind in ("equality", "comparison"):
        return None if rest[0] else _constant(first)
    if kind == "unary":
        return _constant(rest[0]) if first == "+" else None
    if kind == "word":
        return "NULL" if first == "NULL" else Value(BOOLEAN, first == "TRUE")
    if kind == "number":
        return _number(first)
    return Value(STRING, first) if kind == "text" else None


def _number(text: str) -> Value:
    if text.rstrip("lL").isdigit():
        value = int(text.rstrip("lL"))
        if value >= 1 << 63:
            raise Refused(text)
        return Value(INT if value < 1 << 31 else LONG, value)
    if Decimal(text) > Decimal(math.nextafter(math.inf, 0)) or float(text) == 0:
        raise Refused(text)
    return Value(DOUBLE, float(text))


# -- what it is


def value_of(tree: Tree, properties: Mapping[str, str]) -> bool | None:
    """True, false or NULL; Failed when it is none of these."""
    value = _boolean(tree, properties)
    return None if value is None else bool(value.value)


def _boolean(tree: Tree, properties: Mapping[str, str]) -> Maybe:
    """Where a boolean is wanted, what a property says is none."""
    value = _value(tree, properties)
    return Value(BOOLEAN, False) if _sort(tree) == PROPERTY and value is not None else value


def _value(tree: Tree, properties: Mapping[str, str]) -> Maybe:
    kind, first, *rest = tree
    if kind in ("or", "and"):
        if len(first) == 1:
            return _value(first[0], properties)
        decides, seen_null = kind == "or", False
        for each in first:
            value = _boolean(each, properties)
            if value is not None and value.value is decides:
                return value
            seen_null |= value is None
        return None if seen_null else Value(BOOLEAN, not decides)
    if kind in ("equality", "comparison"):
        return _after(first, rest[0], properties)
    if kind == "paren":
        return _value(first, properties)
    if kind == "unary":
        value = _boolean(rest[0], properties) if first == "NOT" else _value(rest[0], properties)
        if first == "+" or value is None:
            return value
        if first == "NOT":
            return Value(BOOLEAN, not value.value)
        return Value(value.type, -value.value) if value.type in NUMBERS else None
    if kind == "name":
        return Value(STRING, properties[first]) if first in properties else None
    constant = _constant(tree)
    return constant if isinstance(constant, Value) else None


def _after(first: Tree, steps: list[Tree], properties: Mapping[str, str]) -> Maybe:
    """What comes of the steps, the last of which is the outermost: one that searches for nothing
    does not look where.
    """
    if not steps:
        return _value(first, properties)
    if steps[-1][0] in SEARCHES and not steps[-1][2]:
        return Value(BOOLEAN, False)
    return _step(_after(first, steps[:-1], properties), steps[-1], properties)


def _step(left: Maybe, step: Tree, properties: Mapping[str, str]) -> Maybe:
    kind, *rest = step
    if kind.startswith("IS"):
        return Value(BOOLEAN, (left is None) is (kind == "IS NULL"))
    if kind in ("=", "<>"):
        equal = _equal(left, _value(rest[0], properties))
        return equal if equal is None or kind == "=" else Value(BOOLEAN, not equal.value)
    if kind in ORDERS:
        return _ordered(kind, left, rest[0], properties)
    negated = rest[0]
    if kind == "BETWEEN":
        one = _ordered("<" if negated else ">=", left, rest[1], properties)
        if one is not None and one.value is negated:
            return one
        other = _ordered(">" if negated else "<=", left, rest[2], properties)
        if other is not None and other.value is negated:
            return other
        return None if one is None or other is None else Value(BOOLEAN, not negated)
    if kind == "IN":
        return None if left is None else Value(BOOLEAN, (left.value in rest[1]) is not negated)
    if left is None or left.type != STRING:
        return Value(BOOLEAN, False)
    found = {"CONTAINS": rest[1] in left.value, "STARTSWITH": left.value[: len(rest[1])] == rest[1]}
    return Value(BOOLEAN, found.get(kind, left.value[-len(rest[1]) :] == rest[1]) is not negated)


def _equal(left: Maybe, right: Maybe) -> Maybe:
    if left is None:
        return Value(BOOLEAN, True) if right is None else None
    return Value(BOOLEAN, right is not None and (left == right or _compare(left, right) == 0))


def _ordered(sign: str, left: Maybe, tree: Tree, properties: Mapping[str, str]) -> Maybe:
    right = None if left is None else _value(tree, properties)
    if left is None or right is None:
        return None
    if left.type == right.type == STRING:
        left, right = _read(left.value, DOUBLE), _read(right.value, DOUBLE)
    order = _compare(left, right)
    return Value(
        BOOLEAN, {">": order > 0, ">=": order >= 0, "<": order < 0, "<=": order <= 0}[sign]
    )


def _compare(left: Value, right: Value) -> int:
    if left.type == BOOLEAN and right.type == STRING:
        raise Failed(right)
    if left.type == STRING and right.type != STRING:
        left = _read(left.value, right.type)
    elif right.type == STRING and left.type in NUMBERS:
        right = _read(right.value, left.type)
    if DOUBLE in (left.type, right.type) and left.type in NUMBERS and right.type in NUMBERS:
        left, right = Value(DOUBLE, float(left.value)), Value(DOUBLE, float(right.value))
    elif (left.type in NUMBERS) is not (right.type in NUMBERS):
        return -1
    one, other = _exact(left), _exact(right)
    return int(one > other) - int(one < other)


def _exact(value: Value) -> Any:
    """What values of one type are ordered by."""
    if value.type != DOUBLE:
        return value.value
    if math.isnan(value.value):
        return 2, 0
    if math.isinf(value.value):
        return math.copysign(1, value.value), 0
    return 0, Fraction(value.value), math.copysign(1, value.value)


def _read(text: str, kind: str) -> Value:
    """A text as a value of a type."""
    if kind == BOOLEAN:
        return Value(BOOLEAN, text.lower() == "true")
    if kind in _RANGES:
        if not re.fullmatch(r"[+-]?\d+", text) or any(ord(letter) > 0xFFFF for letter in text):
            raise Failed(text)
        value = int(text)
        if not -_RANGES[kind] <= value < _RANGES[kind]:
            raise Failed(text)
        return Value(kind, value)
    trimmed = text.strip("".join(map(chr, range(33))))
    if not trimmed.isascii() or "_" in trimmed:
        raise Failed(text)
    named = {"NaN": math.nan, "Infinity": math.inf}.get(trimmed.lstrip("+-"))
    if named is not None and len(trimmed) - len(trimmed.lstrip("+-")) < 2:
        return Value(DOUBLE, -named if trimmed.startswith("-") else named)
    if trimmed[-1:] in tuple("fFdD") and trimmed[-2:-1] in tuple("0123456789."):
        trimmed = trimmed[:-1]
    try:
        if "p" in trimmed.lower():
            return Value(DOUBLE, float.fromhex(trimmed))
        if not re.search(r"[a-df-zA-DF-Z]", trimmed):
            return Value(DOUBLE, float(trimmed))
    except ValueError:
        pass
    raise Failed(text)
