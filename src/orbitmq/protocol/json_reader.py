"""Reads fastjson's JSON in slices and with an explicit stack: no text is too long or too deep.

`fastjson.loads` uses it for text that the standard decoder refuses, `fastjson.loads_in_slices` for
every large text. Text that the standard decoder accepts yields the same value here.

Containers of up to some ten thousand characters within a large text are left to the standard
decoder, which sees a window of the text: a container cut by the window's end, or that only fastjson
understands, is walked item by item instead.

Invariants: reading returns or raises ProtocolError with the position; a slice ends after about
SLICE_CHARS characters, where each token read here, interpreted, counts for TOKEN_CHARS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices

NESTING_MAX: Final = 256
KEY_MEMBERS_MAX: Final = 64  # of an object that is a key; Apache's have three
WINDOW_CHARS: Final = 64 * 1024
SLICE_CHARS: Final = 128 * 1024
TOKEN_CHARS: Final = 128

STANDARD_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=lambda _name: None)
_SCAN_ONCE: Final[Callable[[str, int], tuple[Any, int]]] = STANDARD_DECODER.scan_once  # type: ignore[attr-defined]

_SPACES: Final = frozenset(" \t\r\n\f\b")
_SPACE: Final = re.compile(r"[ \t\r\n\f\b]{0,65536}")
# Runs are bounded and never rescanned when what follows does not match: a key or number of a
# million digits costs linear time.
_BARE_KEY: Final = re.compile(
    r"[+-]?\d{1,65536}(?:\.\d{1,65536})?|[A-Za-z_$][\w$]{0,65536}", re.ASCII
)
_NUMBER: Final = re.compile(
    r"([+-]?(?:\d{1,65536}+(\.\d{0,65536}+)?|(\.\d{1,65536}+))([eE][+-]?\d{1,65536}+)?)([BSLFD]?)(?![\w.])",
    re.ASCII,
)
_WORD: Final = re.compile(r"(?:true|false|null|undefined|NaN|-?Infinity)\b", re.ASCII)
_WORDS: Final[dict[str, bool]] = {"true": True, "false": False}  # the other words have no value
_SHORT_TEXT: Final = {
    quote: re.compile(rf"{quote}([^{quote}\\]{{0,4096}}){quote}") for quote in "\"'"
}
_PLAIN_TEXT: Final = {quote: re.compile(rf"[^{quote}\\]{{0,65536}}") for quote in "\"'"}
_ESCAPE: Final = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-7])|(.)", re.DOTALL)
_ESCAPED: Final = {
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "/": "/",
    "\\": "\\",
    '"': '"',
    "'": "'",
}

_ITEM, _COLON, _VALUE, _AFTER, _END = range(5)  # parser states: what is expected next


class ObjectKey(Mapping[str, Any]):
    """An object used as a map key: a read-only, hashable mapping whose members are plain values."""

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(sorted(members.items()))
        self._hash = hash(tuple((name, _hashed(value)) for name, value in self._members.items()))

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"ObjectKey({self._members!r})"


def _hashed(value: Any) -> Any:
    """Return what a member's value contributes to a hash: for numbers a text, whose hash peers
    cannot predict. Raises TypeError for unhashable values.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # equal numbers have the same hash, whatever their type
    if isinstance(value, int | float):
        return str(int(value) if isinstance(value, bool) else value)
    return hash(value)


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether containers in the value nest deeper than this many levels."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
    return bool(level)


class _Open:
    """A container whose end is not reached yet. `start` is its position if it is a key, otherwise
    None.
    """

    __slots__ = ("closing", "key", "members", "start", "value")

    def __init__(self, opening: str, start: int | None = None) -> None:
        self.members: dict[Any, Any] | None = {} if opening == "{" else None
        self.value: Any = [] if self.members is None else self.members
        self.closing = "]" if self.members is None else "}"
        self.key: Any = None
        self.start = start


