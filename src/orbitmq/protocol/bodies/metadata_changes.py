"""The response to GET_METADATA_CHANGES, OrbitMQ's own request: what changed in a master's tables
since the numbers in the request.

    {"topics": {"number": 17, "whole": 0, "more": false, "dataVersion": {…},
                "rows": [{"begin": 4096, "config": {…}}], "removed": ["Old"]},
     "groups": …, "consumerOffsets": …, "requestModes": …, "consumerFilters": …, "queueLocks": …,
     "timerMetrics": …,
     "delayOffsets": {"number": 3, "dataVersion": {…}, "offsetTable": {"1": 40}},
     "timerCheckPoint": {"number": 9, "bytes": "<hex of the response to GET_TIMER_CHECK_POINT>"}}

A table without changes has its number and version only. `whole` is not 0 if this page and the
following ones, while `more`, have all rows of the table; then it is the number of the last change
before, and part of the position that the next request has. Tables are decoded one by one, so that a
malformed one does not affect the others. Values only; knows neither rows (`metadata_rows`) nor
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from orbitmq.common.change_log import Position
from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.delay import DelayOffsets
from orbitmq.protocol.bodies.nameserver import (
    DataVersion,
    as_object,
    boolean,
    int_map,
    integer,
    items_in_slices,
    text,
)

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

_INT64: Final = 1 << 63
_ROWS_MAX: Final = 100_000  # per page
_POSITION_NUMBERS: Final = 2
_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage(Generic[K, R]):
    """Changes of one table up to `number`, in order; `version` is None if the table has none.
    `whole_begun` is 0 unless this is the first page of a whole table.
    """

    number: int
    rows: Sequence[R] = ()
    removed: Sequence[K] = ()
    whole_begun: int = 0
    has_more: bool = False
    version: DataVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCodec(Generic[K, R]):
    """The JSON of one table. `units` is what a row costs, some 200 bytes each."""

    name: str
    key_of: Callable[[R], K]
    write: Callable[[R], Any]
    read: Callable[[Any], R]
    write_key: Callable[[K], Any]
    read_key: Callable[[Any], K]
    units: Callable[[R], int]

    def page_to_json(self, page: TablePage[K, R]) -> dict[str, Any]:
        """Return the members of a page, for `encode_changes`."""
        members: dict[str, Any] = {"number": page.number}
        if page.version is not None:
            members["dataVersion"] = page.version.to_json()
        if page.whole_begun or page.has_more or page.rows or page.removed:
            members |= {
                "whole": page.whole_begun,
                "more": page.has_more,
                "rows": fastjson.Items(self.write(row) for row in page.rows),
                "removed": fastjson.Items(self.write_key(key) for key in page.removed),
            }
        return members

    def page_from_json(self, value: Any) -> Slices[TablePage[K, R]]:
        """Read a page; raise ProtocolError if it is malformed."""
        members = as_object(value, self.name)
        whole_begun = integer(members, "whole", 0, _INT64)
        if whole_begun and members.get("rows") is None:
            raise ProtocolError(f"the whole table {self.name} is announced, but has no rows")
        rows = yield from items_in_slices(members.get("rows"), self.read, _ROWS_MAX, self.units)
        removed = yield from items_in_slices(members.get("removed"), self.read_key, _ROWS_MAX)
        return TablePage(
            number=_number(members),
            rows=rows,
            removed=removed,
            whole_begun=whole_begun,
            has_more=boolean(members, "more"),
            version=_version(members),
        )


def write_position(position: Position) -> str:
    """Return a position as a request has it: `number`, or `number/begun`."""
    number, begun = position
    return f"{number}/{begun}" if begun else str(number)


def read_position(text: str | None) -> Position:
    """Read a position; one that cannot be read stands for nothing."""
    numbers = (text or "").split("/")
    if len(numbers) > _POSITION_NUMBERS or not all(
        each.isascii() and each.isdecimal() and len(each) <= _DIGITS_MAX for each in numbers
    ):
        return Position()
    return Position(*map(int, numbers))


def _number(members: Mapping[str, Any]) -> int:
    number = integer(members, "number", 0, _INT64)
    if number <= 0:
        raise ProtocolError("a table of metadata changes has no number")
    return number


def _version(members: Mapping[str, Any]) -> DataVersion | None:
    found = members.get("dataVersion")
    return None if found is None else DataVersion.from_json(found)


# -- values that are sent as a whole

DELAY_OFFSETS: Final = "delayOffsets"
TIMER_CHECK_POINT: Final = "timerCheckPoint"


class NumberedValue(NamedTuple, Generic[R]):
    """A value, and the number of its last change; the value is None if the follower has it."""

    number: int
    value: R | None


def delay_offsets_to_json(value: NumberedValue[DelayOffsets]) -> dict[str, Any]:
    """Return the members of the delay levels' progress, for `encode_changes`."""
    number, offsets = value
    if offsets is None:
        return {"number": number}
    version = offsets.version or DataVersion()
    table = {str(level): offset for level, offset in offsets.offsets.items()}
    return {"number": number, "dataVersion": version.to_json(), "offsetTable": table}


def delay_offsets_from_json(value: Any) -> NumberedValue[DelayOffsets]:
    """Read the delay levels' progress; raise ProtocolError if it is malformed."""
    members = as_object(value, DELAY_OFFSETS)
    table = members.get("offsetTable")
    offsets = None if table is None else DelayOffsets(int_map(table, int), _version(members))
    return NumberedValue(_number(members), offsets)


def check_point_to_json(value: NumberedValue[bytes]) -> dict[str, Any]:
    """Return the members of the timer's check point, for `encode_changes`."""
    number, check = value
    return {"number": number} | ({} if check is None else {"bytes": check.hex()})


def check_point_from_json(value: Any) -> NumberedValue[bytes]:
    """Read the timer's check point; raise ProtocolError if it is malformed."""
    members = as_object(value, TIMER_CHECK_POINT)
    found = text(members, "bytes")
    try:
        return NumberedValue(_number(members), None if found is None else bytes.fromhex(found))
    except ValueError as error:
        raise ProtocolError(f"the timer's check point is not hexadecimal: {error}") from error


def encode_changes(tables: Mapping[str, Any]) -> Slices[bytes]:
    """Encode the response from the members of each table, by name."""
    return fastjson.dumps_in_slices(dict(tables))


def decode_changes(body: bytes) -> Slices[Mapping[str, Any]]:
    """Return the members of each table in the response, by name, for the table's own decoder."""
    return as_object((yield from fastjson.loads_in_slices(body)), "metadata changes")
