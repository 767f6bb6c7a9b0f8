"""Requests in, responses out: whole, in pieces, many at once, large, and those that cannot be
served.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from contextlib import suppress

import pytest

from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.server import ServerConfig
from support.common.waiting import until
from support.remoting import peers
from support.remoting.peers import (
    ECHO,
    FAILING,
    SILENT,
    SIZED,
    connected,
    fault_of_the_server,
    request,
    run,
    serving,
)


def test_pipelined_requests_are_answered_in_one_write() -> None:
    async def scenario() -> None:
        async with serving() as server:
            with socket.create_connection(server.address) as peer:
                peer.setblocking(False)
                batch = b"".join(request(ECHO, n, body=b"x" * n) for n in range(100))
                peer.sendall(batch)

                def readable() -> bytes:
                    with suppress(BlockingIOError):
                        return peer.recv(1 << 20, socket.MSG_PEEK)
                    return b""

                answers = await until(readable)
                # The first read returns everything: nothing was sent before the end of the
                # iteration.
                at = opaque = 0
                while at < len(answers):
                    end = frame.frame_end(answers, at, len(answers), frame.FrameLimits())
                    answer = frame.decode(answers, at, end)
                    assert answer.opaque == opaque
                    assert answer.body == (b"x" * opaque or None)
                    at, opaque = end, opaque + 1
                assert opaque == 100

    run(scenario)


def test_a_frame_may_be_cut_anywhere() -> None:
    async def scenario() -> None:
        data = request(ECHO, 1, body=b"cut")
        async with serving() as server:
            for cut in range(1, len(data)):
                async with connected(server) as peer:
                    peer.write(data[:cut])
                    await asyncio.sleep(0)
                    await asyncio.sleep(0.001)
                    answer = await peer.ask(data[cut:])
                    assert (answer.opaque, answer.body) == (1, b"cut"), cut

    run(scenario)


def test_frames_come_byte_by_byte_and_the_end_of_one_with_the_start_of_the_next() -> None:
    async def scenario() -> None:
        data = request(ECHO, 1, body=b"one") + request(ECHO, 2, body=b"two") + request(ECHO, 3)
        async with serving() as server, connected(server) as peer:
            peer.writer.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )
            for at in range(len(data)):
                peer.write(data[at : at + 1])
                await asyncio.sleep(0.0005)
            assert [(await peer.receive()).opaque for _ in range(3)] == [1, 2, 3]

    run(scenario)


def test_a_frame_of_15_mib_comes_and_goes_in_pieces() -> None:
    async def scenario() -> None:
        body = bytes(range(256)) * (15 * 4096)
        async with serving() as server, connected(server) as peer:
            answer = await peer.ask(request(ECHO, 1, body=body))
            assert answer.body == body
            assert server.connections == 1
            assert (await peer.ask(request(ECHO, 2))).opaque == 2

    run(scenario)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">ii", 16 * 1024 * 1024 - 3, 0), "at most 16777216"),
        (struct.pack(">ii", -1, 0), "the shortest has 4"),
        (struct.pack(">i", 3), "the shortest has 4"),
        (struct.pack(">ii", 10, 7) + b"x" * 6, "the header says 7"),
        (struct.pack(">iI", 6, 2 << 24 | 2) + b"{}", "serialize type 2"),
        (struct.pack(">iI", 6, 0xFF << 24 | 2) + b"{}", "serialize type 255"),
        (struct.pack(">ii", 6, 2) + b"[]", "not a JSON object"),
        (struct.pack(">ii", 6, 2) + b"\xff\xff", "UTF-8"),
        (struct.pack(">iI", 10, 1 << 24 | 6) + b"binary", "binary header"),
        (b"GET / HTTP/1.1\r\n\r\n", "at most 16777216"),
    ],
)
def test_bytes_that_are_no_frame_close_their_connection_only(
    data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        witness = peers.Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as good:
            assert (await good.ask(request(ECHO, 1))).opaque == 1
            async with connected(server) as bad:
                bad.write(data)
                assert await bad.ended()
            assert (await good.ask(request(ECHO, 2))).opaque == 2
            assert why in str(witness.problems)
            assert witness.of(witness.channels[1]) == ["connect", "exception", "close"]

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len(caplog.records) == 1
    assert why in caplog.text


def test_requests_before_a_bad_frame_are_handled_and_none_behind_it() -> None:
    async def scenario() -> None:
        handled: list[int] = []
        async with (
            serving(handlers={ECHO: lambda _, asked: handled.append(asked.opaque)}) as server,
            connected(server) as peer,
        ):
            peer.write(
                request(ECHO, 5) + request(ECHO, 6) + struct.pack(">ii", -5, 0) + request(ECHO, 7)
            )
            assert await peer.ended()
            assert handled == [5, 6]

    run(scenario)


def test_smaller_limits_of_frames_are_kept() -> None:
    async def scenario() -> None:
        limits = frame.FrameLimits(frame_length_max=1000, header_length_max=300)
        async with serving(ServerConfig(frames=limits)) as server:
            async with connected(server) as peer:
                assert (await peer.ask(request(ECHO, 1, body=b"x" * 700))).opaque == 1
                peer.write(request(ECHO, 2, body=b"x" * 1000))
                assert await peer.ended()
            async with connected(server) as peer:
                peer.write(request(ECHO, 2, field="x" * 400))
                assert await peer.ended()

    run(scenario)


def test_an_unknown_code_is_answered_as_real_servers_answer_it() -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            answer = await peer.ask(request(4711, 9))
            assert (answer.code, answer.remark, answer.opaque, answer.flag) == (
                3,
                " request type 4711 not supported",
                9,
                1,
            )

    run(scenario)


def test_a_handler_that_fails_is_answered_in_plain_words_and_the_log_says_where(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            answer = await peer.ask(request(FAILING, 3))
            assert (answer.code, answer.opaque) == (1, 3)
            assert answer.remark == fault_of_the_server(FAILING)
            assert (await peer.ask(request(ECHO, 4))).opaque == 4

    run(scenario)
    assert "handler_failed code=1003 opaque=3" in caplog.text
    assert "KeyError: 'no such thing: 1003'" in caplog.text


def test_one_way_requests_are_never_answered_even_when_they_fail() -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            for code in (ECHO, FAILING, SILENT, 4711):
                peer.write(request(code, 1, oneway=True))
            assert (await peer.ask(request(ECHO, 2))).opaque == 2
            assert await peer.is_silent()

    run(scenario)


def test_an_answer_has_the_header_type_of_its_request() -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            answer = await peer.ask(peers.binary_request(ECHO, 7, b"b"))
            assert (answer.serialize_type, answer.opaque, answer.body) == (
                SerializeType.ROCKETMQ,
                7,
                b"b",
            )
            assert (await peer.ask(request(ECHO, 8))).serialize_type is SerializeType.JSON

    run(scenario)


def test_an_answer_that_cannot_be_written_becomes_an_answer_that_says_so() -> None:
    def oversized(_: Channel, asked: RemotingCommand) -> RemotingCommand:
        answer = asked.reply(0)
        answer.ext_fields = {"big": "x" * 17_000_000}
        return answer

    async def scenario() -> None:
        async with (
            serving(handlers={1: oversized, ECHO: peers.echo}) as server,
            connected(server) as peer,
        ):
            answer = await peer.ask(request(1, 5))
            assert (answer.code, answer.opaque) == (1, 5)
            assert "does not fit a frame" in (answer.remark or "")
            assert (await peer.ask(request(ECHO, 6))).opaque == 6

    run(scenario)


def test_an_unexpected_response_is_ignored() -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            peer.write(frame.encode(RemotingCommand(0, opaque=99, flag=1)))
            assert (await peer.ask(request(ECHO, 1))).opaque == 1

    run(scenario)


def test_a_peer_that_ends_its_side_gets_the_answers_to_what_it_asked() -> None:
    async def scenario() -> None:
        async with serving() as server, connected(server) as peer:
            peer.write(b"".join(request(SIZED, n, size="1000") for n in range(20)))
            peer.writer.write_eof()
            assert [(await peer.receive()).opaque for _ in range(20)] == list(range(20))
            assert await peer.ended()

    run(scenario)
