"""Where a frame ends, which bytes are not a frame, and what is written."""

from __future__ import annotations

import struct

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import frame, header_json, header_write
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.frame import FrameLimits

LIMITS = FrameLimits()
COMMAND = RemotingCommand(
    105, ext_fields={"topic": "T"}, body=b"body", opaque=7, language=LanguageCode.JAVA, version=479
)
BYTES = (
    b'\x00\x00\x00\x83\x00\x00\x00\x7b{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}body'
)


def test_a_command_is_written_as_real_peers_write_it() -> None:
    assert frame.encode(COMMAND) == BYTES
    assert frame.decode_one(BYTES) == COMMAND


@pytest.mark.parametrize("padding", [0, 1, 13])
def test_the_end_is_found_once_the_frame_is_whole(padding: int) -> None:
    buffer = bytearray(b"p" * padding + BYTES + BYTES[:3])
    whole = padding + len(BYTES)
    for end in range(padding, whole):
        assert frame.frame_end(buffer, padding, end, LIMITS) == 0
    for end in range(whole, len(buffer) + 1):
        assert frame.frame_end(buffer, padding, end, LIMITS) == whole
    assert frame.decode(buffer, padding, whole) == COMMAND


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (struct.pack(">i", 3), "the shortest has 4"),
        (struct.pack(">i", 0), "the shortest has 4"),
        (struct.pack(">i", -1), "the shortest has 4"),
        (struct.pack(">i", -(1 << 31)), "the shortest has 4"),
        (struct.pack(">i", (1 << 31) - 1), "at most 16777216"),
        (struct.pack(">i", 16 * 1024 * 1024 - 3), "at most 16777216"),
        (struct.pack(">ii", 4, 1), "the header says 1 bytes, its frame has 0 left"),
        (struct.pack(">ii", 100, 97), "the header says 97 bytes, its frame has 96 left"),
        (struct.pack(">iI", 100, 2 << 24 | 10), "serialize type 2 is none of"),
        (struct.pack(">iI", 100, 0x80 << 24 | 10), "serialize type 128 is none of"),
    ],
)
def test_what_cannot_be_a_frame_is_refused_as_soon_as_it_shows(head: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        frame.frame_end(head, 0, len(head), LIMITS)


def test_the_longest_frame_is_taken_and_one_byte_more_is_not() -> None:
    body = bytes(16 * 1024 * 1024 - len(frame.encode(RemotingCommand(1))))
    longest = frame.encode(RemotingCommand(1, body=body))
    assert len(longest) == frame.FRAME_LENGTH_MAX
    assert frame.decode_one(longest).body == body
    with pytest.raises(ProtocolError, match="a frame of 16777217 bytes: at most 16777216"):
        frame.decode_one(frame.encode(RemotingCommand(1, body=body + b"x")))


def test_the_limits_are_those_given() -> None:
    limits = FrameLimits(frame_length_max=len(BYTES), header_length_max=123)
    assert frame.frame_end(BYTES, 0, len(BYTES), limits) == len(BYTES)
    with pytest.raises(
        ProtocolError, match=f"a frame of {len(BYTES)} bytes: at most {len(BYTES) - 1}"
    ):
        frame.frame_end(BYTES, 0, len(BYTES), FrameLimits(frame_length_max=len(BYTES) - 1))
    with pytest.raises(ProtocolError, match="a header of 123 bytes: at most 122"):
        frame.frame_end(BYTES, 0, len(BYTES), FrameLimits(header_length_max=122))


def test_an_empty_body_is_none() -> None:
    assert frame.decode_one(frame.encode(RemotingCommand(1, body=b""))).body is None


@pytest.mark.parametrize("data", [b"", BYTES[:-1], BYTES + b"x", BYTES + BYTES])
def test_exactly_one_frame_is_exactly_one(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="are not exactly one frame"):
        frame.decode_one(data)


@pytest.mark.parametrize("kind", SerializeType)
def test_a_header_too_long_for_its_24_bits_is_not_written(kind: SerializeType) -> None:
    with pytest.raises(ProtocolError, match="does not fit a frame: at most 16777215"):
        frame.encode(RemotingCommand(1, remark="x" * (1 << 24), serialize_type=kind))
    assert frame.encode(RemotingCommand(1, serialize_type=kind)), (
        "a failed write must not spoil the next"
    )


def test_a_name_too_long_for_a_binary_header_is_not_written() -> None:
    fields = {"x" * 32767: "v"}
    command = RemotingCommand(1, ext_fields=fields, serialize_type=SerializeType.ROCKETMQ)
    assert frame.decode_one(frame.encode(command)).ext_fields == fields
    command.ext_fields = {"x" * 32768: "v"}
    with pytest.raises(ProtocolError, match="a binary header takes at most 32767"):
        frame.encode(command)


def test_an_empty_map_is_written_and_none_is_left_out() -> None:
    assert b'"extFields":{}' in frame.encode(RemotingCommand(1, ext_fields={}))
    assert b"extFields" not in frame.encode(RemotingCommand(1))


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("value", [5, None, b"bytes", True])
def test_a_field_that_is_no_text_is_an_error_of_the_handler_not_a_crash(
    kind: SerializeType, value: object
) -> None:
    command = RemotingCommand(1, ext_fields={"field": value}, serialize_type=kind)  # type: ignore[dict-item]
    with pytest.raises((TypeError, AttributeError)):
        frame.encode(command)


@pytest.mark.parametrize(
    "command",
    [
        COMMAND,
        RemotingCommand(
            -1,
            opaque=-(1 << 31),
            flag=(1 << 31) - 1,
            version=0,
            language=LanguageCode.OTHER,
            remark="",
        ),
        RemotingCommand(
            0,
            ext_fields={},
            remark='quote " backslash \\ control \x00\x01\x1f\x7f tab \t line \r\n / é 漢 😀',
        ),
        RemotingCommand(1, ext_fields={f"k{n}": "v" * n for n in range(300)}, body=bytes(200_000)),
        RemotingCommand(1, ext_fields={"": "", "\x08\x0c": "\x0b"}),
    ],
)
def test_the_kernel_writes_the_bytes_of_the_general_encoder(command: RemotingCommand) -> None:
    header = header_json.encode(command)
    body = command.body or b""
    assert (
        header_write.write_frame(command)
        == struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
    )


def test_half_a_surrogate_pair_is_replaced_on_its_way_out() -> None:
    command = RemotingCommand(1, ext_fields={"k": "a\ud800b"}, remark="\udfff")
    for kind in SerializeType:
        command.serialize_type = kind
        read = frame.decode_one(frame.encode(command))
        assert (read.ext_fields, read.remark) == ({"k": "a?b"}, "?")
