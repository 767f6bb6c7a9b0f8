"""Parses the text of an SQL92 expression into a tree; errors say what was found where, and what was
expected.

By increasing precedence: OR; AND; `=`, `<>`, IS NULL; `<`, `<=`, `>`, `>=`, BETWEEN, IN, CONTAINS,
STARTSWITH, ENDSWITH; then NOT, `-` and `+`. So `NOT a = 1` is `(NOT a) = 1`. Comparisons that can
never hold are refused here, by the original's rules.

As in the original, the expression ends where no operator follows, and trailing words are ignored:
`a LIKE 'x'` is `a`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.common.errors import InvalidExpressionError
from orbitmq.message.sql import tree
from orbitmq.message.sql.comparison import comparison
from orbitmq.message.sql.java_numbers import INT_MAX, LONG_MAX
from orbitmq.message.sql.tokens import Token, TokenKind, described, problem, quoted, words_of
from orbitmq.message.sql.tree import CONSTANTS, And, Node, Or, is_boolean

CHARS_MAX: Final = 65_536
WORDS_MAX: Final = 4_096  # names, numbers, texts, operators and commas
NESTING_MAX: Final = 100  # depth of nested parentheses, signs and comparisons
COST_MAX: Final = (
    2 * WORDS_MAX
    # nodes evaluated per message; only nested BETWEENs can have more of them than words
)
_ORDERS: Final = (">", ">=", "<", "<=")
_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_AFTER_NOT: Final = (*_SEARCHES, "BETWEEN", "IN")
_VALUE: Final = "a property, a number, a text in single quotes, TRUE, FALSE, NULL or `(`"
_DOUBLE_MIN: Final = 5e-324


class _Part(NamedTuple):
    """A node and the position where it begins."""

    node: Node
    at: int
    depth: int = 1
    cost: int = 1


class Parsed(NamedTuple):
    """The tree of an expression, true, false or NULL for every message, and the position of
    trailing words that it ignores.

    `cost` is the maximum number of nodes evaluated per message: BETWEEN evaluates its left side
    twice.
    """

    node: Node
    unread_at: int | None
    cost: int


def parse(text: str) -> Parsed:
    """Parse an expression; raise InvalidExpressionError if it is invalid or too long."""
    check_size(text)
    return _Parser(text).parse()


def check_size(text: str) -> None:
    """Raise InvalidExpressionError if a text is too long."""
    if len(text) > CHARS_MAX:
        raise InvalidExpressionError(
            f"it has {len(text)} characters, and at most {CHARS_MAX} are read"
            f" (CHARS_MAX={CHARS_MAX}): shorten it"
        )


class _Parser:
    """Recursive-descent parser over the words of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words_of(text)
        self._read = 0
        self._ahead: Token | None = None
        self._open = 0

    def parse(self) -> Parsed:
        whole = self._or()
        behind = self._token
        return Parsed(
            self._truth(whole), None if behind.kind is TokenKind.END else behind.at, whole.cost + 1
        )

    # -- precedence levels, lowest first

    def _or(self) -> _Part:
        return self._chain("OR", self._and, Or)

    def _and(self) -> _Part:
        return self._chain("AND", self._equality, And)

    def _chain(self, word: str, level: Callable[[], _Part], make: type[And | Or]) -> _Part:
        first = level()
        if not self._token.is_(word):
            return first
        parts = [first]
        while self._takes(word):
            parts.append(level())
        return self._part(make(tuple(map(self._truth, parts))), first.at, *parts)

    def _equality(self) -> _Part:
        left = self._comparison()
        while True:
            if self._takes("="):
                left = self._equal(left, self._comparison())
            elif self._takes("<>"):
                equal = self._equal(left, self._comparison())
                left = equal._replace(node=tree.Not(equal.node))
            elif self._takes("IS"):
                negated = self._takes("NOT")
                self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
                is_null = tree.IsNull(left.node)
                left = self._part(tree.Not(is_null) if negated else is_null, left.at, left)
            else:
                return left

    def _comparison(self) -> _Part:
        left = self._unary()
        while True:
            token = self._token
            if token.kind is TokenKind.SIGN and token.text in _ORDERS:
                self._ahead = None
                left = self._ordered(token.text, left, self._unary())
                continue
            negated = self._takes("NOT")
            word = self._token
            if word.kind is not TokenKind.KEYWORD or word.text not in _AFTER_NOT:
                if negated:
                    raise self._unexpected("CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN")
                return left
            self._ahead = None
            if word.text == "BETWEEN":
                left = self._between(left, negated)
            elif word.text == "IN":
                left = self._in(left, negated)
            else:
                left = self._part(
                    tree.Search(word.text, left.node, self._quoted(), negated), left.at, left
                )

    def _unary(self) -> _Part:
        token = self._token
        if token.is_("+") or token.is_("-") or token.is_("NOT"):
            self._ahead = None
            with_sign = self._nested(self._unary)
            if token.text == "+":
                return with_sign._replace(at=token.at)
            node = (
                tree.Negated(with_sign.node)
                if token.text == "-"
                else tree.Not(self._truth(with_sign))
            )
            return self._part(node, token.at, with_sign)
        return self._primary()

    def _primary(self) -> _Part:
        token = self._token
        kind = token.kind
        node: Node
        if token.is_("("):
            self._ahead = None
            inside = self._nested(self._or)
            self._expect(")", "an operator or `)`")
            return inside._replace(at=token.at)
        if kind is TokenKind.NAME:
            node = tree.PropertyRef(token.text)
        elif kind is TokenKind.TEXT:
            node = tree.Text(_unquoted(token))
        elif kind is TokenKind.INTEGER:
            node = self._integer(token)
        elif kind is TokenKind.FLOAT:
            node = self._float(token)
        elif kind is TokenKind.KEYWORD and token.text in _TRUTHS:
            node = tree.Truth(_TRUTHS[token.text])
        else:
            raise self._unexpected(_VALUE)
        self._ahead = None
        return _Part(node, token.at)

    # -- operators and the operands they refuse

    def _equal(self, left: _Part, right: _Part) -> _Part:
        for part in (left, right):
            if part.node == tree.Truth(None):
                raise self._problem(
                    part.at,
                    "NULL beside `=` or `<>`",
                    "IS NULL or IS NOT NULL, which is how to ask for that",
                )
        if isinstance(left.node, tree.Truth) and isinstance(right.node, (tree.Text, tree.Number)):
            raise self._problem(
                right.at,
                "a constant that is neither TRUE nor FALSE",
                "one that can be equal to TRUE or FALSE",
            )
        return self._part(tree.Equal(left.node, right.node), left.at, left, right)

    def _ordered(self, sign: str, left: _Part, right: _Part) -> _Part:
        for part in (left, right):
            if (
                isinstance(part.node, CONSTANTS) and not isinstance(part.node, tree.Number)
            ) or is_boolean(part.node):
                raise self._problem(
                    part.at, f"what has no order beside `{sign}`", "a number or a property"
                )
        return self._part(tree.Ordered(sign, left.node, right.node), left.at, left, right)

    def _between(self, left: _Part, negated: bool) -> _Part:
        low = self._unary()
        self._expect("AND", "AND, and the upper end of BETWEEN")
        high = self._unary()
        if negated:
            parts = self._ordered("<", left, low), self._ordered(">", left, high)
            return self._part(Or(tuple(part.node for part in parts)), left.at, *parts)
        lower, upper = low.node, high.node
        if (
            isinstance(lower, tree.Number)
            and isinstance(upper, tree.Number)
            and comparison(upper, lower)(upper.value, lower.value) < 0
        ):
            raise self._problem(
                high.at,
                "an upper end of BETWEEN below the lower one",
                f"one that is not below {lower.value}",
            )
        parts = self._ordered(">=", left, low), self._ordered("<=", left, high)
        return self._part(And(tuple(part.node for part in parts)), left.at, *parts)

    def _in(self, left: _Part, negated: bool) -> _Part:
        if not isinstance(left.node, tree.PropertyRef):
            raise self._problem(left.at, "what is no property before IN", "the name of a property")
        self._expect("(", "`(` and texts in single quotes")
        texts = [self._quoted()]
        while self._takes(","):
            texts.append(self._quoted())
        self._expect(")", "`,` or `)`")
        return _Part(tree.OneOf(left.node, frozenset(texts), negated), left.at)

    def _truth(self, part: _Part) -> Node:
        """Return the node as a boolean."""
        if isinstance(part.node, tree.PropertyRef):
            return tree.IsTrue(part.node)
        if not is_boolean(part.node):
            raise self._problem(
                part.at,
                "a value that is neither true nor false",
                "a comparison, TRUE, FALSE, NULL or a property",
            )
        return part.node

    # -- literals

    def _integer(self, token: Token) -> tree.Number:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise self._problem(token.at, quoted(token.text), f"an integer up to {LONG_MAX}")
        value = int(digits)
        return tree.Number(value, tree.NumberType.INT if value <= INT_MAX else tree.NumberType.LONG)

    def _float(self, token: Token) -> tree.Number:
        value = float(token.text)
        if not _DOUBLE_MIN <= value < float("inf"):
            raise self._problem(
                token.at,
                quoted(token.text),
                "a decimal number above 0, within the range of a double; 0 is written as `0`",
            )
        return tree.Number(value, tree.NumberType.DOUBLE)

    def _quoted(self) -> str:
        token = self._token
        if token.kind is not TokenKind.TEXT:
            raise self._unexpected(TokenKind.TEXT.value)
        self._ahead = None
        return _unquoted(token)

    # -- words

    @property
    def _token(self) -> Token:
        """Return the next word, reading it on first access."""
        token = self._ahead
        if token is None:
            token = self._ahead = next(self._words)
            self._read += 1
            if token.kind is TokenKind.NO_WORD:
                raise self._problem(
                    token.at,
                    described(token),
                    "a name, a number, a text in single quotes or an operator",
                )
            if self._read > WORDS_MAX and token.kind is not TokenKind.END:
                raise self._problem(
                    token.at,
                    f"more than {WORDS_MAX} words",
                    f"at most WORDS_MAX={WORDS_MAX}",
                )
        return token

    def _takes(self, text: str) -> bool:
        """Consume this word if it is next."""
        token = self._token
        if token.text != text or not token.is_(text):
            return False
        self._ahead = None
        return True

    def _expect(self, text: str, expected: str) -> None:
        if not self._takes(text):
            raise self._unexpected(expected)

    def _unexpected(self, expected: str) -> InvalidExpressionError:
        return self._problem(self._token.at, described(self._token), expected)

    def _problem(self, at: int, found: str, expected: str) -> InvalidExpressionError:
        return problem(self._text, at, found, expected)

    # -- nesting

    def _nested(self, level: Callable[[], _Part]) -> _Part:
        self._open += 1
        if self._open > NESTING_MAX:
            raise self._too_deep()
        inside = level()
        self._open -= 1
        return inside

    def _part(self, node: Node, at: int, *parts: _Part) -> _Part:
        """Return a node made of these parts, within the limits."""
        depth, cost = 1, 1
        for part in parts:
            cost += part.cost
            if part.depth >= depth:
                depth = part.depth + 1
        if depth > NESTING_MAX:
            raise self._too_deep()
        if cost > COST_MAX:
            found = f"a BETWEEN within others that takes more than {COST_MAX} steps for a message"
            raise self._problem(
                at, found, f"at most COST_MAX={COST_MAX}: write the comparisons out"
            )
        return _Part(node, at, depth, cost)

    def _too_deep(self) -> InvalidExpressionError:
        return self._problem(
            self._token.at,
            f"more than {NESTING_MAX} operators within each other",
            f"at most NESTING_MAX={NESTING_MAX}: AND and OR need no parentheses",
        )


_TRUTHS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")
