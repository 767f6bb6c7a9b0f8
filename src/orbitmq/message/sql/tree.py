"""What an SQL92 expression says, as a tree of values: which comparisons of which properties and constants.

A property's value is a text or NULL, a constant has its type, and everything else is true, false or NULL but for `Negated`: so the type of
each node is known before any message is. Chains of AND and of OR are one node, as long as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class NumberType(Enum):
    """The types that numbers have in the original: it reads the text of a property as the type that it is compared with."""

    INT = "a 32-bit integer"
    LONG = "a 64-bit integer"
    DOUBLE = "a double"


@dataclass(frozen=True, slots=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    type: NumberType


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE, and NULL as None."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Negated:
    """`-x`: NULL of everything but a number."""

    operand: Node


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property where a boolean is wanted: a text is none, so it is false, or NULL when it is not there."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """`sign` is one of < <= > >=."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Node


@dataclass(frozen=True, slots=True)
class OneOf:
    operand: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """`word` is CONTAINS, STARTSWITH or ENDSWITH."""

    word: str
    operand: Node
    text: str
    negated: bool


Node: TypeAlias = Property | Text | Number | Truth | Negated | IsTrue | Not | And | Or | Equal | Ordered | IsNull | OneOf | Search
CONSTANTS: Final = (Text, Number, Truth)
_NO_TRUTH: Final = (Property, Text, Number, Negated)


def is_boolean(node: Node) -> bool:
    """Whether it is true, false or NULL, whatever the message."""
    return not isinstance(node, _NO_TRUTH)
