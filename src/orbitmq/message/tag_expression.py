"""The tag expression of a subscription: `a || b`, or all tags."""

from __future__ import annotations

from typing import Final

from orbitmq.common.errors import InvalidMessageError

ALL_TAGS: Final = "*"
CHARS_MAX: Final = 65_536  # of one expression
_OR: Final = "||"
_WHITE: Final = "".join(map(chr, range(0x21)))  # what Java trims: all characters up to the space


def tags_of(expression: str | None) -> tuple[str, ...] | None:
    """Return the distinct tags of an expression in order, None for all tags; raise
    InvalidMessageError if it names none or is too long.
    """
    if not expression or expression == ALL_TAGS:
        return None
    if len(expression) > CHARS_MAX:
        raise InvalidMessageError(
            f"the expression has {len(expression)} characters, and at most {CHARS_MAX} are read:"
            " name fewer tags"
        )
    tags = tuple(dict.fromkeys(filter(None, (tag.strip(_WHITE) for tag in expression.split(_OR)))))
    if not tags and not expression.replace("|", ""):
        raise InvalidMessageError(
            f"the expression {expression!r} names no tag; write tags with || between them, or *"
            " for all"
        )
    return tags
