"""Fuzz target of the frame and command decoders, and its long run.

`one_input` takes any bytes as what a peer sent. Whatever they are, the decoders give commands or
ProtocolError, fast and slow decoder agree, and what was read can be written and read again. Run as
a script it mutates the frames of `corpus` until the time is over: by atheris where it is installed,
otherwise by its own mutator, whose seed it prints.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import frame, header_binary, header_json, header_scan, header_write
from orbitmq.protocol.command import RemotingCommand, SerializeType

CORPUS = Path(__file__).with_name("corpus")
LIMITS = frame.FrameLimits()
SIZE_MAX = 64 * 1024
TOKENS = (
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\u0041",
        b"\\ud800",
        b"\\x41",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc3\xa9",
        b" ",
        b"\n",
    ),
    *(
        b"null",
        b"true",
        b"-0",
        b"00",
        b"1e9",
        b"2147483648",
        b"-2147483649",
        b'"extFields":{',
        b'"language":"',
        b'"remark":"',
        b'""',
        b"'",
    ),
    *(
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x04",
        b"\x01\x00\x00\x15",
    ),
)


def one_input(data: bytes) -> None:
    """Read `data` as a stream of frames; anything but commands and ProtocolError is a bug."""
    buffer = bytearray(data)
    whole = _read(buffer)
    cut = len(data) // 2
    assert _read_in_two(data, cut) == whole, "how the bytes were cut makes a difference"
    _check_header(data)


def _read(buffer: bytearray) -> list[RemotingCommand]:
    """The commands of a buffer up to where it ends or is wrong."""
    commands: list[RemotingCommand] = []
    start = 0
    with contextlib.suppress(ProtocolError):
        while stop := frame.frame_end(buffer, start, len(buffer), LIMITS):
            assert start + 8 <= stop <= len(buffer)
            command = frame.decode(buffer, start, stop)
            _check_command(command)
            commands.append(command)
            start = stop
    return commands


def _read_in_two(data: bytes, cut: int) -> list[RemotingCommand]:
    """The same as from a connection: what is not consumed of the first piece is kept for the
    second.
    """
    commands: list[RemotingCommand] = []
    pending = bytearray()
    with contextlib.suppress(ProtocolError):
        for piece in (data[:cut], data[cut:]):
            pending += piece
            start = 0
            while stop := frame.frame_end(pending, start, len(pending), LIMITS):
                commands.append(frame.decode(pending, start, stop))
                start = stop
            del pending[:start]
    return commands


def _check_command(command: RemotingCommand) -> None:
    """What was read can be written in both encodings and read again."""
    written = frame.encode(command)
    again = frame.decode_one(written)
    if _is_text(command):
        assert again == command, (again, command)
    general = (
        header_json.encode if command.serialize_type is SerializeType.JSON else header_binary.encode
    )
    with contextlib.suppress(UnicodeEncodeError):  # what the kernel leaves to the general encoder
        assert header_write.write_frame(command)[8:] == general(command) + (command.body or b"")
    command.serialize_type = SerializeType(1 - command.serialize_type)
    with contextlib.suppress(ProtocolError):  # a field name too long for a binary header
        frame.decode_one(frame.encode(command))
    command.serialize_type = SerializeType(1 - command.serialize_type)


def _is_text(command: RemotingCommand) -> bool:
    """Whether every text is one: half a surrogate pair is replaced on its way out."""
    texts = [
        command.remark or "",
        *(command.ext_fields or {}),
        *(command.ext_fields or {}).values(),
    ]
    return not any("\ud800" <= character <= "\udfff" for text in texts for character in text)


def _check_header(data: bytes) -> None:
    """The bytes as a header alone: the fast decoder says nothing that the general one does
    not say.
    """
    quick = header_scan.scan(data, 0, len(data))
    try:
        general = header_json.decode_general(data)
    except (ProtocolError, RecursionError):
        general = None
    if quick is not None:
        assert quick == general, (quick, general)
    with contextlib.suppress(ProtocolError):
        header_json.decode(data, 0, len(data))
    with contextlib.suppress(ProtocolError):
        header_binary.decode(data, 0, len(data))


def corpus() -> list[bytes]:
    """Frames of real peers: whole, their headers alone, and two in a row."""
    frames = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    headers = [data[8 : 8 + int.from_bytes(data[5:8], "big")] for data in frames]
    return frames + headers + [one + two for one, two in itertools.pairwise(frames)]


def mutations(seeds: list[bytes], choose: random.Random) -> Iterator[bytes]:
    """Seeds with a few bytes changed, dropped, doubled or put in, for ever; half the time the
    frame's length is set right again.
    """
    while True:
        data = bytearray(choose.choice(seeds))
        for _ in range(choose.randint(1, 4)):
            _mutate(data, seeds, choose)
        del data[SIZE_MAX:]
        if len(data) >= 8 and choose.random() < 0.5:
            data[0:4] = (len(data) - 4).to_bytes(4, "big")
        yield bytes(data)


def _mutate(data: bytearray, seeds: list[bytes], choose: random.Random) -> None:
    at = choose.randint(0, len(data))
    match choose.randint(0, 6):
        case 0 if at < len(data):
            data[at] ^= 1 << choose.randint(0, 7)
        case 1 if at < len(data):
            data[at] = choose.randint(0, 255)
        case 2:
            del data[at : at + choose.randint(1, 16)]
        case 3:
            data[at:at] = choose.choice(TOKENS)
        case 4:
            data[at : at + choose.randint(1, 8)] = choose.choice(TOKENS)
        case 5:
            end = at + choose.randint(1, 32)
            data[at:at] = data[at:end]
        case _:
            other = choose.choice(seeds)
            begin = choose.randint(0, len(other))
            data[at:] = other[begin:]


def _run(seconds: float, seed: int) -> None:
    """Mutate until the time is over; an input that breaks the target is shown, and its error
    raised.
    """
    ends = time.monotonic() + seconds
    for count, data in enumerate(mutations(corpus(), random.Random(seed))):
        try:
            one_input(data)
        except BaseException:
            print(f"input {count} of seed {seed}: {data!r}", file=sys.stderr)
            raise
        if time.monotonic() > ends:
            print(f"{count + 1} inputs of seed {seed}: no finding")
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    arguments = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        _run(arguments.seconds, arguments.seed)
        return
    import atheris

    atheris.Setup(
        [
            sys.argv[0],
            str(CORPUS),
            f"-max_total_time={arguments.seconds:.0f}",
            f"-seed={arguments.seed}",
        ],
        one_input,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
