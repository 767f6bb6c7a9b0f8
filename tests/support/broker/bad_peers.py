"""What tests of bad peers share: a client beside them that behaves, what the system says of the
server's process, bytes that are no frames.

Memory is what the process has of its own (RssAnon): pages of the store's files that it mapped are
the system's to take back.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop.apache import Server
from interop.frames import BINARY_TYPE, Connection, Request

MIB = 1 << 20
FRAME_MAX = 16 * MIB
SERVED_WITHIN_S = (
    60.0  # whoever waits longer is not served; two busy cores are the least this runs on
)

# By the reason that the log gives.
NOT_FRAMES = {
    "the shortest has 4": struct.pack(">ii", 3, 0),
    "a frame of length -1": struct.pack(">ii", -1, 0),
    "at most 16777216": struct.pack(">ii", FRAME_MAX - 3, 100),
    "the header says 5000 bytes": struct.pack(">ii", 100, 5000) + b" " * 96,
    "serialize type 7": struct.pack(">ii", 100, 7 << 24 | 96) + b" " * 96,
    "a frame of 1195725860 bytes": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bad JSON text": Request(105, header=b'{"code":105,"opaque"').encode(1),
    "a binary header of 4 bytes": (
        Request(105, serialize_type=BINARY_TYPE, header=b"\x00\x69\x00\x01").encode(1)
    ),
    "the field block of a binary header says 1073741824 bytes": (
        Request(
            105,
            serialize_type=BINARY_TYPE,
            header=struct.pack(">hbhiiii", 105, 0, 513, 1, 0, 0, 1 << 30),
        ).encode(1)
    ),
    "the remark of a binary header says 1073741824 bytes": (
        Request(
            105,
            serialize_type=BINARY_TYPE,
            header=struct.pack(">hbhiiii", 105, 0, 513, 1, 0, 1 << 30, 0),
        ).encode(1)
    ),
}


def process_files(server: Server) -> Path:
    """Where the system tells of the server's process."""
    return Path("/proc") / str(server.pid)


def own_mib(server: Server) -> float:
    return (
        int((process_files(server) / "status").read_text().split("RssAnon:")[1].split()[0]) / 1024
    )


def open_files(server: Server) -> int:
    return sum(1 for _ in (process_files(server) / "fd").iterdir())


@contextmanager
def everybody_else_is_served(
    server: Server, ask_once: Callable[[Connection], None], *, growth_mib_max: float
) -> Iterator[None]:
    """A client asks all the while the block runs, and `ask_once` fails if it is not answered as it
    should be; the server must not swell.
    """
    stop = threading.Event()
    asked = 0
    problems: list[BaseException] = []

    def ask() -> None:
        nonlocal asked
        try:
            with Connection(server.address, SERVED_WITHIN_S) as client:
                while True:  # at least once, however soon the block is over
                    ask_once(client)
                    asked += 1
                    if stop.wait(0.01):
                        return
        except BaseException as problem:
            problems.append(problem)

    before_mib = own_mib(server)
    client = threading.Thread(target=ask)
    client.start()
    try:
        yield
        grown_mib = own_mib(server) - before_mib
    finally:
        stop.set()
        client.join()
    assert not problems, f"the well-behaved client failed: {problems!r}"
    assert asked
    assert grown_mib < growth_mib_max, f"the server grew by {grown_mib:.0f} MiB"


def block_by_sending(peers: Sequence[socket.socket], data: bytes) -> None:
    """Send from all at once until the server takes no more of any: it blocks for a second, or the
    server has lost its patience.
    """

    def send(peer: socket.socket) -> None:
        peer.settimeout(1)
        with pytest.raises((TimeoutError, ConnectionError)):
            peer.sendall(data)

    with ThreadPoolExecutor(len(peers)) as threads:
        list(threads.map(send, peers))


def closed_by_server(peer: socket.socket, within_s: float = SERVED_WITHIN_S) -> bool:
    """Whether the server ends the connection in time; what it sends before is read and dropped."""
    peer.settimeout(within_s)
    try:
        while peer.recv(MIB):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True
