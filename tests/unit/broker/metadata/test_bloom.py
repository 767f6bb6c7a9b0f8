"""The Bloom filter, with what the original's `BloomFilter` says."""

from __future__ import annotations

import pytest

from orbitmq.broker.metadata.bloom import Bloom, has_bits

LONG = "CID_long_group_name_with_many_characters#TopicOfTheSameKind0123456789"


@pytest.mark.parametrize(
    ("percent", "texts", "hashes", "bits"),
    [
        (20, 32, 3, 112),
        (1, 32, 7, 312),
        (10, 100, 4, 480),
        (50, 1, 1, 8),
        (99, 7, 1, 8),
        (20, 1000, 3, 3352),
        (5, 64, 5, 400),
    ],
)
def test_its_size_follows_from_how_much_it_may_err(
    percent: int, texts: int, hashes: int, bits: int
) -> None:
    assert Bloom.of(percent, texts) == Bloom(hashes, bits)


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("g#T", (90, 68, 28)), ("group#topic", (79, 21, 21)), ("", (0, 0, 0)), ("a", (94, 99, 7)), ("0123456789abcdef", (11, 47, 60)),
        ("0123456789abcdefg", (27, 71, 85)), ("größe#日本語 𝄞", (59, 51, 43)), (LONG, (19, 55, 13)),
    ],
)  # fmt: skip
def test_the_bits_of_a_text_are_those_of_the_original(
    text: str, positions: tuple[int, ...]
) -> None:
    assert Bloom.of(20, 32).positions(text) == positions


def test_more_bits_of_a_text() -> None:
    assert Bloom.of(1, 32).positions("g#T") == (186, 268, 156, 13, 129, 295, 159)
    assert Bloom.of(20, 1000).positions(LONG) == (3259, 359, 2141)


def test_bits_lie_in_their_bytes_from_the_lowest_on() -> None:
    bits = Bloom(3, 16).map_of([0, 9, 15])
    assert bits == bytes([0b1, 0b10000010])
    assert has_bits(bits, (0, 9, 15, 9))
    assert not has_bits(bits, (0, 1))
