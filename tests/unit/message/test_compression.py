"""Bodies compressed and inflated, and refusals."""

from __future__ import annotations

import zlib

import pytest

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.message.compression import deflate, inflate
from orbitmq.message.flags import (
    COMPRESSED,
    CompressionType,
    TransactionType,
    born_host_size,
    compression_type,
    store_host_size,
    takes_queue_offset,
    transaction_type,
    with_compression,
    with_transaction_type,
)

BODY = b"the same words over and over; " * 100


@pytest.mark.parametrize("kind", CompressionType)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(range(256)) * 1000])
def test_a_body_comes_back(kind: CompressionType, body: bytes) -> None:
    assert inflate(deflate(body, kind), kind, len(body)) == body


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_gets_smaller(kind: CompressionType) -> None:
    assert len(deflate(BODY, kind)) < len(BODY) / 10


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_inflates_beyond_the_limit_is_refused(kind: CompressionType) -> None:
    bomb = deflate(bytes(20_000_000), kind)
    with pytest.raises(
        InvalidMessageError,
        match=f"a body of {len(bomb)} bytes of {kind.name} data inflates to more than 1000 bytes",
    ):
        inflate(bomb, kind, 1000)
    with pytest.raises(InvalidMessageError):
        inflate(deflate(b"ab", kind), kind, 1)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_was_cut_is_refused_wherever_it_was_cut(kind: CompressionType) -> None:
    packed = deflate(BODY, kind)
    for cut in range(len(packed)):
        with pytest.raises(CorruptRecordError, match=kind.name):
            inflate(packed[:cut], kind, len(BODY))


@pytest.mark.parametrize("kind", CompressionType)
def test_what_is_not_compressed_is_refused(kind: CompressionType) -> None:
    with pytest.raises(CorruptRecordError, match=f"{len(BODY)} bytes is not {kind.name} data"):
        inflate(BODY, kind, 1 << 20)


def test_the_zlib_level_is_that_of_the_original() -> None:
    assert deflate(BODY, CompressionType.ZLIB) == zlib.compress(BODY, 5)


def test_the_flag_tells_the_type_and_old_clients_mean_zlib() -> None:
    assert compression_type(0x300) is None
    assert compression_type(COMPRESSED) is CompressionType.ZLIB
    for kind in CompressionType:
        assert compression_type(with_compression(0x708, kind)) is kind
        assert with_compression(0x708, kind) & 0x0FF == 0x009
    with pytest.raises(CorruptRecordError, match="0x500"):
        compression_type(0x501)


def test_the_flag_tells_the_transaction_type_and_who_takes_a_queue_offset() -> None:
    for kind in TransactionType:
        flag = with_transaction_type(0xFFF, kind)
        assert (transaction_type(flag), flag & ~0xC) == (kind, 0xFF3)
    takers = [kind for kind in TransactionType if takes_queue_offset(kind)]
    assert takers == [TransactionType.NONE, TransactionType.COMMIT]


def test_the_flag_tells_the_sizes_of_the_hosts() -> None:
    assert [born_host_size(flag) for flag in (0, 0x10, 0x20)] == [8, 20, 8]
    assert [store_host_size(flag) for flag in (0, 0x10, 0x20)] == [8, 8, 20]
