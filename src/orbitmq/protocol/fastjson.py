"""The JSON of bodies and configuration files: what peers' fastjson writes, and text that it reads.

Knows nothing of any body's members. Two habits of the original set its JSON apart from the standard:

- keys that are not texts are written bare: `{0:"10.0.0.1:10911"}`, `{{"brokerName":"b","queueId":0,"topic":"T"}:5}`;
- members without a value are left out.

Reading: a bare number or name as key becomes the text that the quoted spelling gives, so both spellings read the same;
an object as key becomes an `ObjectKey`. Also taken, as every fastjson takes them: single quotes, trailing commas, control
characters inside texts, the escapes \\xHH, \\v, \\' and \\0 to \\7, and numbers such as `+1`, `01`, `1.`, `.5` and `1L`.
Comments and class literals (`Set[…]`, `new Date(…)`) are refused: no peer writes them.

Writing is byte for byte that of the fastjson in RocketMQ 5.5.0. It writes a bean's members by name, so build beans with
`bean`; other maps keep the order they are given in.

Invariant: whatever the text, reading returns or raises ProtocolError; nesting is limited.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, Final

from orbitmq.common.errors import ProtocolError

NESTING_MAX: Final = 256


class ObjectKey(Mapping[str, Any]):
    """An object that is the key of a map: a read-only, hashable mapping whose members are plain values."""

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(sorted(members.items()))
        self._hash = hash(tuple(self._members.items()))

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


class _EmptyBean(dict[str, Any]):
    """A bean without members: indented it takes lines, which a map without entries does not."""


def bean(**members: Any) -> dict[str, Any]:
    """The members as the original writes a bean: sorted by name, those without a value left out."""
    return {name: members[name] for name in sorted(members) if members[name] is not None} or _EmptyBean()


# --- reading -------------------------------------------------------------------------------------------------------

_STANDARD_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=lambda _name: None)
_SPACE: Final = re.compile(r"[ \t\r\n\f\b]*")
_BARE_KEY: Final = re.compile(r"[+-]?\d+(?:\.\d+)?|[A-Za-z_$][\w$]*", re.ASCII)
_NUMBER: Final = re.compile(r"([+-]?(?:\d+(\.\d*)?|(\.\d+))([eE][+-]?\d+)?)([BSLFD]?)(?![\w.])", re.ASCII)
_WORD: Final = re.compile(r"(?:true|false|null|undefined|NaN)\b", re.ASCII)
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_PLAIN_TEXT: Final = {quote: re.compile(rf"[^{quote}\\]*") for quote in "\"'"}
_ESCAPE: Final = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-7])|(.)", re.DOTALL)
_HALF: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = {"b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "/": "/", "\\": "\\", '"': '"', "'": "'"}


def loads(text: bytes | str) -> Any:
    """The value that the text spells; ProtocolError, with the position, when it spells none."""
    if not isinstance(text, str):
        try:
            text = str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"body is not UTF-8: byte {error.start} of {len(error.object)} starts no character") from error
    try:
        return _STANDARD_DECODER.decode(text)
    except RecursionError:
        raise ProtocolError(f"JSON text is nested too deeply; up to {NESTING_MAX} levels are read") from None
    except ValueError:
        return _LenientReader(text).read()


class _LenientReader:
    """Reads what the standard decoder refused, in one pass."""

    __slots__ = ("_at", "_depth", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        value = self._value()
        if self._peek():
            raise self._error("the text should have ended")
        return value

    def _error(self, what: str) -> ProtocolError:
        near = self._text[self._at : self._at + 20]
        return ProtocolError(f"bad JSON text at character {self._at} of {len(self._text)}: {what}, found {near!r}")

    def _peek(self) -> str:
        """Skip white space; the next character, or nothing at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        first = self._peek()
        if first == "{":
            return self._object()
        if first == "[":
            return self._array()
        if first == '"' or first == "'":
            return self._string(first)
        if number := _NUMBER.match(self._text, self._at):
            return self._number(number)
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return _WORDS[word.group()]
        raise self._error("a value is expected")

    def _number(self, match: re.Match[str]) -> int | float:
        digits, fraction, bare_fraction, exponent, suffix = match.groups()
        try:
            value = float(digits) if fraction or bare_fraction or exponent or suffix in ("F", "D") else int(digits)
        except ValueError as error:
            raise self._error("a number of fewer digits is expected") from error
        self._at = match.end()
        return value

    def _enter(self) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"at most {NESTING_MAX} levels of nesting are read")

    def _leave(self) -> None:
        self._at += 1
        self._depth -= 1

    def _array(self) -> list[Any]:
        self._enter()
        items: list[Any] = []
        while self._peek() != "]":
            items.append(self._value())
            self._comma_unless("]")
        self._leave()
        return items

    def _object(self) -> dict[Any, Any]:
        self._enter()
        members: dict[Any, Any] = {}
        while (first := self._peek()) != "}":
            key = self._key(first)
            if self._peek() != ":":
                raise self._error("':' is expected after a key")
            self._at += 1
            members[key] = self._value()
            self._comma_unless("}")
        self._leave()
        return members

    def _comma_unless(self, closing: str) -> None:
        """Step over the comma that follows an item; the last item needs none, and may have one."""
        following = self._peek()
        if following == ",":
            self._at += 1
        elif following != closing:
            raise self._error(f"',' or '{closing}' is expected")

    def _key(self, first: str) -> str | ObjectKey:
        if first == '"' or first == "'":
            return self._string(first)
        if first == "{":
            start = self._at
            try:
                return ObjectKey(self._object())
            except TypeError as error:
                self._at = start
                raise self._error("an object that is a key may hold plain values only") from error
        if bare := _BARE_KEY.match(self._text, self._at):
            self._at = bare.end()
            return bare.group()
        raise self._error("a key is expected")

    def _string(self, quote: str) -> str:
        start = self._at
        self._at += 1
        pieces: list[str] = []
        while True:
            plain = _PLAIN_TEXT[quote].match(self._text, self._at)
            assert plain is not None
            pieces.append(plain.group())
            self._at = plain.end() + 1
            if self._text.startswith(quote, plain.end()):
                return _joined("".join(pieces))
            escape = _ESCAPE.match(self._text, self._at)
            if escape is None:
                self._at = start
                raise self._error("a text is not closed")
            four, two, octal, letter = escape.groups()
            if letter is None:
                pieces.append(chr(int(four or two or octal, 16)))
            elif letter in _ESCAPED:
                pieces.append(_ESCAPED[letter])
            else:
                raise self._error("a known escape is expected after '\\'")
            self._at = escape.end()


