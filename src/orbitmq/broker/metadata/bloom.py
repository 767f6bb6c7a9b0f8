"""Apache RocketMQ's Bloom filter: the bits of a small map that stand for a consumer group and a
topic.

Bit p lies in byte p // 8, with mask 1 << (p % 8). The positions of a text come from the first half
of its MurmurHash3 x64 128, seed 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

_MASK_32: Final = (1 << 32) - 1
_MASK_64: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = Struct("<QQ")


@dataclass(frozen=True, slots=True)
class Bloom:
    """Maps of `bit_count` bits with `hash_count` bits per text, which need not differ."""

    hash_count: int
    bit_count: int

    @classmethod
    def of(cls, error_percent: int, texts: int) -> Bloom:
        """Return the filter for that many texts with that false-positive rate in percent."""
        hashes = math.ceil(math.log(error_percent / 100, 0.5))
        bits = math.ceil(texts * math.log2(100 / error_percent) * math.log2(math.e))
        return cls(hashes, -(-bits // 8) * 8)

    def positions(self, text: str) -> tuple[int, ...]:
        """Return the bit positions of a text."""
        whole = murmur3_low64(text.encode("utf-8", "replace"))
        low, high = _signed(whole), _signed(whole >> 32)
        found = []
        for number in range(1, self.hash_count + 1):
            mixed = _signed(low + number * high)
            found.append((~mixed if mixed < 0 else mixed) % self.bit_count)
        return tuple(found)

    def map_of(self, positions: Iterable[int]) -> bytes:
        """Return a map with these bits set."""
        bits = bytearray(self.bit_count // 8)
        for each in positions:
            bits[each // 8] |= 1 << each % 8
        return bytes(bits)


def has_bits(bits: bytes, positions: Sequence[int]) -> bool:
    """Return whether all these bits are set in a map."""
    return all(bits[each // 8] >> each % 8 & 1 for each in positions)


def murmur3_low64(data: bytes) -> int:
    """Return the first 8 bytes of MurmurHash3 x64 128 with seed 0, as a little-endian number."""
    whole = len(data) // 16 * 16
    one = other = 0
    for first, second in _BLOCK.iter_unpack(data[:whole]):
        one = (_rotated(one ^ _mixed(first, _C1, 31, _C2), 27) + other) * 5 + 0x52DCE729 & _MASK_64
        other = (
            _rotated(other ^ _mixed(second, _C2, 33, _C1), 31) + one
        ) * 5 + 0x38495AB5 & _MASK_64
    rest = data[whole:]
    one ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    other ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    one, other = one ^ len(data), other ^ len(data)
    one = one + other & _MASK_64
    other = other + one & _MASK_64
    return _finished(one) + _finished(other) & _MASK_64


def _mixed(value: int, factor: int, bits: int, other_factor: int) -> int:
    return _rotated(value * factor & _MASK_64, bits) * other_factor & _MASK_64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK_64


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33


def _signed(value: int) -> int:
    """Return the low 32 bits as a Java int."""
    low = value & _MASK_32
    return low - (low >> 31 << 32)
