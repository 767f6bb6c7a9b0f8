"""The syntax tree of an SQL92 expression: comparisons of properties and constants.

A property's value is a text or NULL, a constant has its type, and everything else is true, false or
NULL except `Negated`: so the type of each node is known before any message is. Chains of AND and of
OR are a single node of any length.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias


class NumberType(Enum):
    """The number types of the original: it reads the text of a property as the type it is compared
    with.
    """

    INT = "a 32-bit integer"
    LONG = "a 64-bit integer"
    DOUBLE = "a double"


@dataclass(frozen=True, slots=True)
class PropertyRef:
    """The value of a message property."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text constant."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number constant and its type."""

    value: int | float
    type: NumberType


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE, and NULL as None."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Negated:
    """`-x`: NULL unless x is a number."""

    operand: Node


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property used as a boolean: false, since a text is not one, or NULL if it is missing."""

    operand: PropertyRef


@dataclass(frozen=True, slots=True)
class Not:
    """NOT of a boolean."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """AND of two or more booleans."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR of two or more booleans."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """`left = right`."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """`left sign right`, where `sign` is one of < <= > >=."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class OneOf:
    """`operand IN (texts)`."""

    operand: PropertyRef
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """A text search; `word` is CONTAINS, STARTSWITH or ENDSWITH."""

    word: str
    operand: Node
    text: str
    negated: bool


Node: TypeAlias = (
    PropertyRef
    | Text
    | Number
    | Truth
    | Negated
    | IsTrue
    | Not
    | And
    | Or
    | Equal
    | Ordered
    | IsNull
    | OneOf
    | Search
)
CONSTANTS: Final = (Text, Number, Truth)
_NO_TRUTH: Final = (PropertyRef, Text, Number, Negated)


def is_boolean(node: Node) -> bool:
    """Return whether the node is true, false or NULL for every message."""
    return not isinstance(node, _NO_TRUTH)
