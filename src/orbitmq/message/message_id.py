"""The two ids of a message: its storage location (offset id) and its origin (unique id, property
UNIQ_KEY).

Both are upper-case hexadecimal, 32 characters with an IPv4 address and 56 with an IPv6 one:

```
offset id   4 | 16  address of the store host   4  port         8  offset in the commit log
unique id   4 | 16  address of the client       2  process id   4  process number
            4  milliseconds since the month began               2  counter
```

Clock, address and process are parameters; nothing here asks the machine, except for the local time
zone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import hosts

_CLOCK_SET_BACK_MS_MAX = 1_000_000  # up to this far back, an id uses the start of the month
_OFFSET_SIZE = 8
_SHOWN_MAX = 100  # characters of an invalid id shown in errors
_UNIQUE_TAIL_SIZE = 12  # everything except the address


class OffsetId(NamedTuple):
    """Where a message is stored: the broker that stored it (8 or 20 bytes, as in a record) and its
    commit log offset.
    """

    store_host: bytes
    log_offset: int

    def __str__(self) -> str:
        return offset_id(self.store_host, self.log_offset)


class UniqueId(NamedTuple):
    """The client that created a message, and when."""

    address: bytes
    pid: int
    process_number: int
    month_ms: int
    counter: int

    def __str__(self) -> str:
        tail = (
            self.pid << 80 | self.process_number << 48 | self.month_ms << 16 | self.counter
        ).to_bytes(_UNIQUE_TAIL_SIZE, "big")
        return (self.address + tail).hex().upper()

    def created_ms(self, now_ms: int, month_of: Callable[[int], tuple[int, int]]) -> int:
        """Return the creation time, assuming that it was within a month before `now_ms`; for
        `month_of` see `local_month`.
        """
        begin_ms, _ = month_of(now_ms)
        if begin_ms + self.month_ms >= now_ms:
            begin_ms, _ = month_of(begin_ms - 1)
        return begin_ms + self.month_ms


def offset_id(store_host: bytes, log_offset: int) -> str:
    """Return the id of the message that `store_host` stores at `log_offset`."""
    return (store_host + log_offset.to_bytes(_OFFSET_SIZE, "big", signed=True)).hex().upper()


def parse_offset_id(text: str) -> OffsetId:
    """Return the parts of an offset id; raise InvalidMessageError if `text` is not one."""
    raw = _unhex(text, (hosts.V4_SIZE + _OFFSET_SIZE, hosts.V6_SIZE + _OFFSET_SIZE))
    return OffsetId(raw[:-_OFFSET_SIZE], int.from_bytes(raw[-_OFFSET_SIZE:], "big", signed=True))


def parse_unique_id(text: str) -> UniqueId:
    """Return the parts of a unique id; raise InvalidMessageError if `text` is not one."""
    raw = _unhex(text, (4 + _UNIQUE_TAIL_SIZE, 16 + _UNIQUE_TAIL_SIZE))
    tail = int.from_bytes(raw[-_UNIQUE_TAIL_SIZE:], "big")
    return UniqueId(
        raw[:-_UNIQUE_TAIL_SIZE],
        tail >> 80,
        tail >> 48 & 0xFFFFFFFF,
        tail >> 16 & 0xFFFFFFFF,
        tail & 0xFFFF,
    )


def _unhex(text: str, sizes: tuple[int, int]) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in sizes or len(text) != 2 * len(raw):
        raise InvalidMessageError(
            f"{text[:_SHOWN_MAX]!r} is not a message id: those have {2 * sizes[0]} or"
            f" {2 * sizes[1]} hexadecimal digits"
        )
    return raw


def local_month(now_ms: int) -> tuple[int, int]:
    """Return when the month of `now_ms` began, and when the next one begins, in the local time
    zone.
    """
    now = time.localtime(now_ms // 1000)
    begin_s, next_s = (
        time.mktime((now.tm_year, month, 1, 0, 0, 0, 0, 0, -1))
        for month in (now.tm_mon, now.tm_mon + 1)
    )
    return int(begin_s) * 1000, int(next_s) * 1000


def address_without_network(now_ms: int) -> bytes:
    """Return the four bytes that replace the address of a machine without network."""
    return (now_ms & 0xFFFFFFFF).to_bytes(4, "big")


class UniqueIds:
    """Generates unique ids: those of one process differ as long as fewer than 65,536 are made per
    millisecond.
    """

    __slots__ = ("_begin_ms", "_counter", "_head", "_month_of", "_next_month_ms", "_now_ms")

    def __init__(
        self,
        *,
        address: bytes,
        pid: int,
        process_number: int,
        now_ms: Callable[[], int],
        month_of: Callable[[int], tuple[int, int]] = local_month,
    ) -> None:
        self._head = (
            (
                address
                + (pid & 0xFFFF).to_bytes(2, "big")
                + (process_number & 0xFFFFFFFF).to_bytes(4, "big")
            )
            .hex()
            .upper()
        )
        self._now_ms = now_ms
        self._month_of = month_of
        self._begin_ms, self._next_month_ms = month_of(now_ms())
        self._counter = 0

    def next(self) -> str:
        """Return a new id."""
        now_ms = self._now_ms()
        if now_ms >= self._next_month_ms:
            self._begin_ms, self._next_month_ms = self._month_of(now_ms)
        month_ms = now_ms - self._begin_ms
        if -_CLOCK_SET_BACK_MS_MAX < month_ms < 0:
            month_ms = 0
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._head}{month_ms & 0xFFFFFFFF:08X}{counter:04X}"

    def block(self, count: int) -> tuple[str, int]:
        """Reserve several ids at once: return their common prefix and the four-digit number that
        ends the first; the others count on from it.
        """
        first = self.next()
        self._counter = self._counter + count - 1 & 0xFFFF
        return first[:-4], int(first[-4:], 16)
