"""The words of an SQL92 expression, and where each stands, up to what is no word.

Always the longest word that fits. Spaces and comments (`/* … */`, and `-- …` up to the end of its line) stand between words. A `--` whose
line does not end is two minus signs, as in the original. What is no word ends the list: it matters to a parser that gets so far.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.common.errors import ExpressionIllegal

KEYWORDS: Final = frozenset(["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"])


class Kind(Enum):
    """What a word is; the value is what it is called in errors."""

    KEYWORD = "keyword"
    NAME = "the name of a property"
    TEXT = "a text in single quotes"
    INTEGER = "an integer"
    FLOAT = "a decimal number"
    SIGN = "sign"
    END = "the end"
    NO_WORD = "what is no word"


class Token(NamedTuple):
    """A word of the expression; `text` of a keyword is in capitals, everything else is as it stands there."""

    kind: Kind
    text: str
    at: int

    def is_(self, text: str) -> bool:
        """Whether it is that keyword or sign."""
        return self.text == text and self.kind in (Kind.KEYWORD, Kind.SIGN)


_WORD: Final = re.compile(
    r"""
    (?P<space> [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/ )
  | (?P<float> [0-9]+\.[0-9]*(?:[Ee][+-]?[0-9]+)? | \.[0-9]+(?:[Ee][+-]?[0-9]+)? | [0-9]+[Ee][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*[lL]? )
  | (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<text> '(?:''|[^'])*' )
  | (?P<sign> <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS: Final = {"float": Kind.FLOAT, "integer": Kind.INTEGER, "name": Kind.NAME, "text": Kind.TEXT, "sign": Kind.SIGN}


def tokens_of(text: str) -> list[Token]:
    """The words in their order, with one of kind END, or NO_WORD, behind them."""
    found = []
    at = 0
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            found.append(Token(Kind.NO_WORD, _no_word(text, at), at))
            return found
        group = word.lastgroup or ""
        if group != "space":
            found.append(_token(_KINDS[group], word.group(), at))
        at = word.end()
    found.append(Token(Kind.END, "", len(text)))
    return found


def problem(text: str, at: int, found: str, expected: str) -> ExpressionIllegal:
    """What is wrong with an expression: what stands at a place, and what should."""
    before = text[:at].splitlines() or [""]
    if text[:at].endswith(("\n", "\r")):
        before.append("")
    line = f"line {len(before)}, " if len(before) > 1 else ""
    return ExpressionIllegal(f"at {line}column {len(before[-1]) + 1}: found {found}, expected {expected}")


def described(token: Token) -> str:
    """A word as errors show it."""
    if token.kind is Kind.NO_WORD:
        return token.text
    return "the end of the expression" if token.kind is Kind.END else f"`{token.text}`"


def _token(kind: Kind, word: str, at: int) -> Token:
    if kind is Kind.NAME and word.upper() in KEYWORDS:
        return Token(Kind.KEYWORD, word.upper(), at)
    return Token(kind, word, at)


def _no_word(text: str, at: int) -> str:
    if text[at] == "'":
        return "a quote that is never closed"
    if text.startswith("/*", at):
        return "a comment that is never closed"
    return f"`{text[at]}`"
