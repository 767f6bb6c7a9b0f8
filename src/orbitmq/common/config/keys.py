"""One configuration key: its declaration, and the passage between text and value.

A key is declared as a dataclass field, on one line: `listen_port: int = key(9876, "What it does.",
minimum=0, maximum=65535)`. Its name in files is the field's in camelCase unless `name` says
otherwise, its type is the annotation's. Knows single keys only: where texts come from and which
wins is `layers`' matter.
"""

from __future__ import annotations

import dataclasses
import os.path
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar

Long = Annotated[int, "long"]
"""An int of 64 bits; a plain `int` has 32, as in Java."""

Value = int | bool | float | str | Enum | None
T = TypeVar("T")

APACHE_49 = "4.9, 5.5"
APACHE_5 = "5.5"
OWN = "OrbitMQ"


class Use(Enum):
    """What OrbitMQ does with a key."""

    USED = "used"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the author of a key says about it."""

    doc: str
    name: str | None
    minimum: float | None
    maximum: float | None
    use: Use
    dynamic: bool
    important: bool
    secret: bool
    releases: str
    original_env: str | None
    is_path: bool
    refused: Mapping[Enum, str] = dataclasses.field(hash=False)


def key(
    default: T,
    doc: str,
    *,
    name: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    use: Use = Use.USED,
    dynamic: bool = False,
    important: bool = False,
    secret: bool = False,
    releases: str = APACHE_49,
    in_home: bool = False,
    is_path: bool = False,
    refused: Mapping[Enum, str] | None = None,
    original_env: str | None = None,
) -> T:
    """Declare a key; `doc` says what it does or, for one that is not used, why not.

    `dynamic` keys may be changed while the server runs; `secret` values are never shown; an
    `is_path` key holds a path, or several separated by commas, and an `in_home` key is one whose
    default begins with `~`; `refused` are values of the original that cannot be served, with the
    reason and the remedy; `original_env` is a variable that the original reads as the default.
    """
    declaration = Declaration(
        doc=doc,
        name=name,
        minimum=minimum,
        maximum=maximum,
        use=use,
        dynamic=dynamic,
        important=important,
        secret=secret,
        releases=releases,
        original_env=original_env,
        is_path=is_path or in_home,
        refused=refused or {},
    )
    metadata = {"declaration": declaration, "default": default}
    if in_home:
        return dataclasses.field(
            default_factory=lambda: expanded(str(default)),
            repr=not secret,
            metadata=metadata,
        )  # type: ignore[return-value]
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


_BOUNDS = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A declared key of one settings class."""

    attribute: str
    name: str
    section: str
    kind: str
    enum: type[Enum] | None
    optional: bool
    declared: Declaration
    default: Value
    default_text: str

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return "ORBITMQ_" + self.attribute.upper()

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.enum is not None:
            taken = [str(each.value) for each in self.enum if each not in self.declared.refused]
            return ("one of " if len(taken) > 1 else "only ") + ", ".join(taken)
        if self.kind == "bool":
            return "true or false"
        low, high = self._bounds()
        if self.kind in _BOUNDS:
            return f"a whole number from {low} to {high}"
        if self.kind == "double":
            return (
                "a number"
                + (f" from {low}" if low is not None else "")
                + (f" to {high}" if high is not None else "")
            )
        return "a path" if self.declared.is_path else "a text"

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; ValueError when there is none that is allowed."""
        text = text.strip()
        if self.optional and not text:
            return None
        if self.declared.is_path:
            if not text and self.default:  # or the current directory would be meant
                raise ValueError(self.allowed)
            return expanded(text)
        if self.enum is not None:
            for member in self.enum:
                if str(member.value).lower() == text.lower():
                    return member
            raise ValueError(self.allowed)
        if self.kind == "bool":
            if text.lower() not in ("true", "false"):
                raise ValueError(self.allowed)
            return text.lower() == "true"
        if self.kind in _BOUNDS:
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
                raise ValueError(self.allowed)
            return self.check(int(text))
        if self.kind == "double":
            try:
                return self.check(float(text))
            except ValueError:
                raise ValueError(self.allowed) from None
        return text

    def check(self, value: Value) -> Value:
        """`value`, or ValueError when it is out of bounds."""
        low, high = self._bounds()
        if isinstance(value, int | float) and not (
            (low is None or value >= low) and (high is None or value <= high)
        ):  # NaN is neither
            raise ValueError(self.allowed)
        return value

    def refusal(self, value: Value) -> str | None:
        """Why a value that the original takes is refused here; None when it is not."""
        if self.declared.use is Use.REFUSED and value != self.default:
            return self.declared.doc
        return self.declared.refused.get(value) if isinstance(value, Enum) else None

    def _bounds(self) -> tuple[float | None, float | None]:
        low, high = _BOUNDS.get(self.kind, (None, None))
        declared = self.declared
        return (
            low if declared.minimum is None else declared.minimum,
            high if declared.maximum is None else declared.maximum,
        )


def key_of(field: dataclasses.Field[Any], annotation: Any, section: str) -> Key:
    """The key that a dataclass field declares."""
    declared: Declaration = field.metadata["declaration"]
    optional = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        optional = True
        (annotation,) = (
            member for member in typing.get_args(annotation) if member is not type(None)
        )
    enum = annotation if isinstance(annotation, type) and issubclass(annotation, Enum) else None
    kind = (
        "enum"
        if enum is not None
        else {int: "int", Long: "long", bool: "bool", float: "double", str: "str"}[annotation]
    )
    return Key(
        attribute=field.name,
        name=declared.name or camel_case(field.name),
        section=section,
        kind=kind,
        enum=enum,
        optional=optional,
        declared=declared,
        default_text=to_text(field.metadata["default"]) or "",
        default=(
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        ),
    )


def expanded(paths: str) -> str:
    """Paths, separated by commas, with the home of a user in the place of `~`."""
    if "~" not in paths:
        return paths
    return ",".join(
        os.path.expanduser(path.strip())  # noqa: PTH111 - which leaves the `~x` of an unknown user
        for path in paths.split(",")
    )


def to_text(value: Value) -> str | None:
    """The text of `value` as the original writes it; None when there is nothing to write."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    return None if value is None else str(value)


def camel_case(snake: str) -> str:
    """`listen_port` → `listenPort`."""
    first, *rest = snake.split("_")
    return first + "".join(word.capitalize() for word in rest)
