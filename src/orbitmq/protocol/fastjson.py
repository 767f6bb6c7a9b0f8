r"""The JSON of bodies and configuration files, written and read as fastjson does.

Knows nothing of any body's members. Two habits of fastjson differ from standard JSON:

- keys that are not texts are written bare: `{0:"10.0.0.1:10911"}`,
  `{{"brokerName":"b","queueId":0,"topic":"T"}:5}`;
- members without a value are omitted.

Reading: a bare number or name as key becomes the text of its quoted spelling, so both spellings
read the same; an object as key becomes an `ObjectKey`. Also accepted, as every fastjson does:
single quotes, trailing commas, control characters inside texts, the escapes \xHH, \v, \' and \0 to
\7, and numbers such as `+1`, `01`, `1.`, `.5` and `1L`. Comments and class literals (`Set[…]`, `new
Date(…)`) are refused: no peer writes them.

Writing is byte for byte that of the fastjson in RocketMQ 5.5.0. It writes a bean's members sorted
by name, so build beans with `bean`; other maps keep their order.

Invariant: for any text, reading returns or raises ProtocolError; nesting is limited.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, Final

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol.json_reader import (
    NESTING_MAX,
    STANDARD_DECODER,
    JsonReader,
    ObjectKey,
    is_deeper,
)

__all__ = [
    "NESTING_MAX",
    "Entries",
    "Items",
    "ObjectKey",
    "bean",
    "brief",
    "dumps",
    "dumps_in_slices",
    "dumps_pretty",
    "dumps_pretty_in_slices",
    "loads",
    "loads_in_slices",
]

_SHOWN_MAX: Final = 60  # characters of a value shown in errors


def brief(value: Any) -> str:
    """Return a value as errors show it: its beginning, or its kind if it is a container."""
    if isinstance(value, str):
        return repr(value[:_SHOWN_MAX])
    if value is None or isinstance(value, int | float):
        return str(value)[:_SHOWN_MAX]
    return "an array" if isinstance(value, list | tuple) else "an object"


class _EmptyBean(dict[str, Any]):
    """A bean without members: indented it takes lines, which an empty map does not."""


def bean(**members: Any) -> dict[str, Any]:
    """Return the members as the original writes a bean: sorted by name, those without a value
    omitted.
    """
    return {
        name: members[name] for name in sorted(members) if members[name] is not None
    } or _EmptyBean()


# --- reading

LARGE_CHARS: Final = (
    128 * 1024
)  # size up to which texts are decoded by the standard decoder in one call
_DECODED_BYTES: Final = 1024 * 1024
_REFUSED: Final = object()


def loads(text: bytes | str) -> Any:
    """Parse the text; raise ProtocolError, with the position, if it is malformed."""
    if not isinstance(text, str):
        text = _utf8(text, 0, len(text))
    value = _standard(text)
    return value if value is not _REFUSED else finish(JsonReader(text, window_chars=0).read())


def loads_in_slices(text: bytes | str) -> Slices[Any]:
    """Do what `loads` does, in slices: for large text, or text that only fastjson understands."""
    if not isinstance(text, str):
        text = yield from _decoded(text)
    if len(text) > LARGE_CHARS:
        return (yield from JsonReader(text).read())
    value = _standard(text)
    return value if value is not _REFUSED else (yield from JsonReader(text, window_chars=0).read())


def _standard(text: str) -> Any:
    """Parse standard JSON that is not nested too deeply; return _REFUSED for anything else."""
    try:
        value = STANDARD_DECODER.decode(text)
    except (ValueError, RecursionError):
        return _REFUSED
    if text.count("{") + text.count("[") > NESTING_MAX and is_deeper(value, NESTING_MAX):
        return _REFUSED
    return value


def _decoded(data: bytes) -> Slices[str]:
    """Decode UTF-8, at once if that is quick."""
    if len(data) <= _DECODED_BYTES:
        return _utf8(data, 0, len(data))
    yield  # the slice before may have copied as much
    if data.isascii():
        return _utf8(data, 0, len(data))
    pieces = []
    start = 0
    while start < len(data):
        end = min(start + _DECODED_BYTES, len(data))
        for before in range(min(3, len(data) - end) + 1):  # do not cut within a character
            if end == len(data) or data[end - before] & 0xC0 != 0x80:
                end -= before
                break
        pieces.append(_utf8(data, start, end))
        start = end
        yield
    return "".join(pieces)


def _utf8(data: bytes, start: int, end: int) -> str:
    try:
        return str(data[start:end], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"body is not UTF-8: byte {start + error.start} of {len(data)} starts no character"
        ) from error


# --- writing

_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
)
_STANDARD_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)
_TEXT_KEYS: Final[tuple[set[type], ...]] = ({str},)
_SORTABLE_KEYS: Final[tuple[set[type], ...]] = ({str}, {int})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_PLAIN_MEMBERS: Final = _CONTAINERS | {str, int, bool}
_PLAIN_ITEMS: Final = _PLAIN_MEMBERS | {type(None)}
_SCALARS: Final = frozenset({str, int, bool, float, type(None)})
_NODES_PER_SLICE: Final = 2000  # values written per slice
_OPENED_NODES: Final = 20  # cost of a container that is written item by item, besides its items


def dumps(value: Any, *, standard_keys: bool = False) -> bytes:
    """Return the compact text of the value, as bodies carry it.

    With `standard_keys`, numbers as keys are quoted and maps sorted by key: the form in which
    clients that know only standard JSON receive routes.
    """
    if _is_plain(value, _SORTABLE_KEYS if standard_keys else _TEXT_KEYS):
        encoder = _STANDARD_ENCODER if standard_keys else _ENCODER
        return encoder.encode(value).encode("utf-8", "replace")
    out: list[str] = []
    _write(value, out, None, standard_keys)
    return _bytes(out)


def dumps_pretty(value: Any) -> bytes:
    """Return the tab-indented text of the value, as configuration files hold it; a tuple, as an
    array of numbers, stays on one line.
    """
    out: list[str] = []
    _write(value, out, "\n", False)
    return _bytes(out)


def _bytes(pieces: list[str]) -> bytes:
    return "".join(pieces).encode("utf-8", "replace")


class Entries:
    """A map whose entries are generated while it is written in slices. Keys must be distinct."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[Any, Any]]) -> None:
        self.entries = entries


