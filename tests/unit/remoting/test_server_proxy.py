"""A load balancer's PROXY preamble before the first byte: consumed exactly, in any pieces, before
plaintext and before TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct

import pytest

from orbitmq.remoting.tls import ClientTls, client_context
from support.common.waiting import until
from support.remoting.peers import ECHO, Witness, connected, request, run, serving

V1 = b"PROXY TCP4 203.0.113.7 192.0.2.2 56324 9876\r\n"
V1_IPV6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 9876\r\n"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(command: int = 1, family: int = 0x11, content: bytes | None = None) -> bytes:
    if content is None:
        content = (
            bytes([203, 0, 113, 7, 192, 0, 2, 2])
            + struct.pack(">HH", 56324, 9876)
            + b"\xe0\x00\x03zone"[:6]
        )
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack(">H", len(content)) + content


SEEN = "203.0.113.7:56324"


@pytest.mark.parametrize(
    ("preamble", "seen"),
    [
        (V1, SEEN),
        (V1_IPV6, "[2001:db8::7]:56324"),
        (v2(), SEEN),
        (b"PROXY UNKNOWN\r\n", None),
        (v2(command=0), None),
    ],
)
def test_the_preamble_says_who_the_peer_is_and_the_request_behind_it_is_served(
    preamble: bytes, seen: str | None
) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            assert (await peer.ask(preamble + request(ECHO, 3, body=b"behind"))).body == b"behind"
            channel = witness.channels[0]
            assert channel.remote_address == (seen or peer.address)
            assert channel.proxy is not None
            assert channel.proxy.length == len(preamble)
            assert (await peer.ask(request(ECHO, 4))).opaque == 4

    run(scenario)


@pytest.mark.parametrize("preamble", [V1, v2()])
def test_the_preamble_may_be_cut_anywhere(preamble: bytes) -> None:
    data = preamble + request(ECHO, 3)

    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server:
            for cut in range(1, len(preamble) + 12):
                async with connected(server) as peer:
                    peer.writer.get_extra_info("socket").setsockopt(
                        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
                    )
                    peer.write(data[:cut])
                    await asyncio.sleep(0.001)
                    assert (await peer.ask(data[cut:])).opaque == 3, cut
                assert witness.channels[-1].remote_address == SEEN

    run(scenario)


def test_the_preamble_may_come_byte_by_byte() -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            peer.writer.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )
            for byte in V1 + request(ECHO, 3):
                peer.write(bytes([byte]))
                await asyncio.sleep(0.0005)
            assert (await peer.receive()).opaque == 3

    run(scenario)


@pytest.mark.parametrize("preamble", [V1, v2()])
def test_tls_may_follow_the_preamble(preamble: bytes) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server:
            # start_tls on the client's side, after the preamble was sent in plaintext
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(preamble)
            await writer.drain()
            await writer.start_tls(
                client_context(ClientTls(enabled=True)), server_hostname="localhost"
            )
            writer.write(request(ECHO, 3))
            assert await reader.read(10)
            channel = witness.channels[0]
            assert (channel.remote_address, channel.is_tls) == (SEEN, True)
            assert isinstance(writer.get_extra_info("ssl_object"), ssl.SSLObject)
            writer.close()
            await writer.wait_closed()
            await until(lambda: server.connections == 0)
        assert witness.of(channel) == ["connect", "close"]

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        V1 + V1,  # one preamble, not two
        V1 + v2(),
        b"PROXY " + b"x" * 200,
        b"PROXY TCP4 1.2.3.4 5.6.7.8 99999 1\r\n",
        b"PROXY TCP4 nonsense 5.6.7.8 1 1\r\n",
        b"PROXY\r\n" + bytes(20),
        b"PROXIMITY",
        b"\r\n\r\n\x00\r\nQUIX\n" + bytes(20),
        SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\xff\xff",
        SIGNATURE + b"\x21\x11\x00\x04" + bytes(4),
    ],
)
def test_what_only_begins_like_a_preamble_is_closed(garbage: bytes) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            peer.write(garbage)
            assert await peer.ended()
            assert witness.of(witness.channels[0]) == ["connect", "exception", "close"]
            assert server.connections == 0

    run(scenario)


@pytest.mark.parametrize("begun", [V1[:20], SIGNATURE, v2()[:-1], b"P", b"\r"])
def test_a_peer_that_ends_within_the_preamble_is_closed(begun: bytes) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            peer.write(begun)
            await asyncio.sleep(0.005)
            peer.writer.write_eof()
            assert await peer.ended()
            assert witness.of(witness.channels[0]) == ["connect", "close"]
            assert witness.channels[0].close_reason == "it ended within a PROXY preamble"

    run(scenario)
