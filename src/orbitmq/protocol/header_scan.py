# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: reads the JSON header that ordinary clients send, without general JSON parsing.

It knows one shape: a flat object of numbers and strings with `extFields` as the only nested object.
Anything else (arrays, further objects, escapes in names, odd numbers) is left to `header_json`, the
executable specification: where `scan` returns a command, `header_json.decode_general` returns an
equal one.
"""

import json
from typing import Any

import cython

from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import SerializeType

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, find, same, text
    from cython.cimports.orbitmq.protocol.command import RemotingCommand
else:
    from orbitmq.common.mem import address, find, same, text
    from orbitmq.protocol.command import RemotingCommand

QUOTE = cython.declare(cython.int, 34)
COMMA = cython.declare(cython.int, 44)
COLON = cython.declare(cython.int, 58)
BACKSLASH = cython.declare(cython.int, 92)
OPEN = cython.declare(cython.int, 123)
CLOSE = cython.declare(cython.int, 125)

LANGUAGES: dict[str, LanguageCode] = {language.name: language for language in LanguageCode}
JSON = SerializeType.JSON
OTHER = LanguageCode.OTHER


def scan(
    buffer: bytes | bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> RemotingCommand | None:
    """Decode the command, without its body, whose JSON header is buffer[start:end]. Returns None if
    the general decoder must read it.
    """
    try:
        return _scan(buffer, start, end)
    except ValueError:  # an escape that only fastjson knows, or invalid UTF-8
        return None


@cython.cfunc
def _scan(
    buffer: bytes | bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> RemotingCommand | None:
    p: cython.p_const_uchar = address(buffer)
    at: cython.Py_ssize_t = start
    key: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value: cython.Py_ssize_t
    value_end: cython.Py_ssize_t
    byte: cython.int
    number: cython.longlong
    escaped: cython.bint
    inside: cython.bint = False
    need_comma: cython.bint = False
    code: cython.longlong = 0
    version: cython.longlong = 0
    opaque: cython.longlong = 0
    flag: cython.longlong = 0
    fields: dict[str, str] | None = None
    remark: str | None = None
    language: Any = OTHER
    if at >= end or p[at] != OPEN:
        return None
    at += 1
    while at < end:
        byte = p[at]
        if byte == COMMA:
            if not need_comma or at + 1 >= end or p[at + 1] != QUOTE:
                return None
            need_comma = False
            at += 1
            continue
        if byte == CLOSE:
            at += 1
            need_comma = True
            if inside:
                inside = False
                continue
            if at != end:
                return None
            command: RemotingCommand = RemotingCommand.__new__(RemotingCommand)
            command.code = code
            command.ext_fields = fields
            command.body = None
            command.remark = remark
            command.opaque = opaque
            command.flag = flag
            command.language = language
            command.version = version
            command.serialize_type = JSON
            return command
        if byte != QUOTE or need_comma:
            return None
        key = at + 1
        at = find(p, key, end, QUOTE)
        key_length = at - key
        at += 1
        if (
            at + 1 >= end
            or p[at] != COLON
            or find(p, key, key + key_length, BACKSLASH) != key + key_length
        ):
            return None
        at += 1
        byte = p[at]
        need_comma = True
        if byte == QUOTE:
            value = at + 1
            escaped = False
            at = value
            while at < end and p[at] != QUOTE:
                if p[at] < 32:
                    return None
                if p[at] == BACKSLASH:
                    escaped = True
                    at += 1
                at += 1
            if at >= end:
                return None
            at += 1
            if inside:
                assert fields is not None
                if escaped:
                    fields[text(p, key, key_length)] = json.loads(
                        text(p, value - 1, at - value + 1)
                    )
                else:
                    fields[text(p, key, key_length)] = text(p, value, at - 1 - value)
            elif key_length == 8 and same(p, key, b"language", 8):
                if escaped:
                    return None
                language = LANGUAGES.get(text(p, value, at - 1 - value), OTHER)
            elif key_length == 6 and same(p, key, b"remark", 6):
                remark = json.loads(text(p, value - 1, at - value + 1))
            elif key_length == 23 and same(p, key, b"serializeTypeCurrentRPC", 23):
                if at - value != 5 or not same(p, value, b"JSON", 4):
                    return None
            else:
                return None
        elif byte == OPEN:
            if inside or fields is not None or key_length != 9 or not same(p, key, b"extFields", 9):
                return None
            fields = {}
            inside = True
            need_comma = False
            at += 1
        else:
            value = at
            number = 0
            if byte == 45:
                at += 1
            value_end = at + 10
            while at < end and at < value_end and 48 <= p[at] <= 57:
                number = number * 10 + (p[at] - 48)
                at += 1
            if (
                inside
                or at >= end
                or (p[at] != COMMA and p[at] != CLOSE)
                or at - value - (byte == 45) < 1
            ):
                return None
            if byte == 45:
                number = -number
            if number > 2147483647 or number < -2147483648 or (p[value] == 48 and at - value > 1):
                return None
            if key_length == 4 and same(p, key, b"code", 4):
                code = number
            elif key_length == 4 and same(p, key, b"flag", 4):
                flag = number
            elif key_length == 6 and same(p, key, b"opaque", 6):
                opaque = number
            elif key_length == 7 and same(p, key, b"version", 7):
                version = number
            else:
                return None
    return None
