"""The bits of a message's system flag (SYSFLAG).

Invariant: the record writer derives the two host bits from the hosts themselves, so they are always
consistent.
"""

from __future__ import annotations

from enum import IntEnum

from orbitmq.common.errors import CorruptRecordError

COMPRESSED = 0x001
MULTI_TAGS = 0x002
BORN_HOST_V6 = 0x010
STORE_HOST_V6 = 0x020
NEED_UNWRAP = 0x040
INNER_BATCH = 0x080

_TRANSACTION_MASK = 0x00C
_COMPRESSION_MASK = 0x700


class TransactionType(IntEnum):
    """The role of a message in a transaction; the value is its bits in the flag."""

    NONE = 0x000
    PREPARED = 0x004
    COMMIT = 0x008
    ROLLBACK = 0x00C


class CompressionType(IntEnum):
    """How a body is compressed; the value is its bits in the flag. Old clients set none of them:
    zlib.
    """

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def transaction_type(sys_flag: int) -> TransactionType:
    """Return the transaction type in the flag."""
    return TransactionType(sys_flag & _TRANSACTION_MASK)


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    """Return the flag with its transaction type replaced."""
    return sys_flag & ~_TRANSACTION_MASK | kind


def takes_queue_offset(sys_flag: int) -> bool:
    """Return whether a record with this flag gets the next offset of its queue; prepared and rolled
    back ones have offset 0.
    """
    return not sys_flag & TransactionType.PREPARED


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return how the body is compressed, None if it is not; raise CorruptRecordError for an
    undefined type.
    """
    if not sys_flag & COMPRESSED:
        return None
    bits = sys_flag & _COMPRESSION_MASK
    if bits > CompressionType.ZLIB:
        raise CorruptRecordError(
            f"system flag {sys_flag:#x} names compression {bits:#x}: known are 0x100 LZ4, 0x200"
            " zstd, 0x300 and 0 zlib"
        )
    return CompressionType(bits) if bits else CompressionType.ZLIB


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """Return the flag of a body compressed in this way."""
    return sys_flag & ~_COMPRESSION_MASK | COMPRESSED | kind


def born_host_size(sys_flag: int) -> int:
    """Return the size of the born host in a record, in bytes."""
    return 20 if sys_flag & BORN_HOST_V6 else 8


def store_host_size(sys_flag: int) -> int:
    """Return the size of the store host in a record, in bytes."""
    return 20 if sys_flag & STORE_HOST_V6 else 8
