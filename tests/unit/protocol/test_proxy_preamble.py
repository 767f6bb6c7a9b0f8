"""PROXY preambles: both forms, cut anywhere, and look-alikes."""

from __future__ import annotations

import socket
import struct

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.proxy_preamble import ProxyPreamble, could_begin, parse

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = bytes([203, 0, 113, 7, 192, 0, 2, 2]) + struct.pack(">HH", 56324, 9876)
V6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 1, 65535)
)


def v2(content: bytes, *, first: int = 0x21, family: int = 0x11) -> bytes:
    return SIGNATURE + bytes([first, family]) + struct.pack(">H", len(content)) + content


GOOD = {
    b"PROXY TCP4 203.0.113.7 192.0.2.2 56324 9876\r\n": ("203.0.113.7:56324", "192.0.2.2:9876", {}),
    b"PROXY TCP6 2001:db8::7 2001:db8::1 1 65535\r\n": (
        "[2001:db8::7]:1",
        "[2001:db8::1]:65535",
        {},
    ),
    b"PROXY UNKNOWN\r\n": (None, None, {}),
    b"PROXY UNKNOWN ff:ff::1 ff:ff::2 1 2\r\n": (None, None, {}),
    v2(V4): ("203.0.113.7:56324", "192.0.2.2:9876", {}),
    v2(V6, family=0x21): ("[2001:db8::7]:1", "[2001:db8::1]:65535", {}),
    v2(b"", first=0x20, family=0): (None, None, {}),
    v2(V4, first=0x20): (None, None, {}),
    v2(bytes(216), family=0x31): (None, None, {}),
    v2(V4 + b"\xe0\x00\x04zone\xe1\x00\x02\xff\xfe\x04\x00\x00"): (
        "203.0.113.7:56324",
        "192.0.2.2:9876",
        {0xE0: "zone", 4: ""},
    ),
    v2(V4 + b"\xe0\x00\x09cut"): ("203.0.113.7:56324", "192.0.2.2:9876", {0xE0: "cut"}),
}


@pytest.mark.parametrize("data", GOOD)
def test_a_preamble_is_read_to_its_end_and_no_further(data: bytes) -> None:
    source, destination, tlvs = GOOD[data]
    expected = ProxyPreamble(length=len(data), source=source, destination=destination, tlvs=tlvs)
    for behind in (b"", b"\x00\x00\x00\x10", b"\r\n", data):
        assert parse(data + behind) == expected
    for cut in range(len(data)):
        assert parse(data[:cut]) is None
        assert could_begin(data[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 x 2\r\n",
        b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
        b"PROXY TCP4 \xff.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY " + b"a" * 101,
        v2(V4, first=0x11),
        v2(V4, first=0x31),
        v2(V4[:-1]),
        v2(V4, family=0x21),
        SIGNATURE + b"\x21\x11\x10\x01",
    ],
)
def test_what_begins_like_a_preamble_and_is_none_closes_the_connection(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="PROXY"):
        parse(data)


def test_a_frame_a_tls_hello_and_other_protocols_are_no_preambles() -> None:
    for data in (
        b"\x00",
        b"\x00\x00\x00\x10",
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n",
        b"PROXIMITY",
        b"\r\n\r\n\x00\r\nQUIX",
    ):
        assert not could_begin(data)
        assert parse(data) is None
