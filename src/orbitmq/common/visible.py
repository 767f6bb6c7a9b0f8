"""Text of peers for people to look at: what would steer a terminal, forge a line or turn its direction is shown as an escape.

That is every control character (C0, DEL, C1), the line and paragraph separators, the marks that set the direction of text, and halves of
characters, which no stream takes. Pure.
"""

from __future__ import annotations

from typing import Final

_NAMED: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_DIRECTIONS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_UNSAFE: Final = (*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", *_DIRECTIONS, *map(chr, range(0xD800, 0xE000)))
_ESCAPES: Final = {ord(char): _NAMED.get(char) or (f"\\x{ord(char):02x}" if char < "\u0100" else f"\\u{ord(char):04x}") for char in _UNSAFE}
_LINE_ESCAPES: Final = {code: escape for code, escape in _ESCAPES.items() if code != ord("\n")}
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _ESCAPES if code >= 0x7F}


def visible(text: str) -> str:
    """The text as one line, with escapes for what is not to be seen."""
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def visible_lines(text: str) -> str:
    """The same of text that has lines, which stay."""
    return text.translate(_LINE_ESCAPES)


def visible_json(text: str) -> str:
    """JSON text that spells the same values, in which the standard leaves such characters as they are but for C0."""
    return text if text.isascii() and text.isprintable() else text.translate(_JSON_ESCAPES)
