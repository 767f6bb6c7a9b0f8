"""Bodies compressed and inflated, by the three types that clients use.

zlib streams (RFC 1950), LZ4 frames, zstd frames. Inflating has a limit that the caller names: a few bytes may pretend to be many.
The libraries of LZ4 and zstd are loaded when the first such body is seen.
"""

from __future__ import annotations

import zlib

from orbitmq.common.errors import CorruptRecord, MessageIllegal
from orbitmq.message.flags import CompressionType

LEVEL_DEFAULT = 5


def deflate(body: bytes, kind: CompressionType, level: int = LEVEL_DEFAULT) -> bytes:
    """The body compressed; `level` is 0..9 as zlib counts."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)  # the original's writer knows no levels either
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def inflate(body: bytes, kind: CompressionType, size_max: int) -> bytes:
    """What `deflate` was given; MessageIllegal when it is more than `size_max` bytes, CorruptRecord when it is not whole."""
    try:
        plain, whole = _INFLATERS[kind](body, size_max + 1)
    except (ImportError, MemoryError):  # which say nothing of the body
        raise
    except Exception as problem:  # each library has errors of its own
        raise CorruptRecord(f"a body of {len(body)} bytes is no {kind.name} data: {problem}") from problem
    if len(plain) > size_max:
        raise MessageIllegal(
            f"a body of {len(body)} bytes of {kind.name} data inflates to more than {size_max} bytes: raise the limit to read it"
        )
    if not whole:
        raise CorruptRecord(f"a body of {len(body)} bytes of {kind.name} data ends before its end")
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
    stream = zstandard.ZstdDecompressor().decompressobj()  # has no limit, but says whether the frame was whole
    return stream.decompress(body), stream.eof


_INFLATERS = {CompressionType.ZLIB: _inflate_zlib, CompressionType.LZ4: _inflate_lz4, CompressionType.ZSTD: _inflate_zstd}