class Items:
    """An array whose items are generated while it is written in slices."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items


def dumps_in_slices(value: Any) -> Slices[bytes]:
    """Do what `dumps` does, in slices; maps and arrays may also be `Entries` and `Items`."""
    writer = _SliceWriter()
    yield from writer.write(value, None)
    return b"".join(writer.out)


def dumps_pretty_in_slices(value: Any) -> Slices[bytes]:
    """Do what `dumps_pretty` does, in slices; maps and arrays may also be `Entries` and `Items`."""
    writer = _SliceWriter()
    yield from writer.write(value, "\n")
    return b"".join(writer.out)


class _SliceWriter:
    """Writes a value, ending a slice after every _NODES_PER_SLICE values at any depth."""

    __slots__ = ("_nodes", "out")

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self._nodes = 0  # in this slice

    def write(self, value: Any, line: str | None) -> Slices[None]:
        """Append the value's text; `line` as in `_write`."""
        if type(value) in _SCALARS or _nodes(value) <= _NODES_PER_SLICE:
            self.out.append(dumps(value) if line is None else _pretty(value, line))
            return
        is_map = isinstance(value, Mapping | Entries)
        brackets = "{}" if is_map else "[]"
        inner = None if line is None or isinstance(value, tuple) else line + "\t"
        separator = brackets[0] + (inner or "")
        part: list[Any] = []
        for item in _items(value):
            member = item[1] if is_map else item
            if is_map and member is None:
                continue
            size = _nodes(member) + (_nodes(item[0]) if is_map else 0)
            is_whole = size <= _NODES_PER_SLICE or type(member) in _SCALARS
            if is_whole:
                part.append(item)
            self._nodes += size if is_whole else _OPENED_NODES
            is_over = self._nodes >= _NODES_PER_SLICE
            if part and (is_over or not is_whole):
                self.out.append(separator.encode() + _part(part, is_map, inner))
                separator = "," + (inner or "")
                part = []
            if is_over:
                self._nodes = 0
                yield
            if not is_whole:
                self.out.append(separator.encode() + (_key(item[0], inner) if is_map else b""))
                separator = "," + (inner or "")
                yield from self.write(member, inner)
        if part:
            self.out.append(separator.encode() + _part(part, is_map, inner))
        elif separator[0] != ",":  # no items
            self.out.append(
                dumps({} if is_map else []) if line is None else _pretty({} if is_map else [], line)
            )
            return
        self.out.append(
            ((line if inner is not None else None) or "").encode() + brackets[1].encode()
        )