class JsonReader:
    """Reads one text. With `window_chars` 0 the standard decoder has refused the text already and
    is not tried again.
    """

    __slots__ = ("_at", "_spent", "_text", "_window", "_window_at", "_window_chars")

    def __init__(self, text: str, *, window_chars: int = WINDOW_CHARS) -> None:
        self._text = text
        self._at = 0
        self._spent = 0
        self._window = ""
        self._window_at = 0
        self._window_chars = window_chars

    def read(self) -> Slices[Any]:
        """Parse the text; raise ProtocolError, with the position, if it is malformed."""
        stack: list[_Open] = []
        expected = _VALUE
        value: Any = None
        while True:
            first = self._peek()
            while first and first in _SPACES:  # more than is skipped at a time
                yield
                first = self._peek()
            self._spent += TOKEN_CHARS
            if self._spent >= SLICE_CHARS:
                self._spent = 0
                yield

            if expected == _AFTER:
                self._comma_unless(first, stack[-1].closing)
                expected = _ITEM
                continue
            if expected == _ITEM:
                container = stack[-1]
                if first == container.closing:
                    self._at += 1
                    stack.pop()
                    if container.start is not None:
                        stack[-1].key = self._object_key(container)
                        expected = _COLON
                        continue
                    value = container.value
                elif container.members is None:
                    expected = _VALUE
                elif first == "{":
                    stack.append(_Open("{", self._at))
                    self._enter(len(stack))
                    continue
                else:
                    if first != '"' and first != "'":
                        container.key = self._bare_key()
                    elif (short := self._short_text(first)) is not None:
                        container.key = short
                    else:
                        container.key = yield from self._long_text(first)
                    expected = _COLON
                    continue
            elif expected == _COLON:
                if first != ":":
                    raise self._error("':' is expected after a key")
                self._at += 1
                expected = _VALUE
                continue
            elif expected == _END:
                if first:
                    raise self._error("the text should have ended")
                return value

            if expected == _VALUE:
                if first == "{" or first == "[":
                    if not self._window_chars or (decoded := self._decoded(len(stack))) is None:
                        stack.append(_Open(first))
                        self._enter(len(stack))
                        expected = _ITEM
                        continue
                    value = decoded
                elif first == '"' or first == "'":
                    value = self._short_text(first)
                    if value is None:
                        value = yield from self._long_text(first)
                else:
                    value = self._scalar()
            # A value, or a closed container, is complete.
            if not stack:
                expected = _END
                continue
            container = stack[-1]
            if container.members is None:
                container.value.append(value)
            else:
                container.members[container.key] = value
            expected = _AFTER

    def _error(self, what: str) -> ProtocolError:
        near = self._text[self._at : self._at + 20]
        return ProtocolError(
            f"bad JSON text at character {self._at} of {len(self._text)}: {what}, found {near!r}"
        )

    def _peek(self) -> str:
        """Skip white space and return the next character, or an empty text at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _enter(self, depth: int) -> None:
        self._at += 1
        if depth > NESTING_MAX:
            raise self._error(f"at most {NESTING_MAX} levels of nesting are read")

    def _decoded(self, depth: int) -> Any:
        """Decode the container that begins here by the standard decoder and step over it; return
        None if it has to be walked.
        """
        start = self._at - self._window_at
        if not self._window or start >= self._window_chars // 2:
            self._window = self._text[self._at : self._at + self._window_chars]
            self._window_at = self._at
            start = 0
        try:
            value, end = _SCAN_ONCE(self._window, start)
        except StopIteration as problem:
            self._spent += problem.value - start
            return None
        except ValueError as problem:
            self._spent += getattr(problem, "pos", len(self._window)) - start
            return None
        except RecursionError:
            self._spent += len(self._window)
            return None
        levels = NESTING_MAX - depth
        openings = self._window.count("{", start, end) + self._window.count("[", start, end)
        if openings > levels and is_deeper(value, levels):
            return None
        self._at += end - start
        self._spent += end - start
        return value

    def _scalar(self) -> Any:
        if number := _NUMBER.match(self._text, self._at):
            return self._number(number)
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return _WORDS.get(word.group())
        raise self._error("a value is expected")

    def _number(self, match: re.Match[str]) -> int | float:
        digits, fraction, bare_fraction, exponent, suffix = match.groups()
        try:
            value = (
                float(digits)
                if fraction or bare_fraction or exponent or suffix in ("F", "D")
                else int(digits)
            )
        except ValueError as error:
            raise self._error("a number of fewer digits is expected") from error
        self._at = match.end()
        return value

    def _comma_unless(self, first: str, closing: str) -> None:
        """Step over the comma after an item; optional after the last one."""
        if first == ",":
            self._at += 1
        elif first != closing:
            raise self._error(f"',' or '{closing}' is expected")

    def _object_key(self, key: _Open) -> ObjectKey:
        assert key.start is not None
        try:
            if len(key.value) <= KEY_MEMBERS_MAX:
                return ObjectKey(key.value)
        except TypeError as error:
            self._at = key.start
            raise self._error("an object that is a key may hold plain values only") from error
        self._at = key.start
        raise self._error(f"an object that is a key may have at most {KEY_MEMBERS_MAX} members")

    def _bare_key(self) -> str:
        if bare := _BARE_KEY.match(self._text, self._at):
            self._at = bare.end()
            return bare.group()
        raise self._error("a key is expected")

    def _short_text(self, quote: str) -> str | None:
        """Return the text that begins here if it is short and has no escapes; otherwise None."""
        short = _SHORT_TEXT[quote].match(self._text, self._at)
        if short is None:
            return None
        self._at = short.end()
        return short.group(1)

    def _long_text(self, quote: str) -> Slices[str]:
        start = self._at
        self._at += 1
        pieces: list[str] = []
        while True:
            plain = _PLAIN_TEXT[quote].match(self._text, self._at)
            assert plain is not None
            pieces.append(plain.group())
            self._at = plain.end()
            self._spent += len(pieces[-1]) + TOKEN_CHARS
            if self._spent >= SLICE_CHARS:
                self._spent = 0
                yield
            following = self._text[self._at : self._at + 1]
            if following == quote:
                self._at += 1
                return "".join(pieces)
            if following and following != "\\":
                continue  # a long text continues
            self._at += 1
            escape = _ESCAPE.match(self._text, self._at)
            if escape is None:
                self._at = start
                raise self._error("a text is not closed")
            four, two, octal, letter = escape.groups()
            if letter is None:
                _append(pieces, int(four or two or octal, 16))
            elif letter in _ESCAPED:
                pieces.append(_ESCAPED[letter])
            else:
                raise self._error("a known escape is expected after '\\'")
            self._at = escape.end()


def _append(pieces: list[str], code: int) -> None:
    """Append the character of an escape, joining surrogate pairs."""
    if (
        0xDC00 <= code < 0xE000
        and pieces[-1] == ""
        and len(pieces) > 1
        and "\ud800" <= pieces[-2] < "\udc00"
    ):
        pieces.pop()
        pieces[-1] = chr(0x10000 + ((ord(pieces[-1]) - 0xD800) << 10) + code - 0xDC00)
    else:
        pieces.append(chr(code))
