"""Typed headers: dataclasses whose fields travel as texts in a command's ext fields.

A header class declares its fields; their wire form follows from their types, computed once per
class:

- the name on the wire is the field's name in camelCase, or the one that `Annotated[...,
  Wire("name")]` gives;
- `str` as it is, `Int32` and `Int64` as decimals, `bool` as true/false, an enum by its name;
- a field with a default is optional, and None means that it was not sent; all others are required.

Reading is lenient, as in the original: an unreadable value counts as not sent, unknown names are
ignored. A missing required field is refused by name. A header with `IS_STRICT` also refuses an
unreadable value of an optional field, where omitting the field would have a wider effect than
sending it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.codes import ResponseCode


class Wire(NamedTuple):
    """The name of a field on the wire, if it is not its own name in camelCase."""

    name: str


class Bits(NamedTuple):
    """The width of a number in the original; a number that does not fit counts as not sent."""

    width: int


Int32 = Annotated[int, Bits(32)]
Int64 = Annotated[int, Bits(64)]


class BoundaryType(Enum):
    """Which offset a search returns when several messages have the same time; any text but `upper`
    reads as LOWER.
    """

    LOWER = "LOWER"
    UPPER = "UPPER"


_DIGITS_MAX = 100  # leading zeros are accepted, a text made to be slow is not


class WireField(NamedTuple):
    """The wire form of one field."""

    name: str
    wire_name: str
    parse: Callable[[str], Any] | None  # None: the text is the value
    format: Callable[[Any], str] | None
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The typed header of a command."""

    IS_STRICT: ClassVar[bool] = False

    def to_fields(self) -> dict[str, str]:
        """Return the ext fields of this header; fields without a value are omitted."""
        texts: dict[str, str] = {}
        for name, wire_name, _, format_value, _ in wire_fields(type(self)):
            value = getattr(self, name)
            if value is not None:
                texts[wire_name] = value if format_value is None else format_value(value)
        return texts

    @classmethod
    def from_fields(cls, fields: Mapping[str, str | None] | None) -> Self:
        """Return the header in the ext fields; raise RequestRefusedError if a required one is
        missing or unreadable.
        """
        texts: Mapping[str, str | None] = {} if fields is None else fields
        values: dict[str, Any] = {}
        for name, wire_name, parse, _, is_required in wire_fields(cls):
            text = texts.get(wire_name)
            if text is not None:
                value = text if parse is None else parse(text)
                if value is not None:
                    values[name] = value
                    continue
            if is_required or (text and cls.IS_STRICT):
                what = "is missing" if text is None else f"cannot be read from {text[:100]!r}"
                fix = "it must be sent" if is_required else "send a whole number, or leave it out"
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the field {wire_name} of {cls.__name__} {what}; {fix}",
                )
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequestHeader(Header):
    """Fields that 5.x peers may add to most requests; the whole header of requests that have only a
    body.
    """

    namespace: Annotated[str | None, Wire("ns")] = None
    namespaced: Annotated[bool | None, Wire("nsd")] = None
    target_broker: Annotated[str | None, Wire("bname")] = None
    oneway: Annotated[bool | None, Wire("oway")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequestHeader(RpcRequestHeader):
    """Fields that 5.x peers may add to requests about a topic; `logical` False means a physical
    queue of a static topic.
    """

    logical: Annotated[bool | None, Wire("lo")] = None


def _parse_bool(text: str) -> bool:
    return text.lower() == "true"


def _format_bool(value: bool) -> str:
    return "true" if value else "false"


def _parse_boundary(text: str) -> BoundaryType:
    return BoundaryType.UPPER if text.lower() == "upper" else BoundaryType.LOWER


def _format_boundary(value: BoundaryType) -> str:
    return value.name


def _number_parser(bits: int) -> Callable[[str], int | None]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    digits_that_fit = len(str(high)) - 1

    def parse(text: str) -> int | None:
        if text.isdecimal() and len(text) <= digits_that_fit:  # nearly all numbers
            return int(text)
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
            return None
        value = int(text)
        return value if low <= value <= high else None

    return parse


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_codecs: dict[type[Header], tuple[WireField, ...]] = {}


def wire_fields(cls: type[Header]) -> tuple[WireField, ...]:
    """Return the wire form of the class's fields, in declaration order."""
    codec = _codecs.get(cls)
    if codec is None:
        hints = get_type_hints(cls, include_extras=True)
        codec = tuple(
            _field_codec(field.name, hints[field.name], field.default is MISSING)
            for field in fields(cls)
        )
        _codecs[cls] = codec
    return codec


def _field_codec(name: str, hint: Any, is_required: bool) -> WireField:
    wire_name, bits = _camel_case(name), None
    pending = [hint]
    kind: Any = None
    while pending:
        part = pending.pop()
        if get_origin(part) is Annotated:
            inner, *notes = get_args(part)
            pending.append(inner)
            wire_name = next((note.name for note in notes if isinstance(note, Wire)), wire_name)
            bits = next((note.width for note in notes if isinstance(note, Bits)), bits)
        elif alternatives := get_args(part):
            pending.extend(
                alternative for alternative in alternatives if alternative is not NoneType
            )
        else:
            assert kind is None, f"{name}: a header field has one type besides None, not {hint}"
            kind = part
    if kind is str:
        return WireField(name, wire_name, None, None, is_required)
    if kind is bool:
        return WireField(name, wire_name, _parse_bool, _format_bool, is_required)
    if kind is BoundaryType:
        return WireField(name, wire_name, _parse_boundary, _format_boundary, is_required)
    assert kind is int, f"{name}: {hint} is not a type for header fields"
    assert bits is not None, f"{name}: declare it as Int32 or Int64"
    return WireField(name, wire_name, _number_parser(bits), str, is_required)