def _items(value: Any) -> Iterable[Any]:
    """Return the pairs of a map or the items of an array; a snapshot, unless they are generated
    while written.
    """
    if isinstance(value, Entries):
        return value.entries
    if isinstance(value, Items):
        return value.items
    return list(value.items()) if isinstance(value, Mapping) else list(value)


def _part(items: list[Any], is_map: bool, inner: str | None) -> bytes:
    """Return some items of a map or array without its brackets."""
    if inner is None:
        return dumps(dict(items) if is_map else items)[1:-1]
    out: list[str] = []
    _write_between(items, out, inner, False, is_map=is_map)
    return _bytes(out)


def _key(key: Any, inner: str | None) -> bytes:
    out: list[str] = []
    _write_key(key, out, inner, False)
    return _bytes(out)


def _pretty(value: Any, line: str) -> bytes:
    out: list[str] = []
    _write(value, out, line, False)
    return _bytes(out)


def _nodes(value: Any) -> int:
    """Count the values in the value, long texts as several; counting stops
    above _NODES_PER_SLICE.
    """
    if type(value) is str:
        return 1 + (len(value) >> 5)
    if type(value) in _SCALARS:
        return 1
    count = 0
    pending = [value]
    while pending and count <= _NODES_PER_SLICE:
        container = pending.pop()
        if isinstance(container, Entries | Items):
            return _NODES_PER_SLICE + 1
        if isinstance(container, Mapping):
            container = container.values()
        elif not isinstance(container, list | tuple | set | frozenset):
            count += 1
            continue
        count += 1 + len(container)
        if count > _NODES_PER_SLICE:
            break
        for item in container:
            if type(item) is str:
                count += len(item) >> 5
            elif type(item) not in _SCALARS:
                pending.append(item)
    return count


def _is_plain(value: Any, key_types: tuple[set[type], ...]) -> bool:
    """Return whether the standard encoder writes the same bytes; quick, since it looks at types
    only, one set per container.
    """
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
    """Append the value's text; `line` is the line break with the indent of the value's own line,
    None if compact.
    """
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
        raise TypeError(
            f"{type(value).__name__} has no JSON form: give a str, number, bool, None, mapping or"
            " list"
        )


def _write_items(
    brackets: str, items: Any, out: list[str], line: str | None, standard_keys: bool
) -> None:
    """Append a map's members or an array's items between their brackets; an empty one still gets a
    line with its indent.
    """
    inner = "" if line is None else line + "\t"
    out.append(brackets[0] + inner)
    _write_between(items, out, inner or None, standard_keys, is_map=brackets == "{}")
    out.append((line or "") + brackets[1])


def _write_between(
    items: Any, out: list[str], inner: str | None, standard_keys: bool, *, is_map: bool
) -> None:
    separator = ""
    for item in items:
        out.append(separator)
        separator = "," + (inner or "")
        if is_map:
            key, item = item
            _write_key(key, out, inner, standard_keys)
        _write(item, out, inner, standard_keys)


def _write_key(key: Any, out: list[str], inner: str | None, standard_keys: bool) -> None:
    if isinstance(key, str) or (standard_keys and isinstance(key, int | float)):
        out.append(encode_basestring(key if isinstance(key, str) else _ENCODER.encode(key)))
    else:
        _write(key, out, inner, standard_keys)
    out.append(":")


def _double(value: float) -> str:
    """Return the number as Java prints a double: decimal from 0.001 to below ten million,
    scientific outside, null if not finite.
    """
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{mantissa}E{exponent + len(digits) - 1}"
