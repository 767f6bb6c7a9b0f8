"""The frame: where one command ends and the next begins.

```
4  length of what follows    4  serialize type (8 bits) and header length (24 bits)    header    body
```
Sans-IO. A frame that cannot be right raises ProtocolError, which closes the connection it came on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import header_binary, header_json
from orbitmq.protocol.command import RemotingCommand, SerializeType

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">iI")
HEADER_LENGTH_MAX = 0xFFFFFF
FRAME_LENGTH_MAX = 16 * 1024 * 1024  # the length word included, as the original counts


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """What one frame may hold, in bytes."""

    frame_length_max: int = FRAME_LENGTH_MAX
    header_length_max: int = HEADER_LENGTH_MAX


def encode(command: RemotingCommand) -> bytes:
    """The whole frame of `command`, its length word included."""
    header = header_json.encode(command) if command.serialize_type is SerializeType.JSON else header_binary.encode(command)
    body = command.body or b""
    length = len(header)
    if length > HEADER_LENGTH_MAX:
        raise ProtocolError(f"a header of {length} bytes does not fit a frame: at most {HEADER_LENGTH_MAX}")
    return _HEAD.pack(4 + length + len(body), command.serialize_type << 24 | length) + header + body


def frame_end(buffer: bytes | bytearray, start: int, end: int, limits: FrameLimits) -> int:
    """Where the frame that begins at `start` ends, or 0 while it is not whole in buffer[start:end]."""
    if end - start < 8:
        if end - start >= 4:
            _check_length(_LENGTH.unpack_from(buffer, start)[0], limits)
        return 0
    length, head = _HEAD.unpack_from(buffer, start)
    _check_length(length, limits)
    header_length = head & HEADER_LENGTH_MAX
    if header_length > length - 4:
        raise ProtocolError(f"the header says {header_length} bytes, its frame has {length - 4} left")
    if header_length > limits.header_length_max:
        raise ProtocolError(f"a header of {header_length} bytes: at most {limits.header_length_max} are taken")
    if head >> 24 > 1:
        raise ProtocolError(f"serialize type {head >> 24} is none of 0 (JSON), 1 (ROCKETMQ)")
    frame_end = start + 4 + length
    return frame_end if frame_end <= end else 0


def _check_length(length: int, limits: FrameLimits) -> None:
    if length < 4:
        raise ProtocolError(f"a frame of length {length}: the shortest has 4")
    if length + 4 > limits.frame_length_max:
        raise ProtocolError(f"a frame of {length + 4} bytes: at most {limits.frame_length_max} are taken")


def decode(buffer: bytes | bytearray, start: int, end: int) -> RemotingCommand:
    """The command of the whole frame buffer[start:end], whose bounds `frame_end` has checked."""
    head = _HEAD.unpack_from(buffer, start)[1]
    body = start + 8 + (head & HEADER_LENGTH_MAX)
    read = header_binary.decode if head >> 24 else header_json.decode
    command = read(buffer, start + 8, body)
    if body < end:
        command.body = bytes(buffer[body:end])
    return command


def decode_one(frame: bytes) -> RemotingCommand:
    """The command of exactly one frame, its length word included."""
    if frame_end(frame, 0, len(frame), FrameLimits()) != len(frame):
        raise ProtocolError(f"{len(frame)} bytes are not exactly one frame")
    return decode(frame, 0, len(frame))
