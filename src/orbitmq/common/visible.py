"""Makes text sent by peers safe to display: characters that control a terminal, forge a line or
change text direction become escapes.

These are all control characters (C0, DEL, C1), line and paragraph separators, bidirectional marks,
and lone surrogates, which no stream can encode. Pure.
"""

from __future__ import annotations

from typing import Final

_NAMED: Final = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_DIRECTIONS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_UNSAFE: Final = (
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    "\u2028",
    "\u2029",
    *_DIRECTIONS,
    *map(chr, range(0xD800, 0xE000)),
)
_ESCAPES: Final = {
    ord(char): (
        _NAMED.get(char) or (f"\\x{ord(char):02x}" if char < "\u0100" else f"\\u{ord(char):04x}")
    )
    for char in _UNSAFE
}
_LINE_ESCAPES: Final = {code: escape for code, escape in _ESCAPES.items() if code != ord("\n")}
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _ESCAPES if code >= 0x7F}


def visible(text: str) -> str:
    """Return the text as one line, unsafe characters escaped."""
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def visible_lines(text: str) -> str:
    """Return text with its line breaks, other unsafe characters escaped."""
    return text.translate(_LINE_ESCAPES)


def visible_json(text: str) -> str:
    """Escape unsafe characters in JSON text without changing its values; the JSON standard itself
    escapes only C0.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_JSON_ESCAPES)
