"""The JSON header (serialize type 0): read as leniently as real servers do, written as they write.

Members are written in alphabetical order, extFields in insertion order. This module is the
executable specification of the kernels `header_scan`, which handles what ordinary clients send, and
`header_write`.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

from orbitmq import kernels
from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import fastjson, header_scan
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand, SerializeType

_LANGUAGES = {language.name: language for language in LanguageCode}
_SCAN: Callable[[bytes | bytearray, int, int], RemotingCommand | None] | None = (
    header_scan.scan
    if kernels.is_compiled(header_scan.__name__)
    else None  # interpreted, the json module is faster
)


def encode(command: RemotingCommand) -> bytes:
    """Return the header bytes of `command`."""
    fields = command.ext_fields
    if fields is None:
        ext = ""
    else:
        pairs = ",".join(
            [
                f"{encode_basestring(name)}:{encode_basestring(value)}"
                for name, value in fields.items()
            ]
        )
        ext = f'"extFields":{{{pairs}}},'
    remark = "" if command.remark is None else f'"remark":{encode_basestring(command.remark)},'
    return (
        f'{{"code":{command.code},{ext}"flag":{command.flag},"language":"{command.language.name}","opaque":{command.opaque},'
        f'{remark}"serializeTypeCurrentRPC":"{command.serialize_type.name}","version":{command.version}}}'
    ).encode("utf-8", "replace")


def decode(buffer: bytes | bytearray, start: int, end: int) -> RemotingCommand:
    """Decode the command, without its body, whose JSON header is buffer[start:end]."""
    try:
        if _SCAN is not None:
            command = _SCAN(buffer, start, end)
            if command is not None:
                return command
        return decode_general(bytes(buffer[start:end]))
    except (ValueError, RecursionError) as problem:
        raise ProtocolError(
            f"a JSON header of {end - start} bytes cannot be read: {problem}"
        ) from problem


def decode_general(header: bytes) -> RemotingCommand:
    """Decode any header that a real server would read: values of other types, missing and unknown
    members, unknown languages.
    """
    members = fastjson.loads(header)
    if not isinstance(members, dict):
        raise ProtocolError(f"the header is not a JSON object: {header[:80]!r}")
    fields = members.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise ProtocolError(f"extFields is not a JSON object: {header[:80]!r}")
    language = members.get("language")
    return RemotingCommand(
        _integer(members, "code"),
        ext_fields=(
            None
            if fields is None
            else {str(name): as_text(value) for name, value in fields.items() if value is not None}
        ),
        remark=None if members.get("remark") is None else as_text(members["remark"]),
        opaque=_integer(members, "opaque"),
        flag=_integer(members, "flag"),
        language=(
            _LANGUAGES.get(language, LanguageCode.OTHER)
            if isinstance(language, str)
            else LanguageCode.OTHER
        ),
        version=_integer(members, "version"),
        serialize_type=SerializeType.JSON,
    )


def as_text(value: Any) -> str:
    """Return a JSON value as the text of a header field."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return fastjson.dumps(value).decode()


def _integer(members: dict[str, Any], name: str) -> int:
    value = members.get(name, 0)
    try:
        number = int(value or 0)
    except (TypeError, ValueError, OverflowError):
        raise ProtocolError(
            f"header member {name} is not a number: {fastjson.brief(value)}"
        ) from None
    if not -(1 << 31) <= number < 1 << 31:
        raise ProtocolError(
            f"header member {name} is not a 32-bit number: {fastjson.brief(number)}"
        )
    return number
