"""Compiled SQL92 expressions, cached by text.

Compiling is the whole cost of a text that recurs, valid or not, so failures are cached as well.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from orbitmq.common.errors import InvalidExpressionError
from orbitmq.message.sql.evaluation import Lookup, test_of
from orbitmq.message.sql.parser import check_size, parse
from orbitmq.message.sql.record_tests import RecordMatcher

CACHED_MAX: Final = 1_000  # number of expressions
LONG_CACHED_MAX: Final = 32  # number of those that take much memory
LONG_MIN: Final = 2_000  # characters of such an expression
SHOWN_MAX: Final = 500  # characters shown in logs and errors

log = logging.getLogger(__name__)


class Expression:
    """A compiled SQL92 expression. `unread` is trailing text that is not part of it, as in the
    original.

    `cost` is the maximum number of steps per message.
    """

    __slots__ = ("_has_failed", "cost", "evaluate", "matches_record", "text", "unread")

    def __init__(self, text: str) -> None:
        parsed = parse(text)
        self.text = text
        self.unread = None if parsed.unread_at is None else text[parsed.unread_at :]
        self.cost = parsed.cost
        self._has_failed = False
        self.evaluate = test_of(
            parsed.node
        )  # true, false or None; ValueError if a value cannot be compared
        # Like `matches`, for the record at a cursor.
        self.matches_record = RecordMatcher(
            parsed.node, parsed.cost, self.evaluate, self.tell
        ).matches

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def matches(self, get: Lookup) -> bool:
        """Return whether it is true for the properties that `get` looks up; false if NULL or if a
        value cannot be compared.
        """
        try:
            return self.evaluate(get) is True
        except ValueError as problem:
            self.tell(problem)
            return False

    def tell(self, problem: ValueError) -> None:
        """Log the first message that it fails on: a reason for missing messages, without one line
        per message.
        """
        if not self._has_failed:
            self._has_failed = True
            log.warning(
                "expression_fails expression=%r why='%s': such messages are not delivered; said"
                " once",
                shown(self.text),
                problem,
            )


def shown(text: str) -> str:
    """Return an expression, or its beginning, for logs and errors."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def compiled(text: str) -> Expression:
    """Return the expression of a text; raise InvalidExpressionError if it is invalid or
    too long.
    """
    check_size(text)  # before the text is kept in the cache
    found = _short(text) if len(text) < LONG_MIN else _long(text)
    if isinstance(found, Expression):
        return found
    raise InvalidExpressionError(found)


def _made(text: str) -> Expression | str:
    """Return the expression, or why it is invalid."""
    try:
        return Expression(text)
    except InvalidExpressionError as problem:
        return str(problem)


_short = lru_cache(CACHED_MAX)(_made)
_long = lru_cache(LONG_CACHED_MAX)(_made)
