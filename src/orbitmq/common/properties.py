r"""Java properties text as `java.util.Properties` reads it, with the line number of each entry.

Rules: `#` and `!` start a comment line; a line that ends in an odd number of backslashes continues
on the next one, whose leading blanks are dropped; a key ends at the first bare `=`, `:` or blank;
`\t \n \r \f \uXXXX` are escapes, any other `\c` is `c`. Knows text only: the caller decides which
keys exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Property:
    """One entry and the number of its first line."""

    key: str
    value: str
    line: int


class PropertiesError(ValueError):
    """Malformed properties text; `line` says where."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


def parse(text: str) -> list[Property]:
    """Return every entry of `text` in order; of entries with the same key the last one counts."""
    return [_entry(line, number) for number, line in _logical_lines(text)]


def decode(data: bytes) -> str:
    """Decode properties bytes: UTF-8, or Latin-1 (which the original always uses) if they are not
    valid UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def write(pairs: Mapping[str, str]) -> str:
    """Return `key=value` lines, escaped so that both `parse` and Java read the same pairs back."""
    return "".join(
        f"{_escaped(key, ' =:#!')}={_escaped_value(value)}\n" for key, value in pairs.items()
    )


_BLANK = " \t\f"
_KEY_END = re.compile(r"[=: \t\f]")
_UNESCAPE = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines that hold an entry, continuations joined, each with the number of its first
    physical line.
    """
    joined: list[str] = []
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = natural.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            if joined or line != "\\":
                joined.append(line[:-1])
            continue
        yield first, "".join([*joined, line])
        joined = []
    if joined:
        yield first, "".join(joined)


def _entry(line: str, number: int) -> Property:
    position = 0
    while position < len(line) and not _KEY_END.match(line, position):
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return Property(_unescaped(line[:position], number), _unescaped(rest, number), number)


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        digits, char = match.group(1, 2)
        if digits is not None:
            return chr(int(digits, 16))
        if char == "u":
            raise PropertiesError(number, "\\u must be followed by four hexadecimal digits")
        return _UNESCAPE.get(char, char)

    plain = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.?))", replace, text, flags=re.DOTALL)
    return plain.encode("utf-16", "surrogatepass").decode(
        "utf-16", "surrogatepass"
    )  # joins surrogate pairs


def _escaped_value(value: str) -> str:
    return ("\\" if value[:1] == " " else "") + _escaped(value, "")


def _escaped(text: str, special: str) -> str:
    return "".join(
        _ESCAPE.get(char)
        or ("\\" + char if char in special else char if " " <= char <= "~" else _units(char))
        for char in text
    )


def _units(char: str) -> str:
    r"""Return a character as the one or two `\uXXXX` escapes of its UTF-16 code units."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))
