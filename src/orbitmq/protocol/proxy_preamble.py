"""The HAProxy PROXY preamble that a load balancer may send before a connection's first byte: text
(v1) and binary (v2).

Sans-IO: bytes in, the end of the preamble and the addresses out.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from orbitmq.common.errors import ProtocolError

_V1 = b"PROXY "
_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_LENGTH_MAX = 107
_V2_LENGTH_MAX = 16 + 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyPreamble:
    """The peer as the load balancer reports it; the addresses are None for the balancer's own
    connections.
    """

    length: int
    source: str | None = None
    destination: str | None = None
    tlvs: dict[int, str] = field(default_factory=dict)


def could_begin(data: bytes) -> bool:
    """Return whether `data` is, or may become, the start of a preamble."""
    return any(data[: len(mark)] == mark[: len(data)] for mark in (_V1, _V2))


def parse(data: bytes) -> ProxyPreamble | None:
    """Return the preamble at the start of `data`, or None while it is incomplete."""
    if data.startswith(_V1):
        return _parse_text(data)
    if data.startswith(_V2):
        return _parse_binary(data)
    return None


def _parse_text(data: bytes) -> ProxyPreamble | None:
    end = data.find(b"\r\n", 0, _V1_LENGTH_MAX)
    if end < 0:
        if len(data) >= _V1_LENGTH_MAX:
            raise ProtocolError(f"a PROXY line without an end in {_V1_LENGTH_MAX} bytes")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyPreamble(length=end + 2)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProtocolError(f"not a PROXY line: {data[:end]!r}")
    return ProxyPreamble(
        length=end + 2,
        source=_address(words[2], words[4]),
        destination=_address(words[3], words[5]),
    )


def _parse_binary(data: bytes) -> ProxyPreamble | None:
    if len(data) < 16:
        return None
    length = 16 + int.from_bytes(data[14:16], "big")
    if data[12] >> 4 != 2 or length > _V2_LENGTH_MAX:
        raise ProtocolError(
            f"a PROXY preamble of version {data[12] >> 4} and {length} bytes: version 2,"
            f" {_V2_LENGTH_MAX} bytes at most"
        )
    if len(data) < length:
        return None
    size = {1: 4, 2: 16}.get(data[13] >> 4)
    if (
        data[12] & 0xF == 0 or size is None
    ):  # the balancer's own health check, or not an internet address
        return ProxyPreamble(length=length)
    tlvs_at = 16 + 2 * size + 4
    if tlvs_at > length:
        raise ProtocolError(f"a PROXY preamble of {length} bytes is too short for its addresses")
    ports = data[tlvs_at - 4 : tlvs_at]
    return ProxyPreamble(
        length=length,
        source=_join(data[16 : 16 + size], ports[:2]),
        destination=_join(data[16 + size : 16 + 2 * size], ports[2:]),
        tlvs=_tlvs(data[tlvs_at:length]),
    )


def _tlvs(data: bytes) -> dict[int, str]:
    """Return the additional values that are ASCII text; others are ignored."""
    values = {}
    while len(data) >= 3:
        kind, end = data[0], 3 + int.from_bytes(data[1:3], "big")
        if data[3:end].isascii():
            values[kind] = data[3:end].decode("ascii")
        data = data[end:]
    return values


def _join(packed: bytes, port: bytes) -> str:
    return _address(str(ipaddress.ip_address(packed)), str(int.from_bytes(port, "big")))


def _address(host: str, port: str) -> str:
    try:
        parsed = ipaddress.ip_address(host)
        number = int(port)
    except ValueError as problem:
        raise ProtocolError(
            f"a PROXY preamble with the address {host!r} port {port!r}: {problem}"
        ) from None
    if not 0 <= number < 65536:
        raise ProtocolError(f"a PROXY preamble with port {number}")
    return f"[{parsed}]:{number}" if parsed.version == 6 else f"{parsed}:{number}"
