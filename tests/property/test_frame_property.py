"""Frames and headers, for all commands and for all bytes."""

from __future__ import annotations

import contextlib
import itertools
import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import frame, header_binary, header_json, header_scan, header_write
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from support.common import golden_data

LIMITS = frame.FrameLimits()
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ANY_TEXT = st.text()
FIELDS = st.none() | st.dictionaries(TEXT, TEXT, max_size=8)
BODY = st.none() | st.binary(min_size=1, max_size=300)

json_commands = st.builds(
    RemotingCommand,
    INT32,
    ext_fields=FIELDS,
    body=BODY,
    remark=st.none() | TEXT,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LanguageCode),
    version=INT32,
)
# What a binary header cannot say: a code or version of more than 16 bits, an empty remark, an empty
# map.
binary_commands = st.builds(
    RemotingCommand,
    INT16,
    ext_fields=st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=8),
    body=BODY,
    remark=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LanguageCode),
    version=INT16,
    serialize_type=st.just(SerializeType.ROCKETMQ),
)
commands = json_commands | binary_commands


def read_all(pieces: list[bytes]) -> tuple[list[RemotingCommand], bool]:
    """The commands of a connection that brings these pieces, and whether it broke; keeps what is
    not consumed.
    """
    pending, got = bytearray(), []
    try:
        for piece in pieces:
            pending += piece
            start = 0
            while stop := frame.frame_end(pending, start, len(pending), LIMITS):
                got.append(frame.decode(pending, start, stop))
                start = stop
            del pending[:start]
    except ProtocolError:
        return got, True
    return got, False


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    marks = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(marks)]


def clean(text: str) -> str:
    """The text with a question mark for each surrogate, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


@given(commands)
@settings(deadline=None)
def test_what_is_written_reads_back(command: RemotingCommand) -> None:
    assert frame.decode_one(frame.encode(command)) == command


@given(commands)
@settings(deadline=None)
def test_the_kernel_and_the_general_encoders_write_the_same(command: RemotingCommand) -> None:
    general = (
        header_json.encode if command.serialize_type is SerializeType.JSON else header_binary.encode
    )
    assert header_write.write_frame(command)[8:] == general(command) + (command.body or b"")


@given(ANY_TEXT, st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3), st.sampled_from(SerializeType))
@settings(deadline=None)
def test_text_that_is_none_is_replaced_and_never_an_error(
    remark: str, fields: dict[str, str], kind: SerializeType
) -> None:
    command = RemotingCommand(1, remark=remark, ext_fields=fields, serialize_type=kind)
    decoded = frame.decode_one(frame.encode(command))
    assert decoded.code == 1
    assert decoded.remark == (clean(remark) if remark or kind is SerializeType.JSON else None)
    expected = {clean(name): clean(value) for name, value in fields.items()}
    assert decoded.ext_fields == (expected if fields or kind is SerializeType.JSON else None)


@given(st.lists(commands, max_size=5), st.lists(st.integers(0, 10_000), max_size=6))
@settings(deadline=None)
def test_frames_in_any_pieces_are_the_same_frames(
    sent: list[RemotingCommand], cuts: list[int]
) -> None:
    data = b"".join(map(frame.encode, sent))
    assert read_all(cut(data, cuts)) == (sent, False)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
@settings(deadline=None)
@example(b"\x00\x00\x00\x04\x01\x00\x00\x00", [])
@example(b"\x00\x00\x00\x04\x00\x00\x00\x00", [])
def test_any_bytes_in_any_pieces_give_commands_or_a_protocol_error(
    data: bytes, cuts: list[int]
) -> None:
    assert read_all(cut(data, cuts)) == read_all([data])


@given(st.integers(0, 255), st.binary(max_size=300), st.integers(0, 320))
@settings(deadline=None)
def test_any_header_in_a_right_frame_gives_a_command_or_a_protocol_error(
    kind: int, content: bytes, header_length: int
) -> None:
    data = (
        (len(content) + 4).to_bytes(4, "big")
        + bytes([kind])
        + header_length.to_bytes(3, "big")
        + content
    )
    with contextlib.suppress(ProtocolError):
        command = frame.decode_one(data)
        assert command.body == (content[header_length:] or None)


# ---------------------------------------------------------------- scanner and general decoder

TOKENS = st.sampled_from(
    [
        *'{}[],:" \n\t\\',
        *(
            '"code"',
            '"flag"',
            '"opaque"',
            '"version"',
            '"language"',
            '"remark"',
            '"extFields"',
            '"serializeTypeCurrentRPC"',
            '"k"',
            '""',
        ),
        *(
            "0",
            "1",
            "-1",
            "-0",
            "00",
            "-01",
            "+1",
            "2147483647",
            "2147483648",
            "-2147483648",
            "12345678901",
            "1.5",
            "1e3",
            "true",
            "null",
        ),
        *(
            '"JAVA"',
            '"JSON"',
            '"\\u004aAVA"',
            '"\\ud800"',
            '"\\x41"',
            '"\\n"',
            '"\\"',
            "'x'",
            "é",
            '"é"',
            "\x00",
            "\x1f",
        ),
    ]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 33), 1 << 33)
    | st.floats(allow_nan=False)
    | ANY_TEXT
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(
    [
        "code",
        "flag",
        "opaque",
        "version",
        "language",
        "remark",
        "serializeTypeCurrentRPC",
        "extFields",
        "other",
    ]
)


fields = st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3)
plain = st.integers(-5, 5) | st.sampled_from(["JAVA", "JSON"])


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """JSON texts of the shape of a header: members in any order, doubled, of any type, with and
    without escapes and space.
    """
    parts = []
    for name in draw(st.lists(members, max_size=9)):
        value = draw(fields if name == "extFields" else plain | json_values)
        text = json.dumps(
            value,
            ensure_ascii=draw(st.booleans()),
            separators=draw(st.sampled_from([(",", ":"), (", ", ": ")])),
        )
        parts.append(f'"{name}":{text}')
    return ("{" + ",".join(parts) + "}").encode(
        "utf-8", draw(st.sampled_from(["surrogatepass", "replace"]))
    )


def agree(header: bytes) -> None:
    quick = header_scan.scan(b"#" + header + b"#", 1, 1 + len(header))
    if quick is not None:
        assert quick == header_json.decode_general(header)
    with contextlib.suppress(ProtocolError):
        assert header_json.decode(header, 0, len(header)) == header_json.decode_general(header)


@given(headers())
@settings(max_examples=300, deadline=None)
def test_the_scanner_says_of_any_header_what_the_general_decoder_says(header: bytes) -> None:
    agree(header)


@given(st.lists(TOKENS, max_size=30).map("".join))
@settings(max_examples=300, deadline=None)
def test_the_scanner_says_of_any_text_what_the_general_decoder_says(text: str) -> None:
    agree(text.encode())
    agree(b'{"code":1,' + text.encode() + b"}")


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_the_scanner_says_of_changed_real_headers_what_the_general_decoder_says(
    data: st.DataObject,
) -> None:
    frames = [golden.frame for golden in golden_data.frames() if golden.frame[4] == 0]
    whole = data.draw(st.sampled_from(frames))
    header = bytearray(whole[8 : 8 + int.from_bytes(whole[5:8], "big")])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(header)))
        header[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | TOKENS.map(str.encode)
        )
    agree(bytes(header))
