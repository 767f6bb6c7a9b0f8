"""Peers that mean harm or are broken, against a real name server process.

Whatever they do: memory stays bounded, the log says why a connection was closed, and everybody else
is served meanwhile.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from interop import subject
from interop.apache import Server, running
from interop.frames import Connection, Request
from support.broker.bad_peers import (
    FRAME_MAX,
    NOT_FRAMES,
    SERVED_WITHIN_S,
    block_by_sending,
    closed_by_server,
    everybody_else_is_served,
    open_files,
)
from support.common.waiting import wait_until

TOPICS = 20_000  # so that the answer of GET_ALL_TOPIC_LIST has some 400 kB
ROUTE = Request(105, {"topic": "topic-number-7"})
ALL_TOPICS = Request(206)


# ---------------------------------------------------------------- the server, and its well-behaved
# client


def registration() -> Request:
    """A broker with many topics registers."""
    table = {
        name: {
            "topicName": name,
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": False,
        }
        for name in (f"topic-number-{n}" for n in range(TOPICS))
    }
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    fields = {
        "brokerName": "a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": "0",
    }
    return Request(103, fields, json.dumps(body).encode())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A name server that knows one broker, whose connection stays open."""
    started = subject.name_server(tmp_path_factory.mktemp("bad_peers") / "home")
    with running(started), Connection(started.address) as broker:
        assert broker.ask(registration()).code == 0
        wait_until(lambda: ask_route(started) == 0, "the broker is registered")
        yield started


def ask_route(server: Server) -> int:
    with Connection(server.address) as client:
        return client.ask(ROUTE).code


def ask_for_route(client: Connection) -> None:
    answer = client.ask(ROUTE)
    assert (answer.code, bool(answer.body)) == (0, True)


# ---------------------------------------------------------------- bytes that are no frames

GOOD = ROUTE.encode(1)


@pytest.mark.parametrize("reason", NOT_FRAMES)
def test_bytes_that_are_no_frame_close_their_connection_and_the_log_says_why(
    server: Server, reason: str
) -> None:
    with (
        everybody_else_is_served(server, ask_for_route, growth_mib_max=8),
        socket.create_connection(("127.0.0.1", server.port)) as peer,
    ):
        address = f"127.0.0.1:{peer.getsockname()[1]}"
        peer.sendall(NOT_FRAMES[reason])
        assert closed_by_server(peer)

        def explained() -> bool:
            lines = [line for line in server.console_tail().splitlines() if address in line]
            return any(reason in line for line in lines)

        wait_until(explained, f"a log line with {address} and {reason!r}")


def test_garbage_from_many_peers_leaves_nothing_behind(server: Server) -> None:
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=16):
        for seed in range(200):
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                peer.sendall(
                    bytes(
                        (seed * 31 + n * n * 7 + 128) % 256 | (0x80 if n == 0 else 0)
                        for n in range(2000)
                    )
                )
                assert closed_by_server(peer)


def test_a_frame_cut_anywhere_is_never_answered_and_one_completed_later_is(server: Server) -> None:
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=16), ExitStack() as stack:
        for cut in range(1, len(GOOD)):
            left = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            left.sendall(GOOD[:cut])
            left.shutdown(socket.SHUT_WR)
            late = stack.enter_context(Connection(server.address))
            late.send_bytes(GOOD[:cut])
            assert left.recv(1) == b"", f"cut after {cut} bytes, and answered"
            late.send_bytes(GOOD[cut:])
            assert late.receive().code == 0, f"cut after {cut} bytes, then completed"


def test_frames_that_announce_more_than_comes_cost_only_what_came(server: Server) -> None:
    announced = struct.pack(">ii", FRAME_MAX - 4, len(GOOD) - 8) + GOOD[8:]
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=64), ExitStack() as stack:
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(200)
        ]
        for peer in peers:
            peer.sendall(announced + b"x" * 10_000)
        for _ in range(50):
            assert ask_route(server) == 0
        for peer in peers:
            peer.setblocking(False)
            with pytest.raises(
                BlockingIOError
            ):  # neither answered nor closed: the rest may still come
                peer.recv(1)


# ---------------------------------------------------------------- peers with a bad pace


def test_peers_that_ask_for_big_answers_and_never_read_are_not_read_any_more(
    server: Server,
) -> None:
    questions = ALL_TOPICS.encode(1) * 100_000  # some 8 MB, to be answered by 40 GB
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=128), ExitStack() as stack:
        peers = [stack.enter_context(socket.socket()) for _ in range(10)]
        for peer in peers:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            peer.connect(("127.0.0.1", server.port))
        block_by_sending(peers, questions)


def test_frames_that_come_byte_by_byte_are_answered(server: Server) -> None:
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=16), ExitStack() as stack:
        peers = [stack.enter_context(Connection(server.address)) for _ in range(100)]
        for at in range(len(GOOD)):
            for peer in peers:
                peer.send_bytes(GOOD[at : at + 1])
            time.sleep(0.01)
        for peer in peers:
            assert peer.receive().code == 0


# ---------------------------------------------------------------- many peers


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections_are_cheap_and_each_of_them_can_ask(server: Server) -> None:
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=32), ExitStack() as stack:
        peers = []
        for number in range(10_000):
            source = (  # several addresses, should the ports of one run out, that nobody listens on
                f"127.0.1.{1 + number // 2500}"
            )
            peer = socket.create_connection(
                ("127.0.0.1", server.port), SERVED_WITHIN_S, (source, 0)
            )
            peers.append(stack.enter_context(peer))
        # The system connects peers before the server accepts them.
        wait_until(
            lambda: open_files(server) > len(peers), "all are accepted", seconds=SERVED_WITHIN_S
        )
        for peer in peers[::50]:
            peer.sendall(GOOD)
        for peer in peers[::50]:
            assert peer.recv(4, socket.MSG_WAITALL), "an idle connection was dropped"


@pytest.mark.slow
def test_a_thousand_connects_a_second_are_taken_for_seconds(server: Server) -> None:
    rate, seconds = 1000, 3
    begin = time.monotonic()
    with everybody_else_is_served(server, ask_for_route, growth_mib_max=32):
        for number in range(rate * seconds):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            peer = socket.create_connection(("127.0.0.1", server.port), SERVED_WITHIN_S)
            if number % 10 == 0:
                peer.sendall(GOOD)
                assert peer.recv(4, socket.MSG_WAITALL)
            peer.close()
