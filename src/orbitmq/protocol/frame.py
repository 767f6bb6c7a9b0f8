# cython: boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: frames, which delimit the commands on a connection.

```
4  length of what follows    4  serialize type (8 bits) and header length (24 bits)    header
body
```

Sans-IO. An invalid frame raises ProtocolError, which closes the connection it came on.
"""

import cython

from orbitmq import kernels
from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import header_binary, header_json, header_write
from orbitmq.protocol.command import SerializeType

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, get32
    from cython.cimports.orbitmq.protocol.command import RemotingCommand
else:
    from orbitmq.common.mem import address, get32
    from orbitmq.protocol.command import RemotingCommand

HEADER_LENGTH_MAX = 0xFFFFFF  # the maximum of 24 bits; servers accept less
FRAME_LENGTH_MAX = 16 * 1024 * 1024  # including the length word, as the original counts

_JSON = SerializeType.JSON
_WRITE = (
    header_write.write_frame if kernels.is_compiled(header_write.__name__) else None
)  # interpreted, the general encoders are faster


@cython.cclass
class FrameLimits:
    """Size limits of one frame, in bytes."""

    frame_length_max: cython.longlong = cython.declare(cython.longlong, visibility="readonly")
    header_length_max: cython.longlong = cython.declare(cython.longlong, visibility="readonly")

    def __init__(
        self,
        *,
        frame_length_max: int = FRAME_LENGTH_MAX,
        header_length_max: int = HEADER_LENGTH_MAX,
    ) -> None:
        self.frame_length_max = frame_length_max
        self.header_length_max = header_length_max


def encode(command: RemotingCommand) -> bytes:
    """Return the whole frame of `command`, including its length word."""
    if _WRITE is not None:
        try:
            return _WRITE(command)
        except UnicodeEncodeError:
            pass  # the general encoder replaces what is not valid text
    header = (
        header_json.encode(command)
        if command.serialize_type is _JSON
        else header_binary.encode(command)
    )
    body = command.body or b""
    length = len(header)
    if length > HEADER_LENGTH_MAX:
        raise ProtocolError(
            f"a header of {length} bytes does not fit a frame: at most {HEADER_LENGTH_MAX}"
        )
    head = (4 + length + len(body)).to_bytes(4, "big") + (
        command.serialize_type << 24 | length
    ).to_bytes(4, "big")
    return head + header + body


def frame_end(
    buffer: bytes | bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t, limits: FrameLimits
) -> cython.Py_ssize_t:
    """Return where the frame that begins at `start` ends, or 0 while it is incomplete in
    buffer[start:end].
    """
    p: cython.p_const_uchar
    length: cython.longlong
    head: cython.longlong
    header_length: cython.longlong
    if end - start < 4:
        return 0
    p = address(buffer)
    length = get32(p, start)
    if length > 0x7FFFFFFF:
        length -= 1 << 32
    if length < 4:
        raise ProtocolError(f"a frame of length {length}: the shortest has 4")
    if length + 4 > limits.frame_length_max:
        raise ProtocolError(
            f"a frame of {length + 4} bytes: at most {limits.frame_length_max} are taken"
        )
    if end - start < 8:
        return 0
    head = get32(p, start + 4)
    header_length = head & 0xFFFFFF
    if header_length > length - 4:
        raise ProtocolError(
            f"the header says {header_length} bytes, its frame has {length - 4} left"
        )
    if header_length > limits.header_length_max:
        raise ProtocolError(
            f"a header of {header_length} bytes: at most {limits.header_length_max} are taken"
        )
    if head >> 24 > 1:
        raise ProtocolError(f"serialize type {head >> 24} is none of 0 (JSON), 1 (ROCKETMQ)")
    return start + 4 + length if length + 4 <= end - start else 0


def decode(
    buffer: bytes | bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> RemotingCommand:
    """Decode the command of the complete frame buffer[start:end], whose bounds `frame_end` has
    checked.
    """
    p: cython.p_const_uchar = address(buffer)
    head: cython.longlong = get32(p, start + 4)
    body: cython.Py_ssize_t = start + 8 + (head & 0xFFFFFF)
    read = header_binary.decode if head >> 24 else header_json.decode
    command: RemotingCommand = read(buffer, start + 8, body)
    if body < end:
        command.body = bytes(buffer[body:end])
    return command


def decode_one(frame: bytes) -> RemotingCommand:
    """Decode the command of exactly one frame, including its length word."""
    if not frame or frame_end(frame, 0, len(frame), FrameLimits()) != len(frame):
        raise ProtocolError(f"{len(frame)} bytes are not exactly one frame")
    return decode(frame, 0, len(frame))