def _joined(text: str) -> str:
    """The text with the halves of a character that came as two escapes put together."""
    if _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# --- writing -------------------------------------------------------------------------------------------------------

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
_STANDARD_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)
_TEXT_KEYS: Final[tuple[set[type], ...]] = ({str},)
_SORTABLE_KEYS: Final[tuple[set[type], ...]] = ({str}, {int})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_PLAIN_MEMBERS: Final = _CONTAINERS | {str, int, bool}
_PLAIN_ITEMS: Final = _PLAIN_MEMBERS | {type(None)}


def dumps(value: Any, *, standard_keys: bool = False) -> bytes:
    """The compact text of the value, as bodies carry it.

    With `standard_keys` numbers as keys are quoted and maps sorted by key: the form that clients get routes in when they
    know only standard JSON.
    """
    if _is_plain(value, _SORTABLE_KEYS if standard_keys else _TEXT_KEYS):
        encoder = _STANDARD_ENCODER if standard_keys else _ENCODER
        return encoder.encode(value).encode("utf-8", "replace")
    out: list[str] = []
    _write(value, out, None, standard_keys)
    return "".join(out).encode("utf-8", "replace")


def dumps_pretty(value: Any) -> bytes:
    """The tab-indented text of the value, as configuration files hold it; a tuple, as an array of numbers, stays on one line."""
    out: list[str] = []
    _write(value, out, "\n", False)
    return "".join(out).encode("utf-8", "replace")


def _is_plain(value: Any, key_types: tuple[set[type], ...]) -> bool:
    """Whether the standard encoder writes the same bytes; looks at types only, one set per container, so it is quick."""
    pending = [value]
    if type(value) not in _PLAIN_ITEMS:
        return False
    while pending:
        container = pending.pop()
        if type(container) is dict:
            if container and set(map(type, container)) not in key_types:
                return False
            items, allowed = container.values(), _PLAIN_MEMBERS
        elif type(container) in _CONTAINERS:
            items, allowed = container, _PLAIN_ITEMS
        else:
            continue
        kinds = set(map(type, items))
        if not kinds <= allowed:
            return False
        if not kinds.isdisjoint(_CONTAINERS):
            pending.extend(items)
    return True


def _write(value: Any, out: list[str], line: str | None, standard_keys: bool) -> None:
    """Append the value's text; `line` is the line break with the indent of the value's own line, None when compact."""
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(encode_basestring(value))
    elif isinstance(value, int):
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        out.append(_double(value))
    elif isinstance(value, Mapping):
        members = [(key, member) for key, member in value.items() if member is not None]
        if standard_keys and {type(key) for key, _ in members} in _SORTABLE_KEYS:
            members.sort(key=itemgetter(0))
        if members or isinstance(value, _EmptyBean):
            _write_items("{}", members, out, line, standard_keys)
        else:
            out.append("{}")
    elif isinstance(value, list | set | frozenset):
        _write_items("[]", value, out, line, standard_keys)
    elif isinstance(value, tuple):
        _write_items("[]", value, out, None, standard_keys)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form: give a str, number, bool, None, mapping or list")


def _write_items(brackets: str, items: Any, out: list[str], line: str | None, standard_keys: bool) -> None:
    """Append a map's members or an array's items between their brackets; where there are none, a line of their indent all the same."""
    inner = "" if line is None else line + "\t"
    out.append(brackets[0] + inner)
    separator = ""
    for item in items:
        out.append(separator)
        separator = "," + inner
        if brackets == "{}":
            key, item = item
            if isinstance(key, str) or (standard_keys and isinstance(key, int | float)):
                out.append(encode_basestring(key if isinstance(key, str) else _ENCODER.encode(key)))
            else:
                _write(key, out, inner or None, standard_keys)
            out.append(":")
        _write(item, out, inner or None, standard_keys)
    out.append((line or "") + brackets[1])


def _double(value: float) -> str:
    """The number as Java prints a double: decimal from 0.001 to below ten million, scientific outside, null when not finite."""
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{mantissa}E{exponent + len(digits) - 1}"
