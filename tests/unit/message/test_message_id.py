"""Offset ids and unique ids: created and parsed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import hosts
from orbitmq.message.message_id import (
    OffsetId,
    UniqueId,
    UniqueIds,
    address_without_network,
    local_month,
    offset_id,
    parse_offset_id,
    parse_unique_id,
)
from orbitmq.testing.manual_clock import ManualClock

BEGIN_MS, NEXT_MS = 1_000_000_000, 3_000_000_000


def month(now_ms: int) -> tuple[int, int]:
    """A calendar of consecutive short months."""
    length = NEXT_MS - BEGIN_MS
    begin = BEGIN_MS + (now_ms - BEGIN_MS) // length * length
    return begin, begin + length


def ids(clock: ManualClock, address: bytes = b"\xc0\x00\x02\x02") -> UniqueIds:
    return UniqueIds(
        address=address, pid=0x17138, process_number=0x5FFD2B27, now_ms=clock.now_ms, month_of=month
    )


def test_an_offset_id_tells_host_and_offset() -> None:
    assert offset_id(hosts.pack("127.0.0.1", 28911), 0x1234) == "7F000001000070EF0000000000001234"
    assert parse_offset_id("7f000001000070ef0000000000001234") == (
        hosts.pack("127.0.0.1", 28911),
        0x1234,
    )
    v6 = OffsetId(hosts.pack("::1", 10911), 1 << 40)
    assert len(str(v6)) == 56
    assert parse_offset_id(str(v6)) == v6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "x" * 32,
        "7F000001000070EF00000000000012340",
        "7F000001 000070EF 0000000000001234",
        "0" * 40,
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessageError, match="32 or 56 hexadecimal digits"):
        parse_offset_id(text)
    with pytest.raises(InvalidMessageError, match="32 or 56 hexadecimal digits"):
        parse_unique_id(text)


def test_a_unique_id_has_address_process_time_and_counter() -> None:
    clock = ManualClock(BEGIN_MS + 0x4D2BBF)
    made = ids(clock)
    assert made.next() == "C000020271385FFD2B27004D2BBF0000"
    clock.advance_ms(1)
    second = made.next()
    assert second == "C000020271385FFD2B27004D2BC00001"
    parts = parse_unique_id(second)
    assert parts == UniqueId(b"\xc0\x00\x02\x02", 0x7138, 0x5FFD2B27, 0x4D2BC0, 1)
    assert str(parts) == second
    assert parts.created_ms(clock.now_ms() + 1, month) == clock.now_ms()


def test_a_unique_id_with_an_ipv6_address_is_longer() -> None:
    made = ids(ManualClock(BEGIN_MS), bytes(range(16))).next()
    assert len(made) == 56
    assert parse_unique_id(made).address == bytes(range(16))


def test_the_counter_wraps() -> None:
    made = ids(ManualClock(BEGIN_MS))
    given = {made.next() for _ in range(65_536)}
    assert len(given) == 65_536
    assert made.next() in given


def test_the_time_begins_again_with_the_next_month() -> None:
    clock = ManualClock(NEXT_MS - 1)
    made = ids(clock)
    assert parse_unique_id(made.next()).month_ms == NEXT_MS - 1 - BEGIN_MS
    clock.advance_ms(3)
    assert parse_unique_id(made.next()).month_ms == 2


def test_a_clock_set_back_a_little_says_that_the_month_has_just_begun() -> None:
    clock = ManualClock(BEGIN_MS)
    made = ids(clock)
    for back_ms, expected in ((1, 0), (999_999, 0), (1_000_000, 0x100000000 - 1_000_000)):
        clock.set_wall_ms(BEGIN_MS - back_ms)
        assert parse_unique_id(made.next()).month_ms == expected


def test_an_id_of_a_time_that_is_still_to_come_is_of_the_month_before() -> None:
    parts = UniqueId(bytes(4), 1, 1, 500, 0)
    assert parts.created_ms(BEGIN_MS + 501, month) == BEGIN_MS + 500
    assert parts.created_ms(BEGIN_MS + 500, month) == BEGIN_MS + 500 - (NEXT_MS - BEGIN_MS)


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_month_begins_at_midnight_where_the_process_lives() -> None:
    march, april, may = (
        1_772_319_600_000,
        1_774_994_400_000,
        1_777_586_400_000,
    )  # 2026: at +1 h, +2 h, +2 h
    assert local_month(march) == (march, april)
    assert local_month(april - 1) == (march, april)
    assert local_month(april) == (april, may)
    december, january = 1_796_079_600_000, 1_798_758_000_000
    assert local_month(january - 1) == (december, january)


def test_without_a_network_the_time_stands_for_the_address() -> None:
    assert address_without_network(0x1_2345_6789) == bytes.fromhex("23456789")


def test_hosts_are_bytes_and_texts() -> None:
    assert hosts.pack("192.0.2.7", 80) == bytes((192, 0, 2, 7, 0, 0, 0, 80))
    assert hosts.text_of(hosts.pack("192.0.2.7", 80)) == "192.0.2.7:80"
    assert hosts.text_of(hosts.pack("2001:db8::7", 80)) == "[2001:db8::7]:80"
    assert hosts.address_of(hosts.pack("2001:db8::7", 80)) == ("2001:db8::7", 80)
    with pytest.raises(ValueError, match="localhost"):
        hosts.pack("localhost", 80)
