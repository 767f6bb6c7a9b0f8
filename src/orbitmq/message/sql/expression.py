"""An SQL92 expression that is ready for use, and the ones that were used last, by their texts: each is made once.

Compiling is the whole cost of a text that comes again and again, be it good or bad, so failures are remembered as well.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from orbitmq.common.errors import ExpressionIllegal
from orbitmq.message.sql.evaluation import Lookup, test_of
from orbitmq.message.sql.parser import check_size, parse
from orbitmq.message.sql.record_tests import RecordMatcher

CACHED_MAX: Final = 1_000  # expressions
LONG_CACHED_MAX: Final = 32  # of those that take much memory
LONG_MIN: Final = 2_000  # characters
SHOWN_MAX: Final = 500  # characters

log = logging.getLogger(__name__)


class Expression:
    """See above. `unread` is what stands behind the expression and is not part of it, as the original has it.

    `cost` is how many steps it takes for a message at most.
    """

    __slots__ = ("_has_failed", "cost", "evaluate", "matches_record", "text", "unread")

    def __init__(self, text: str) -> None:
        parsed = parse(text)
        self.text = text
        self.unread = None if parsed.unread_at is None else text[parsed.unread_at :]
        self.cost = parsed.cost
        self._has_failed = False
        self.evaluate = test_of(parsed.node)  # true, false or None; ValueError where a value cannot be compared
        # The same as `matches`, of the record that a cursor stands on.
        self.matches_record = RecordMatcher(parsed.node, parsed.cost, self.evaluate, self.tell).matches

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def matches(self, get: Lookup) -> bool:
        """Whether it is true of the message whose properties `get` looks up; not when it is NULL or a value cannot be compared."""
        try:
            return self.evaluate(get) is True
        except ValueError as problem:
            self.tell(problem)
            return False

    def tell(self, problem: ValueError) -> None:
        """Log the first message that it fails on: whoever misses messages should find a reason, and not one for each of them."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("expression_fails expression=%r why='%s': such messages are not delivered; said once", shown(self.text), problem)


def shown(text: str) -> str:
    """An expression, or its beginning, for logs and errors."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def compiled(text: str) -> Expression:
    """The expression of a text; ExpressionIllegal when it is none, or is too long to be read."""
    check_size(text)  # before the text is kept
    found = _short(text) if len(text) < LONG_MIN else _long(text)
    if isinstance(found, Expression):
        return found
    raise ExpressionIllegal(found)


def _made(text: str) -> Expression | str:
    """The expression, or why there is none."""
    try:
        return Expression(text)
    except ExpressionIllegal as problem:
        return str(problem)


_short = lru_cache(CACHED_MAX)(_made)
_long = lru_cache(LONG_CACHED_MAX)(_made)
