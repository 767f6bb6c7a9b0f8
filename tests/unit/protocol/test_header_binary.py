"""The binary header: its bytes, what it cannot carry, and invalid lengths."""

from __future__ import annotations

import struct

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import header_binary
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand, SerializeType


def binary(code: int, **members: object) -> RemotingCommand:
    return RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ, **members)  # type: ignore[arg-type]


COMMAND = binary(
    310,
    ext_fields={"a": "bc", "é": ""},
    remark="r",
    opaque=-2,
    flag=1,
    language=LanguageCode.GO,
    version=409,
)
BYTES = (
    b"\x01\x36\x09\x01\x99\xff\xff\xff\xfe\x00\x00\x00\x01\x00\x00\x00\x01r"
    b"\x00\x00\x00\x11\x00\x01a\x00\x00\x00\x02bc\x00\x02\xc3\xa9\x00\x00\x00\x00"
)


def read(header: bytes) -> RemotingCommand:
    padded = bytearray(b"\xff" * 5 + header + b"\xff" * 5)
    command: RemotingCommand = header_binary.decode(padded, 5, 5 + len(header))
    return command


def test_a_header_is_written_and_read_byte_for_byte() -> None:
    assert header_binary.encode(COMMAND) == BYTES
    assert read(BYTES) == COMMAND


def test_the_shortest_header_has_neither_remark_nor_fields() -> None:
    shortest = bytes(21)
    assert read(shortest) == binary(0, language=LanguageCode.JAVA, version=0)
    assert (
        header_binary.encode(
            binary(0, ext_fields={}, remark="", language=LanguageCode.JAVA, version=0)
        )
        == shortest
    )


@pytest.mark.parametrize(
    ("code", "arrives"), [(32767, 32767), (-1, -1), (32768, -32768), (200050, 200050 - 3 * 65536)]
)
def test_a_code_has_16_bits(code: int, arrives: int) -> None:
    assert read(header_binary.encode(binary(code))).code == arrives


def test_an_unknown_language_is_other() -> None:
    for number in (14, 127, 128, 255):
        assert read(BYTES[:2] + bytes([number]) + BYTES[3:]).language is LanguageCode.OTHER


def test_every_cut_closes_the_connection() -> None:
    for end in range(len(BYTES)):
        with pytest.raises(ProtocolError):
            read(BYTES[:end])


@pytest.mark.parametrize("at", [13, 18, 25, 35])
@pytest.mark.parametrize("length", [-1, -(1 << 31), (1 << 31) - 1, 1000])
def test_every_length_that_lies_closes_the_connection(at: int, length: int) -> None:
    assert struct.unpack_from(">i", BYTES, at)[0] in (0, 1, 2, 17)
    with pytest.raises(ProtocolError, match=r"\d+ bytes, -?\d+ are left"):
        read(BYTES[:at] + struct.pack(">i", length) + BYTES[at + 4 :])


@pytest.mark.parametrize("length", [2, 3, 255, 0x7FFF, 0x8000, 0xFFFF])
def test_a_name_whose_length_lies_closes_the_connection(length: int) -> None:
    with pytest.raises(ProtocolError):
        read(BYTES[:22] + struct.pack(">H", length) + BYTES[24:])


def test_what_is_not_utf_8_closes_the_connection() -> None:
    for good, bad in ((b"r\x00", b"\xff\x00"), (b"a\x00", b"\xff\x00"), (b"bc", b"b\xc3")):
        with pytest.raises(ProtocolError, match="not UTF-8"):
            read(BYTES.replace(good, bad, 1))


def test_bytes_behind_the_fields_are_passed_over() -> None:
    assert read(BYTES + b"rest") == COMMAND


def test_a_name_longer_than_its_16_bits_is_not_written() -> None:
    assert read(header_binary.encode(binary(1, ext_fields={"x" * 32767: "v"}))).ext_fields == {
        "x" * 32767: "v"
    }
    with pytest.raises(ProtocolError, match="a binary header takes at most 32767"):
        header_binary.encode(binary(1, ext_fields={"x" * 32768: "v"}))
