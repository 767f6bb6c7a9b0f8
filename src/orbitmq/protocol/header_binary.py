# cython: boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: the ROCKETMQ binary header (serialize type 1).

```
2  code (its low 16 bits)   1  language   2  version   4  opaque   4  flag
4  remark length, remark
4  length of the map block, then per field: 2 key length, key, 4 value length, value
```

Lengths are signed; a length that exceeds the header is a ProtocolError. An empty remark reads as
none. The code has 16 bits, so codes above 32767 (the POP family) cannot be sent this way.
"""

import cython

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import SerializeType

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, get32, text
    from cython.cimports.orbitmq.protocol.command import RemotingCommand
else:
    from orbitmq.common.mem import address, get32, text
    from orbitmq.protocol.command import RemotingCommand

FIXED_SIZE = cython.declare(cython.Py_ssize_t, 17)  # up to and including the remark length
KEY_MAX = 0x7FFF
LANGUAGES = {int(language): language for language in LanguageCode}
OTHER = LanguageCode.OTHER
ROCKETMQ = SerializeType.ROCKETMQ


def encode(command: RemotingCommand) -> bytes:
    """Return the header bytes of `command`."""
    remark = (command.remark or "").encode("utf-8", "replace")
    block = bytearray()
    for name, value in (command.ext_fields or {}).items():
        key, content = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key) > KEY_MAX:
            raise ProtocolError(
                f"header field name of {len(key)} bytes: a binary header takes at most {KEY_MAX}"
            )
        block += len(key).to_bytes(2, "big") + key + len(content).to_bytes(4, "big") + content
    return b"".join(
        (
            (command.code & 0xFFFF).to_bytes(2, "big"),
            bytes((command.language,)),
            (command.version & 0xFFFF).to_bytes(2, "big"),
            command.opaque.to_bytes(4, "big", signed=True),
            command.flag.to_bytes(4, "big", signed=True),
            len(remark).to_bytes(4, "big"),
            remark,
            len(block).to_bytes(4, "big"),
            block,
        )
    )


def decode(
    buffer: bytes | bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> RemotingCommand:
    """Decode the command, without its body, whose binary header is buffer[start:end]."""
    p: cython.p_const_uchar = address(buffer)
    at: cython.Py_ssize_t = start + FIXED_SIZE
    key: cython.Py_ssize_t
    key_length: cython.longlong
    length: cython.longlong
    fields: dict[str, str] | None = None
    remark: str | None = None
    if end - start < FIXED_SIZE:
        raise ProtocolError(
            f"a binary header of {end - start} bytes: the shortest has {FIXED_SIZE + 4}"
        )
    try:
        length = get32(p, at - 4)
        if length > end - at - 4:
            raise ProtocolError(
                f"the remark of a binary header says {length} bytes, {end - at} are left"
            )
        if length:
            remark = text(p, at, length)
            at += length
        length = get32(p, at)
        at += 4
        if length > end - at:
            raise ProtocolError(
                f"the field block of a binary header says {length} bytes, {end - at} are left"
            )
        if length:
            fields = {}
            end = at + length
        while at < end and fields is not None:
            if end - at < 2:
                raise ProtocolError("a binary header ends within a field")
            key_length = p[at] << 8 | p[at + 1]
            key = at + 2
            at = key + key_length + 4
            if at > end:
                raise ProtocolError(
                    f"a field name of a binary header says {key_length} bytes, {end - key - 4} are"
                    " left"
                )
            length = get32(p, at - 4)
            if length > end - at:
                raise ProtocolError(
                    f"a field of a binary header says {length} bytes, {end - at} are left"
                )
            fields[text(p, key, key_length)] = text(p, at, length)
            at += length
    except UnicodeDecodeError as problem:
        raise ProtocolError(
            f"a binary header of {end - start} bytes is not UTF-8: {problem}"
        ) from problem
    command: RemotingCommand = RemotingCommand.__new__(RemotingCommand)
    command.code = _short(p[start] << 8 | p[start + 1])
    command.language = LANGUAGES.get(p[start + 2], OTHER)
    command.version = _short(p[start + 3] << 8 | p[start + 4])
    command.opaque = _int(get32(p, start + 5))
    command.flag = _int(get32(p, start + 9))
    command.remark = remark
    command.ext_fields = fields
    command.body = None
    command.serialize_type = ROCKETMQ
    return command


@cython.cfunc
@cython.inline
def _short(value: cython.int) -> cython.int:
    return value - 0x10000 if value & 0x8000 else value


@cython.cfunc
@cython.inline
def _int(value: cython.longlong) -> cython.int:
    return value - 0x100000000 if value & 0x80000000 else value
