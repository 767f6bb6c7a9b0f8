"""Hosts as records store them: 4 or 16 address bytes, then the port in 4 bytes.

Addresses only: the code that opens sockets resolves names.
"""

from __future__ import annotations

import ipaddress

V4_SIZE = 8
V6_SIZE = 20


def pack(address: str, port: int) -> bytes:
    """Return the bytes of an IPv4 or IPv6 address and a port; raise ValueError if `address` is
    neither.
    """
    return ipaddress.ip_address(address).packed + port.to_bytes(4, "big")


def address_of(host: bytes) -> tuple[str, int]:
    """Return the address, as text, and the port."""
    return str(ipaddress.ip_address(host[:-4])), int.from_bytes(host[-4:], "big")


def text_of(host: bytes) -> str:
    """Return `address:port`, an IPv6 address in brackets."""
    address, port = address_of(host)
    return f"[{address}]:{port}" if len(host) == V6_SIZE else f"{address}:{port}"
