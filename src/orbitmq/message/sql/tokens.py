"""Tokenizer of SQL92 expressions: words with their positions, up to the first invalid character.

The longest match wins. Spaces and comments (`/* … */`, and `-- …` up to the end of its line)
separate words. A `--` on the last, unterminated line is two minus signs, as in the original. An
invalid character ends the list: it matters only if the parser gets that far.

Words are read one at a time, as the parser asks for them. Invariant: no character is looked at more
than a constant number of times. Two spellings would break that and have their own rule: `--`, for
which the last line end is found once, and a `0` before further digits, which is an integer that no
operator can follow: the parser reads one more word and stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.common.errors import InvalidExpressionError

KEYWORDS: Final = frozenset(
    [
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    ]
)


SHOWN_MAX: Final = 100  # characters of a word shown in errors


class TokenKind(Enum):
    """The kind of a word; the value is its name in errors."""

    KEYWORD = "keyword"
    NAME = "the name of a property"
    TEXT = "a text in single quotes"
    INTEGER = "an integer"
    FLOAT = "a decimal number"
    SIGN = "sign"
    END = "the end"
    NO_WORD = "what is no word"


class Token(NamedTuple):
    """A word of the expression; `text` of a keyword is in capitals, everything else is verbatim."""

    kind: TokenKind
    text: str
    at: int

    def is_(self, text: str) -> bool:
        """Return whether it is this keyword or sign."""
        return self.text == text and self.kind in (TokenKind.KEYWORD, TokenKind.SIGN)


_SPACE: Final = re.compile(r"[ \t\n\r\f]*")
_WORD: Final = re.compile(
    r"""
    (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<float> [0-9]+\.[0-9]*(?:[Ee][+-]?[0-9]+)? | \.[0-9]+(?:[Ee][+-]?[0-9]+)? | [0-9]+[Ee][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*[lL]? )
  | (?P<text> '(?:''|[^'])*' )
  | (?P<sign> <> | >= | <= | [=<>(),+-] )
  | (?P<comment> /\*.*?\*/ )
    """,  # noqa: E501
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_KINDS: Final = {
    "float": TokenKind.FLOAT,
    "integer": TokenKind.INTEGER,
    "name": TokenKind.NAME,
    "text": TokenKind.TEXT,
    "sign": TokenKind.SIGN,
}


def words_of(text: str) -> Iterator[Token]:
    """Return the words in order, followed by one of kind END or NO_WORD."""
    space, match, kinds = _SPACE.match, _WORD.match, _KINDS
    last_line_end = max(text.rfind("\n"), text.rfind("\r"))
    end, size = 0, len(text)
    while True:
        at = space(text, end).end()  # type: ignore[union-attr]  # it matches everywhere
        if at == size:
            yield Token(TokenKind.END, "", size)
            return
        word = match(text, at)
        if word is None:
            yield Token(TokenKind.NO_WORD, _no_word(text, at), at)
            return
        end = word.end()
        found = word.group()
        if found == "-" and at < last_line_end and text.startswith("--", at):
            end = _LINE_END.search(text, at).end()  # type: ignore[union-attr]  # there is one
            continue
        group = word.lastgroup
        if group == "name" and (keyword := found.upper()) in KEYWORDS:
            yield Token(TokenKind.KEYWORD, keyword, at)
        elif group != "comment":
            yield Token(kinds[group], found, at)  # type: ignore[index]  # each alternative is a group


def problem(text: str, at: int, found: str, expected: str) -> InvalidExpressionError:
    """Describe an error in an expression: what was found at a position, and what was expected."""
    before = text[:at].splitlines() or [""]
    if text[:at].endswith(("\n", "\r")):
        before.append("")
    line = f"line {len(before)}, " if len(before) > 1 else ""
    return InvalidExpressionError(
        f"at {line}column {len(before[-1]) + 1}: found {found}, expected {expected}"
    )


def described(token: Token) -> str:
    """Return a word as errors show it."""
    if token.kind is TokenKind.NO_WORD:
        return token.text
    return "the end of the expression" if token.kind is TokenKind.END else quoted(token.text)


def quoted(word: str) -> str:
    """Return a word, or its beginning, in backquotes."""
    return f"`{word}`" if len(word) <= SHOWN_MAX else f"`{word[:SHOWN_MAX]}…`"


def _no_word(text: str, at: int) -> str:
    if text[at] == "'":
        return "a quote that is never closed"
    if text.startswith("/*", at):
        return "a comment that is never closed"
    return f"`{text[at]}`"
