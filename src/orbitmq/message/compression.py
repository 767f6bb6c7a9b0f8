"""Compression and decompression of message bodies in the three formats that clients use.

zlib streams (RFC 1950), LZ4 frames, zstd frames. Inflating has a caller-supplied limit, since a few
bytes may expand to very many. The LZ4 and zstd libraries are loaded on first use.
"""

from __future__ import annotations

import zlib

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.message.flags import CompressionType

LEVEL_DEFAULT = 5


def deflate(body: bytes, kind: CompressionType, level: int = LEVEL_DEFAULT) -> bytes:
    """Compress the body; `level` is 0..9 as in zlib."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)  # the original's writer has no levels either
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def inflate(body: bytes, kind: CompressionType, size_max: int) -> bytes:
    """Inflate a body that `deflate` compressed; raise InvalidMessageError above `size_max` bytes,
    CorruptRecordError if it is corrupt.
    """
    try:
        plain, whole = _INFLATERS[kind](body, size_max + 1)
    except (ImportError, MemoryError):  # unrelated to the content of the body
        raise
    except Exception as problem:  # each library has its own errors
        raise CorruptRecordError(
            f"a body of {len(body)} bytes is not {kind.name} data: {problem}"
        ) from problem
    if len(plain) > size_max:
        raise InvalidMessageError(
            f"a body of {len(body)} bytes of {kind.name} data inflates to more than {size_max}"
            " bytes: raise the limit to read it"
        )
    if not whole:
        raise CorruptRecordError(
            f"a body of {len(body)} bytes of {kind.name} data ends before its end"
        )
    return plain


def _inflate_zlib(body: bytes, limit: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    return stream.decompress(body, limit), stream.eof


def _inflate_lz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    return stream.decompress(body, limit), stream.eof


def _inflate_zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        plain = reader.read(limit)
    if len(plain) >= limit:
        return plain, False
    stream = (
        zstandard.ZstdDecompressor().decompressobj()
    )  # has no size limit, but reports whether the frame was complete
    return stream.decompress(body), stream.eof


_INFLATERS = {
    CompressionType.ZLIB: _inflate_zlib,
    CompressionType.LZ4: _inflate_lz4,
    CompressionType.ZSTD: _inflate_zstd,
}
