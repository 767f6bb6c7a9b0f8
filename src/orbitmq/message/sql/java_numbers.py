"""Texts as numbers, the way Java reads them: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`; ValueError for what those refuse.

Python's own `int` and `float` take more (underscores, `inf`) or less (`1f`, hexadecimal doubles). Doubles are ordered as by
`Double.compareTo`: -0.0 is below 0.0, NaN equals itself and is above everything.
"""

from __future__ import annotations

import math
import re
from typing import Final

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
PLAIN_DIGITS_MAX: Final = 9  # so many digits, and no sign, are the same integer for all: `int` reads them
_INTEGER: Final = re.compile(r"[+-]?\d+")  # of any script, as in Java
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED: Final = re.compile(r"([+-]?)(NaN|Infinity)")
_SPACES: Final = "".join(map(chr, range(0x21)))  # what Java trims
_BEYOND_BMP: Final = "\U00010000"


def int_of(text: str) -> int:
    """As a 32-bit integer."""
    return _integer(text, INT_MAX)


def long_of(text: str) -> int:
    """As a 64-bit integer."""
    return _integer(text, LONG_MAX)


def double_of(text: str) -> float:
    """As a double."""
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
    raise ValueError(f"{text!r} is no number")


def compare_doubles(left: float, right: float) -> int:
    """Below 0, 0 or above 0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0 if left else int(math.copysign(1, left) - math.copysign(1, right))
    return math.isnan(left) - math.isnan(right)


def _integer(text: str, most: int) -> int:
    is_plain = text.isascii() and text.isdigit()  # as nearly every one is
    if not is_plain and (_INTEGER.fullmatch(text) is None or max(text) >= _BEYOND_BMP):
        raise ValueError(f"{text!r} is no integer")
    value = int(text)  # which refuses, with a ValueError too, what has thousands of digits
    if not -most - 1 <= value <= most:
        raise ValueError(f"{text!r} is an integer of more than {most.bit_length() + 1} bits")
    return value
