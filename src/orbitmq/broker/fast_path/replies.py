# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: encodes replies by putting values between constant pieces of bytes, and buffers them
until the end of the loop iteration.

The encoders in `protocol` define what a reply looks like: a template is cut from a sample that they
encoded with marks as values. Knows nothing of what a reply means.
"""

from collections.abc import Sequence
from typing import Any

import cython

from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand, SerializeType

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, put32, text_bytes
    from cython.cimports.orbitmq.protocol.header_write import put_number
else:
    from orbitmq.common.mem import address, copy, put32, text_bytes
    from orbitmq.protocol.header_write import put_number

HEX = cython.declare(bytes, b"0123456789ABCDEF")
BINARY_KIND = cython.declare(cython.int, 1)
OPAQUE_AT = cython.declare(cython.Py_ssize_t, 13)  # in a frame with a binary header
VALUE_SIZE_MAX = cython.declare(cython.Py_ssize_t, 24)  # of a number with its length
SIZE_MIN = cython.declare(cython.Py_ssize_t, 1 << 16)
SIZE_KEPT_MAX = cython.declare(cython.Py_ssize_t, 1 << 20)
OPAQUE_MARK = 1234567899
_FIRST_MARK = 1234567800


def marks(count: int) -> list[int]:
    """Return marker values for a sample, which `ReplyTemplate` can find again."""
    return [_FIRST_MARK + number for number in range(count)]


class ReplyTemplate:
    """The constant pieces of a reply around its values, which stand where the sample has `marked`,
    in that order.
    """

    def __init__(self, sample: RemotingCommand, marked: Sequence[object]) -> None:
        sample.opaque = OPAQUE_MARK
        rest = frame.encode(sample)
        self.is_binary = sample.serialize_type is SerializeType.ROCKETMQ
        self.block_at = 25 + len(
            (sample.remark or "").encode()
        )  # where a binary header stores the length of its fields
        self.pieces: list[bytes] = []
        for mark in marked if self.is_binary else [*marked, OPAQUE_MARK]:
            piece, found, rest = rest.partition(str(mark).encode())
            assert found, f"{mark} is not in the sample {sample}, or not in this order"
            self.pieces.append(
                piece[: len(piece) - 4] if self.is_binary else piece
            )  # its length is written with the value
        self.pieces.append(rest)
        self.size = sum(map(len, self.pieces)) + VALUE_SIZE_MAX * len(self.pieces)


class ReplyBuffer:
    """A buffer of replies, in the order of the links that they go to."""

    def __init__(self) -> None:
        self._buffer = bytearray(SIZE_MIN)
        self._p = address(self._buffer)
        self.used = self._begin = self._piece = 0
        self._template: Any = None
        self._links: list[Any] = []
        self._begins: list[int] = []

    def take(self) -> list[tuple[Any, bytes]]:
        """Return the bytes for each link, and empty the buffer."""
        i: cython.Py_ssize_t
        begin_at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        taken = []
        for i in range(len(self._links)):
            begin_at = self._begins[i]
            stop = self._begins[i + 1] if i + 1 < len(self._links) else self.used
            taken.append((self._links[i], text_bytes(self._p, begin_at, stop - begin_at)))
        self._links = []
        self._begins = []
        self.used = 0
        if len(self._buffer) > SIZE_KEPT_MAX:  # one busy iteration does not hold its memory forever
            self._buffer = bytearray(SIZE_MIN)
            self._p = address(self._buffer)
        return taken


@cython.cfunc
def begin(
    answers: ReplyBuffer, link: Any, template: ReplyTemplate, values_size: cython.Py_ssize_t
) -> cython.int:
    """Begin a reply to `link` whose texts have `values_size` bytes in total."""
    needed: cython.Py_ssize_t = answers.used + template.size + values_size
    if needed > len(answers._buffer):
        answers._buffer += bytes(2 * needed - len(answers._buffer))
        answers._p = address(answers._buffer)
    if not answers._links or answers._links[len(answers._links) - 1] is not link:
        answers._links.append(link)
        answers._begins.append(answers.used)
    answers._template = template
    answers._begin = answers.used
    answers._piece = 0
    return _next_piece(answers)


@cython.cfunc
def _next_piece(answers: ReplyBuffer) -> cython.int:
    piece: bytes = answers._template.pieces[answers._piece]
    copy(answers._p, answers.used, piece, 0, len(piece))
    answers.used += len(piece)
    answers._piece += 1
    return 0


@cython.cfunc
def put_text(
    answers: ReplyBuffer, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.int:
    """Append the text p[at:at+size], which needs no escaping, as the next value."""
    target: cython.p_uchar = answers._p
    if answers._template.is_binary:
        put32(target, answers.used, size)
        answers.used += 4
    copy(target, answers.used, p, at, size)
    answers.used += size
    return _next_piece(answers)


@cython.cfunc
def put_value(answers: ReplyBuffer, value: cython.longlong) -> cython.int:
    """Append a number as the next value."""
    p: cython.p_uchar = answers._p
    at: cython.Py_ssize_t = answers.used
    if answers._template.is_binary:
        answers.used = put_number(p, at + 4, value)
        put32(p, at, answers.used - at - 4)
    else:
        answers.used = put_number(p, at, value)
    return _next_piece(answers)


@cython.cfunc
def end(answers: ReplyBuffer, opaque: cython.int, body_size: cython.Py_ssize_t) -> cython.int:
    """End the reply to the request with that opaque; a body of that size follows."""
    p: cython.p_uchar = answers._p
    start: cython.Py_ssize_t = answers._begin
    header_size: cython.Py_ssize_t
    if answers._template.is_binary:
        put32(p, start + OPAQUE_AT, opaque)
        put32(
            p,
            start + answers._template.block_at,
            answers.used - start - answers._template.block_at - 4,
        )
    else:
        answers.used = put_number(p, answers.used, opaque)
        _next_piece(answers)
    header_size = answers.used - start - 8
    put32(p, start, 4 + header_size + body_size)
    put32(p, start + 4, (BINARY_KIND << 24 if answers._template.is_binary else 0) | header_size)
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def put_id(
    p: cython.p_uchar, at: cython.Py_ssize_t, host: bytes, offset: cython.longlong
) -> cython.Py_ssize_t:
    """Write the offset message id of `offset` in the store whose host has these digits to p[at:].
    Return the offset after it.
    """
    digits: cython.p_const_uchar = HEX
    shift: cython.int = 60
    copy(p, at, host, 0, len(host))
    at += len(host)
    while shift >= 0:
        p[at] = digits[offset >> shift & 15]
        at += 1
        shift -= 4
    return at
