"""The tags that a subscription names: `a || b`, or everything."""

from __future__ import annotations

from typing import Final

from orbitmq.common.errors import MessageIllegal

ALL_TAGS: Final = "*"
CHARS_MAX: Final = 65_536  # of an expression
_OR: Final = "||"
_WHITE: Final = "".join(map(chr, range(0x21)))  # what Java trims: everything up to the space


def tags_of(expression: str | None) -> tuple[str, ...] | None:
    """The tags of an expression in their order, each once; None when it means all; MessageIllegal when it names none, or is too long."""
    if not expression or expression == ALL_TAGS:
        return None
    if len(expression) > CHARS_MAX:
        raise MessageIllegal(f"the expression has {len(expression)} characters, and at most {CHARS_MAX} are read: name fewer tags")
    tags = tuple(dict.fromkeys(filter(None, (tag.strip(_WHITE) for tag in expression.split(_OR)))))
    if not tags and not expression.replace("|", ""):
        raise MessageIllegal(f"the expression {expression!r} names no tag; write tags with || between them, or * for all")
    return tags
