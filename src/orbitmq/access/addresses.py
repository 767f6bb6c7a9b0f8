"""Address rules: the patterns of white lists in 4.9 style, and the networks of 5.x policies. Pure.

Patterns, as in Apache: `*`; one address; several, `10.0.0.1,10.0.0.2`; several that differ in their
last part, `10.0.0.{1,2}` or `2001:db8::{1,a}`; ranges and `*` in parts after the first,
`10.0.1-5.*`, of IPv6 in the last two only, `2001:db8::1-ff:*`. A part after a range must match too,
which Apache ignores.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

Matches = Callable[[str], bool]

_EVERYONE: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})


def host_of(remote_address: str) -> str:
    """Return the address of a peer without its port."""
    host, _, port = remote_address.rpartition(":")
    return host.strip("[]") if port.isdecimal() and host else remote_address


def pattern(text: str | None) -> Matches:
    """Return the matcher of a white list's pattern; a blank one matches nothing. ValueError if it
    is invalid.
    """
    wanted = (text or "").strip()
    if not wanted:
        return lambda _host: False
    if wanted in _EVERYONE:
        return lambda _host: True
    if wanted.endswith("}"):
        head, brace, tail = wanted[:-1].partition("{")
        if not brace or head[-1:] not in (".", ":"):
            raise ValueError(
                f"{wanted!r} is not an address pattern; braces hold the last parts of addresses, as"
                " in 192.168.0.{1,2}"
            )
        return _one_of([head + part.strip() for part in tail.split(",")])
    if "," in wanted:
        return _one_of([each.strip() for each in wanted.split(",")])
    if "*" in wanted or "-" in wanted:
        return _v6_range(wanted) if ":" in wanted else _v4_range(wanted)
    return _one_of([wanted])


def network(text: str) -> Matches:
    """Return the matcher of a policy's source: an address, or a network such as 10.0.0.0/8.
    ValueError if it is neither.
    """
    try:
        found = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an address nor a network such as 10.0.0.0/8"
        ) from None

    def matches(host: str) -> bool:
        address = _address(host)
        return address is not None and address in found

    return matches


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _one_of(texts: list[str]) -> Matches:
    found = {_address(text) for text in texts if text}
    if None in found or not found:
        raise ValueError(
            f"{','.join(texts)!r} is not an address, nor a list of them; write 192.168.0.1 or"
            " 2001:db8::1"
        )
    return lambda host: _address(host) in found


def _v4_range(text: str) -> Matches:
    parts = text.split(".")
    if len(parts) != 4 or not parts[0].strip().isdecimal():
        raise ValueError(
            f"{text!r} is not an address pattern; it has four parts, the first a number, as"
            " in 192.168.1-5.*"
        )
    ranges = [_bounds(part.strip(), 255, 10, text) for part in parts]

    def matches(host: str) -> bool:
        address = _address(host)
        return isinstance(address, ipaddress.IPv4Address) and all(
            low <= byte <= high for byte, (low, high) in zip(address.packed, ranges, strict=True)
        )

    return matches


def _v6_range(text: str) -> Matches:
    parts = text.split(":")
    count = next(
        (
            place
            for place, part in enumerate(reversed(parts))
            if "*" not in part and "-" not in part
        ),
        len(parts),
    )
    if not 1 <= count <= 2:
        raise ValueError(
            f"{text!r} is not an address pattern; only the last two parts may be ranges, as in"
            " 2001:db8::1-ff:*"
        )
    ranges = [_bounds(part, 0xFFFF, 16, text) for part in parts[-count:]]
    head = ":".join([*parts[:-count], *["0"] * count])
    try:
        first = ipaddress.IPv6Address(head).packed[: 16 - 2 * count]
    except ValueError:
        raise ValueError(
            f"{text!r} is not an address pattern; the part before the range is not the start of an"
            " address"
        ) from None

    def matches(host: str) -> bool:
        address = _address(host)
        if not isinstance(address, ipaddress.IPv6Address) or not address.packed.startswith(first):
            return False
        rest = address.packed[len(first) :]
        numbers = [int.from_bytes(rest[place : place + 2]) for place in range(0, len(rest), 2)]
        return all(
            low <= number <= high for number, (low, high) in zip(numbers, ranges, strict=True)
        )

    return matches


def _bounds(part: str, limit: int, base: int, text: str) -> tuple[int, int]:
    if part == "*":
        return 0, limit
    low, _, high = part.partition("-")
    try:
        bounds = int(low, base), int(high or low, base)
    except ValueError:
        bounds = -1, -1
    if not 0 <= bounds[0] <= bounds[1] <= limit:
        raise ValueError(
            f"{text!r} is not an address pattern: {part!r} is neither a number, nor a range such as"
            " 1-5, nor *"
        )
    return bounds
