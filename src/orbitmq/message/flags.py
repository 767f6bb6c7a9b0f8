"""The SYSFLAG of a message: what its bits mean.

Invariant: whoever writes a record sets the two host bits from the hosts themselves, so that they cannot lie.
"""

from __future__ import annotations

from enum import IntEnum

from orbitmq.common.errors import CorruptRecord

COMPRESSED = 0x001
MULTI_TAGS = 0x002
BORN_HOST_V6 = 0x010
STORE_HOST_V6 = 0x020
NEED_UNWRAP = 0x040
INNER_BATCH = 0x080

_TRANSACTION_MASK = 0x00C
_COMPRESSION_MASK = 0x700


class TransactionType(IntEnum):
    """What a message is to a transaction; the number is its bits."""

    NONE = 0x000
    PREPARED = 0x004
    COMMIT = 0x008
    ROLLBACK = 0x00C


class CompressionType(IntEnum):
    """How a body is compressed; the number is its bits. Bodies of old clients have none of them set: zlib."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def transaction_type(sys_flag: int) -> TransactionType:
    """Which of the four transaction types the flag says."""
    return TransactionType(sys_flag & _TRANSACTION_MASK)


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    """The flag with that transaction type in place of its own."""
    return sys_flag & ~_TRANSACTION_MASK | kind


def takes_queue_offset(sys_flag: int) -> bool:
    """Whether a record of this flag gets the next offset of its queue; prepared and rolled back ones have offset 0."""
    return not sys_flag & TransactionType.PREPARED


def compression_type(sys_flag: int) -> CompressionType | None:
    """How the body is compressed, None when it is not; CorruptRecord for a type that nobody defined."""
    if not sys_flag & COMPRESSED:
        return None
    bits = sys_flag & _COMPRESSION_MASK
    if bits > CompressionType.ZLIB:
        raise CorruptRecord(f"system flag {sys_flag:#x} names compression {bits:#x}: known are 0x100 LZ4, 0x200 zstd, 0x300 and 0 zlib")
    return CompressionType(bits) if bits else CompressionType.ZLIB


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """The flag of a body compressed that way."""
    return sys_flag & ~_COMPRESSION_MASK | COMPRESSED | kind


def born_host_size(sys_flag: int) -> int:
    """How many bytes the born host takes in a record."""
    return 20 if sys_flag & BORN_HOST_V6 else 8


def store_host_size(sys_flag: int) -> int:
    """How many bytes the store host takes in a record."""
    return 20 if sys_flag & STORE_HOST_V6 else 8
