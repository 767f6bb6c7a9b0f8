"""A consumer's subscription to a topic, and the three enums of how its group consumes.

Values and their JSON, member by member as RocketMQ 5.5.0 writes it. Peers spell these in several
ways, and all are read: enums by name or, as the C++ client does, by position; versions as numbers
or texts; missing sets and types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object, boolean, integer, items, text, texts

SUBSCRIBE_ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"

TAGS_MAX: Final = 32_768  # per subscription: as many as fit the longest expression
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


class ConsumeType(Enum):
    """Whether the application pulls, or messages are pushed or popped. In the order of the
    original.
    """

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
    CONSUME_POP = "POP"


class MessageModel(Enum):
    """Broadcasting or clustering (load-balanced). In the order of the original."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(Enum):
    """Where a group without offsets starts. In the order of the original."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


E = TypeVar("E", bound=Enum)


def enum_member(members: Mapping[str, Any], name: str, kind: type[E]) -> E | None:
    """Return the member as one of the enum, by name in any case or by position; None if it was not
    sent or the name is unknown.
    """
    value = members.get(name)
    if isinstance(value, str) and not value.isdecimal():
        return kind.__members__.get(value.upper())
    place = integer(members, name, -1)
    if value is not None and not 0 <= place < len(kind):
        raise ProtocolError(
            f"member {name} must be one of {', '.join(kind.__members__)} or its place, found"
            f" {place}"
        )
    return None if value is None else list(kind)[place]


def enum_name(value: Enum | None) -> str | None:
    """Return the name as the original writes it."""
    return None if value is None else value.name


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether an expression of this type lists tags; the default if there is no type."""
    return not expression_type or expression_type == TAG


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A group's subscription to one topic. Tags and codes keep the order in which they
    were sent.
    """

    topic: str
    sub_string: str | None = SUBSCRIBE_ALL
    sub_version: int = 0
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    expression_type: str | None = TAG
    class_filter_mode: bool = False

    @property
    def units(self) -> int:
        """What it costs to read or compare it, in units of a slice."""
        return 1 + (len(self.tags) + len(self.codes)) // 25 + len(self.sub_string or "") // 250

    @property
    def wanted_codes(self) -> frozenset[int] | None:
        """Return the codes of the subscribed tags; None for all tags."""
        takes_all = (
            self.sub_string == SUBSCRIBE_ALL
            or self.class_filter_mode
            or not is_tag_type(self.expression_type)
        )
        return None if takes_all else frozenset(self.codes)

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            classFilterMode=self.class_filter_mode,
            codeSet=list(self.codes),
            expressionType=self.expression_type,
            subString=self.sub_string,
            subVersion=self.sub_version,
            tagsSet=list(self.tags),
            topic=self.topic,
        )

    @classmethod
    def from_json(cls, value: Any) -> SubscriptionData:
        members = as_object(value, "SubscriptionData")
        for name in ("tagsSet", "codeSet"):
            if (count := len(members.get(name) or ())) > TAGS_MAX:
                raise ProtocolError(
                    f"member {name} has {count} items, and at most {TAGS_MAX} are read: subscribe"
                    " fewer tags"
                )
        return cls(
            topic=text(members, "topic") or "",
            sub_string=text(members, "subString"),
            sub_version=integer(members, "subVersion", 0, _INT64),
            tags=tuple(dict.fromkeys(texts(members.get("tagsSet")))),
            codes=_codes(members.get("codeSet")),
            expression_type=text(members, "expressionType") if "expressionType" in members else TAG,
            class_filter_mode=boolean(members, "classFilterMode"),
        )


def _codes(value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and all(
        type(code) is int and -_INT32 <= code < _INT32 for code in value
    ):  # as clients write it, by the ten thousand
        return tuple(dict.fromkeys(value))
    return tuple(dict.fromkeys(code for code in items(value, _code) if code is not None))


def _code(value: Any) -> int | None:
    return None if value is None else integer({"codeSet": value}, "codeSet", 0)
