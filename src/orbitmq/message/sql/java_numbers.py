"""Parses texts as numbers the way Java does: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`;
raises ValueError where those refuse.

Python's own `int` and `float` accept more (underscores, `inf`) or less (`1f`, hexadecimal doubles).
Doubles are ordered as by `Double.compareTo`: -0.0 is below 0.0, NaN equals itself and is above
everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
PLAIN_DIGITS_MAX: Final = (
    9  # up to this many digits, without a sign, every type reads the same integer: `int` does
)
_INTEGER: Final = re.compile(r"[+-]?\d+")  # digits of any script, as in Java
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED: Final = re.compile(r"([+-]?)(NaN|Infinity)")
_SPACES: Final = "".join(map(chr, range(0x21)))  # what Java trims
_INTEGER_SIZE_MAX: Final = 20  # characters of the longest 64-bit integer, including its sign
_SHORT_MAX: Final = 100  # characters of a text that is parsed uncached, and shown whole in errors
_LONG_READ_MAX: Final = 8  # longer texts whose numbers are cached
_ZEROS: Final = "".join(
    zero for zero in map(chr, range(0x10000)) if zero.isdecimal() and int(zero) == 0
)
_BEYOND_BMP: Final = "\U00010000"


def int_of(text: str) -> int:
    """Parse a 32-bit integer."""
    return (
        _integer(text, INT_MAX)
        if len(text) <= _SHORT_MAX
        else int(_of_long(_integer, text, INT_MAX))
    )


def long_of(text: str) -> int:
    """Parse a 64-bit integer."""
    return (
        _integer(text, LONG_MAX)
        if len(text) <= _SHORT_MAX
        else int(_of_long(_integer, text, LONG_MAX))
    )


def double_of(text: str) -> float:
    """Parse a double."""
    return _double(text) if len(text) <= _SHORT_MAX else _of_long(_double, text)


def compare_doubles(left: float, right: float) -> int:
    """Return a negative number, 0 or a positive number."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0 if left else int(math.copysign(1, left) - math.copysign(1, right))
    return math.isnan(left) - math.isnan(right)


def _integer(text: str, most: int) -> int:
    is_plain = text.isascii() and text.isdigit()  # as nearly all are
    if not is_plain and _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{_shown(text)} is not an integer")
    if len(text) > _INTEGER_SIZE_MAX:
        sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
        text = sign + (digits.lstrip(_ZEROS) or "0")
    if not is_plain and max(text[:_INTEGER_SIZE_MAX]) >= _BEYOND_BMP:
        raise ValueError(f"{_shown(text)} is not an integer")
    value = int(text) if len(text) <= _INTEGER_SIZE_MAX else most + 1
    if not -most - 1 <= value <= most:
        raise ValueError(f"{_shown(text)} is an integer of more than {most.bit_length() + 1} bits")
    return value


def _double(text: str) -> float:
    trimmed = text.strip(_SPACES)
    if (found := _DECIMAL.fullmatch(trimmed)) is not None:
        return float(found[1])
    if (found := _NAMED.fullmatch(trimmed)) is not None:
        value = math.nan if found[2] == "NaN" else math.inf
        return -value if found[1] == "-" else value
    if (found := _HEXADECIMAL.fullmatch(trimmed)) is not None:
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if found[1].startswith("-") else math.inf
    raise ValueError(f"{_shown(text)} is not a number")


def _of_long(read: Callable[..., float], text: str, *limits: int) -> float:
    found = _result(read, text, *limits)
    if isinstance(found, str):
        raise ValueError(found)
    return found


@lru_cache(_LONG_READ_MAX)
def _result(read: Callable[..., float], text: str, *limits: int) -> float | str:
    """Return the number, or why it is invalid; cached, since an expression may compare one long
    text with a thousand numbers.
    """
    try:
        return read(text, *limits)
    except ValueError as problem:
        return str(problem)


def _shown(text: str) -> str:
    return (
        repr(text)
        if len(text) <= _SHORT_MAX
        else f"{text[:_SHORT_MAX]!r}, of {len(text)} characters,"
    )
