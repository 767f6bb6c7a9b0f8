# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: writes a whole frame without general JSON encoding.

Its executable specifications are `header_json.encode` and `header_binary.encode`: both yield the
same bytes. For text that cannot be UTF-8 (a lone surrogate) it raises UnicodeEncodeError, and the
general encoder decides what to write.
"""

import cython

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol.codes import LanguageCode

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import (
        address,
        copy,
        put16,
        put32,
        text_bytes,
        utf8,
        utf8_size,
    )
    from cython.cimports.orbitmq.protocol.command import RemotingCommand
else:
    from orbitmq.common.mem import address, copy, put16, put32, text_bytes, utf8, utf8_size
    from orbitmq.protocol.command import RemotingCommand

LANGUAGES = cython.declare(list, [language.name.encode() for language in LanguageCode])
KEY_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF)
HEX = cython.declare(bytes, b"0123456789abcdef")
SHORT_ESCAPES = cython.declare(
    bytes, b"\x00\x00\x00\x00\x00\x00\x00\x00btn\x00fr"
)  # by byte: the letter after the backslash
FIXED_SIZE = cython.declare(cython.Py_ssize_t, 256)  # more than everything except the texts
ESCAPED_SIZE = cython.declare(cython.Py_ssize_t, 6)  # maximum for one byte

_scratch = bytearray(64 * 1024)


def write_frame(command: RemotingCommand) -> bytes:
    """Return the frame of `command`, including its length word."""
    global _scratch
    body = command.body
    body_size: cython.Py_ssize_t = 0 if body is None else len(body)
    kind: cython.int = command.serialize_type
    bound: cython.Py_ssize_t = FIXED_SIZE
    fields = command.ext_fields
    if fields is not None:
        for name, value in fields.items():
            bound += ESCAPED_SIZE * (utf8_size(name) + utf8_size(value)) + 6
    if command.remark is not None:
        bound += ESCAPED_SIZE * utf8_size(command.remark)
    if bound > len(_scratch):
        _scratch = bytearray(2 * bound)
    buffer: bytearray = _scratch
    p: cython.p_uchar = address(buffer)
    at: cython.Py_ssize_t = (
        _put_json_header(p, 8, command) if kind == 0 else _put_binary_header(p, 8, command)
    )
    header_size: cython.Py_ssize_t = at - 8
    if header_size > 0xFFFFFF:
        raise ProtocolError(
            f"a header of {header_size} bytes does not fit a frame: at most {0xFFFFFF}"
        )
    put32(p, 0, 4 + header_size + body_size)
    put32(p, 4, kind << 24 | header_size)
    frame = text_bytes(p, 0, at)
    if len(buffer) > 1024 * 1024:  # do not keep the memory of a large header forever
        _scratch = bytearray(64 * 1024)
    return frame + body if body_size else frame


@cython.cfunc
def _put_json_header(
    p: cython.p_uchar, at: cython.Py_ssize_t, command: RemotingCommand
) -> cython.Py_ssize_t:
    """Write the header as JSON; return the offset after it."""
    fields = command.ext_fields
    first: cython.bint = True
    at = put_number(p, _put(p, at, b'{"code":'), command.code)
    if fields is not None:
        at = _put(p, at, b',"extFields":{')
        for name, value in fields.items():
            if not first:
                at = _put(p, at, b",")
            first = False
            at = _put(p, _put_text(p, at, name), b":")
            at = _put_text(p, at, value)
        at = _put(p, at, b"}")
    at = put_number(p, _put(p, at, b',"flag":'), command.flag)
    at = _put(p, _put(p, at, b',"language":"'), LANGUAGES[command.language])
    at = put_number(p, _put(p, at, b'","opaque":'), command.opaque)
    if command.remark is not None:
        at = _put_text(p, _put(p, at, b',"remark":'), command.remark)
    at = put_number(
        p, _put(p, at, b',"serializeTypeCurrentRPC":"JSON","version":'), command.version
    )
    return _put(p, at, b"}")


@cython.cfunc
def _put_binary_header(
    p: cython.p_uchar, at: cython.Py_ssize_t, command: RemotingCommand
) -> cython.Py_ssize_t:
    """Write the header in the format of `header_binary`; return the offset after it."""
    fields = command.ext_fields
    size: cython.Py_ssize_t
    block: cython.Py_ssize_t
    put16(p, at, command.code)
    p[at + 2] = command.language
    put16(p, at + 3, command.version)
    put32(p, at + 5, command.opaque)
    put32(p, at + 9, command.flag)
    at = _put_sized(p, at + 13, command.remark or "")
    block = at
    at += 4
    if fields is not None:
        for name, value in fields.items():
            size = utf8_size(name)
            if size > KEY_MAX:
                raise ProtocolError(
                    f"header field name of {size} bytes: a binary header takes at most {KEY_MAX}"
                )
            put16(p, at, size)
            copy(p, at + 2, utf8(name), 0, size)
            at = _put_sized(p, at + 2 + size, value)
    put32(p, block, at - block - 4)
    return at


@cython.cfunc
@cython.inline
def _put_sized(p: cython.p_uchar, at: cython.Py_ssize_t, value: str) -> cython.Py_ssize_t:
    """Write the length of `value` and its bytes; return the offset after them."""
    size: cython.Py_ssize_t = utf8_size(value)
    put32(p, at, size)
    copy(p, at + 4, utf8(value), 0, size)
    return at + 4 + size


@cython.cfunc
@cython.inline
def _put(p: cython.p_uchar, at: cython.Py_ssize_t, literal: bytes) -> cython.Py_ssize_t:
    """Write the bytes of `literal`; return the offset after them."""
    size: cython.Py_ssize_t = len(literal)
    copy(p, at, literal, 0, size)
    return at + size


@cython.cfunc
@cython.exceptval(check=False)
def put_number(
    p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Write `value` in decimal; return the offset after it."""
    digits: cython.Py_ssize_t = 1
    rest: cython.longlong
    if value < 0:
        p[at] = 45
        at += 1
        value = -value
    rest = value
    while rest >= 10:
        rest //= 10
        digits += 1
    end: cython.Py_ssize_t = at + digits
    at = end
    while digits:
        at -= 1
        p[at] = 48 + value % 10
        value //= 10
        digits -= 1
    return end


@cython.cfunc
def _put_text(p: cython.p_uchar, at: cython.Py_ssize_t, value: str) -> cython.Py_ssize_t:
    """Write `value` as a JSON text; return the offset after it."""
    size: cython.Py_ssize_t = utf8_size(value)
    source: cython.p_const_uchar = utf8(value)
    begin: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    byte: cython.int
    p[at] = 34
    at += 1
    for i in range(size):
        byte = source[i]
        if byte >= 32 and byte != 34 and byte != 92:
            continue
        copy(p, at, source, begin, i - begin)
        at += i - begin
        begin = i + 1
        p[at] = 92
        if byte >= 32:
            p[at + 1] = byte
            at += 2
        elif byte < 14 and SHORT_ESCAPES[byte]:
            p[at + 1] = SHORT_ESCAPES[byte]
            at += 2
        else:
            copy(p, at + 1, b"u00", 0, 3)
            p[at + 4] = HEX[byte >> 4]
            p[at + 5] = HEX[byte & 15]
            at += 6
    copy(p, at, source, begin, size - begin)
    at += size - begin
    p[at] = 34
    return at + 1
