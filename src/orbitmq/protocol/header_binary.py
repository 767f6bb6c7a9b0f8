"""The ROCKETMQ binary header (serialize type 1).

```
2  code (its low 16 bits)   1  language   2  version   4  opaque   4  flag
4  remark length, remark    4  length of the map block, then per field: 2 key length, key, 4 value length, value
```
Lengths are signed; a length that leaves the header is a ProtocolError. An empty remark reads as none; the code has 16 bits, so the
codes above 32767 (the POP family) cannot travel this way.
"""

from __future__ import annotations

import struct

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand, SerializeType

_FIXED = struct.Struct(">hbhiii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LANGUAGES = {int(language): language for language in LanguageCode}
_KEY_MAX = 0x7FFF


def encode(command: RemotingCommand) -> bytes:
    """The header bytes of `command`."""
    remark = (command.remark or "").encode("utf-8", "replace")
    block = bytearray()
    for name, value in (command.ext_fields or {}).items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key) > _KEY_MAX:
            raise ProtocolError(f"header field name of {len(key)} bytes: a binary header takes at most {_KEY_MAX}")
        block += _SHORT.pack(len(key)) + key + _INT.pack(len(text)) + text
    code = (command.code & 0xFFFF) - ((command.code & 0x8000) << 1)
    version = (command.version & 0xFFFF) - ((command.version & 0x8000) << 1)
    fixed = _FIXED.pack(code, command.language, version, command.opaque, command.flag, len(remark))
    return fixed + remark + _INT.pack(len(block)) + bytes(block)


def decode(buffer: bytes | bytearray, start: int, end: int) -> RemotingCommand:
    """The command, without its body, whose binary header is buffer[start:end]."""
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(buffer, start)
        at = start + _FIXED.size
        remark, at = _text(buffer, at, remark_length, end)
        (block_length,) = _INT.unpack_from(buffer, at)
        at += 4
        if not 0 <= block_length <= end - at:
            raise ProtocolError(f"the field block of a binary header says {block_length} bytes, {end - at} are there")
        end = at + block_length
        fields: dict[str, str] | None = {} if block_length else None
        while at < end:
            (key_length,) = _SHORT.unpack_from(buffer, at)
            key, at = _text(buffer, at + 2, key_length, end)
            (value_length,) = _INT.unpack_from(buffer, at)
            value, at = _text(buffer, at + 4, value_length, end)
            assert fields is not None
            fields[key] = value
    except (struct.error, UnicodeDecodeError) as problem:
        raise ProtocolError(f"a binary header of {end - start} bytes cannot be read: {problem}") from problem
    return RemotingCommand(
        code,
        ext_fields=fields,
        remark=remark or None,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGES.get(language, LanguageCode.OTHER),
        version=version,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _text(buffer: bytes | bytearray, at: int, length: int, end: int) -> tuple[str, int]:
    if not 0 <= length <= end - at:
        raise ProtocolError(f"a text of a binary header says {length} bytes, {end - at} are left")
    return str(buffer[at : at + length], "utf-8"), at + length
