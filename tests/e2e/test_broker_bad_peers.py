"""Peers that mean harm or are broken, against a real broker process: memory stays bounded, and
everybody else sends and reads meanwhile.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from interop.apache import Server, running
from interop.broker_clients import our_broker
from interop.frames import Connection, Request, ask
from support.broker.bad_input import SERVED
from support.broker.bad_peers import (
    FRAME_MAX,
    MIB,
    NOT_FRAMES,
    SERVED_WITHIN_S,
    block_by_sending,
    closed_by_server,
    everybody_else_is_served,
    open_files,
)
from support.common.waiting import wait_until

ONEWAY = 2
SUSPENDS, SUBSCRIPTION = 2, 4
SEND = SERVED[310].good_fields
PULL = SERVED[11].good_fields
GOOD = Request(310, {**SEND, "b": "Cut"}, b"whole").encode(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = our_broker(
        tmp_path_factory.mktemp("bad_peers") / "home",
        ["127.0.0.1:1"],
        {"mappedFileSizeCommitLog": 64 * MIB},
    )
    with running(started):
        yield started


def serve(client: Connection) -> None:
    """Send a message and read it."""
    sent = client.ask(Request(310, {**SEND, "b": "Others", "d": "1"}, b"hello"))
    assert sent.code == 0, sent
    found = client.ask(
        Request(11, {**PULL, "topic": "Others", "queueOffset": sent.fields["queueOffset"]})
    )
    assert found.code == 0, found
    assert b"hello" in found.body


def end_of(server: Server, topic: str) -> int:
    return int(ask(server.address, Request(30, {"topic": topic, "queueId": "0"})).fields["offset"])


def deaf_peer(server: Server) -> socket.socket:
    """A peer with small buffers, which is to read nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    peer.connect(("127.0.0.1", server.port))
    return peer


def put_large_message(server: Server, topic: str) -> None:
    with Connection(server.address, SERVED_WITHIN_S) as producer:
        sent = producer.ask(Request(310, {**SEND, "b": topic, "d": "1"}, bytes(MIB)))
        assert sent.code == 0, sent


# ---------------------------------------------------------------- bytes that are no frames, and
# frames that are cut


@pytest.mark.parametrize("reason", NOT_FRAMES)
def test_bytes_that_are_no_frame_close_their_connection_and_the_log_says_why(
    server: Server, reason: str
) -> None:
    with (
        everybody_else_is_served(server, serve, growth_mib_max=16),
        socket.create_connection(("127.0.0.1", server.port)) as peer,
    ):
        address = f"127.0.0.1:{peer.getsockname()[1]}"
        peer.sendall(NOT_FRAMES[reason])
        assert closed_by_server(peer)

        def explained() -> bool:
            return any(
                address in line and reason in line for line in server.console_tail().splitlines()
            )

        wait_until(explained, f"a log line with {address} and {reason!r}")


def test_a_send_cut_anywhere_stores_nothing_and_one_completed_later_is_stored_once(
    server: Server,
) -> None:
    cuts = range(1, len(GOOD))
    with everybody_else_is_served(server, serve, growth_mib_max=32), ExitStack() as stack:
        for cut in cuts:
            left = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            left.sendall(GOOD[:cut])
            left.shutdown(socket.SHUT_WR)
            late = stack.enter_context(Connection(server.address, SERVED_WITHIN_S))
            late.send_bytes(GOOD[:cut])
            assert left.recv(1) == b"", f"cut after {cut} bytes, and answered"
            late.send_bytes(GOOD[cut:])
            assert late.receive().code == 0, f"cut after {cut} bytes, then completed"
    assert end_of(server, "Cut") == len(cuts)


def test_frames_that_announce_more_than_comes_cost_only_what_came(server: Server) -> None:
    announced = struct.pack(">ii", FRAME_MAX - 4, len(GOOD) - 8) + GOOD[8:]
    before = end_of(server, "Cut")
    with everybody_else_is_served(server, serve, growth_mib_max=64), ExitStack() as stack:
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(200)
        ]
        for peer in peers:
            peer.sendall(announced + b"x" * 10_000)
        assert end_of(server, "Cut") == before
        for peer in peers:
            peer.setblocking(False)
            with pytest.raises(
                BlockingIOError
            ):  # neither answered nor closed: the rest may still come
                peer.recv(1)


# ---------------------------------------------------------------- peers with a bad pace


def test_pullers_of_large_messages_that_never_read_are_not_read_any_more(server: Server) -> None:
    put_large_message(server, "Large")
    pulls = (
        Request(11, {**PULL, "topic": "Large"}).encode(1) * 60_000
    )  # some 18 MB, to be answered by 60 GB
    with everybody_else_is_served(server, serve, growth_mib_max=96), ExitStack() as stack:
        block_by_sending([stack.enter_context(deaf_peer(server)) for _ in range(4)], pulls)


def test_a_thousand_pulls_that_one_connection_has_waiting_are_each_answered_once(
    server: Server,
) -> None:
    count = 1000
    with (
        everybody_else_is_served(server, serve, growth_mib_max=32),
        Connection(server.address, SERVED_WITHIN_S) as consumer,
    ):
        hold_pulls(consumer, "Awaited", count)
        assert ask(server.address, Request(310, {**SEND, "b": "Awaited"}, b"at last")).code == 0
        answers = [consumer.receive() for _ in range(count)]
        assert {answer.code for answer in answers} == {0}
        assert sorted(answer.opaque for answer in answers) == list(range(1000, 1000 + count))


def test_a_large_message_for_many_pulls_of_a_peer_that_never_reads_is_not_kept_for_each(
    server: Server,
) -> None:
    with everybody_else_is_served(server, serve, growth_mib_max=64), deaf_peer(server) as peer:
        consumer = Connection(peer, SERVED_WITHIN_S)
        hold_pulls(consumer, "Flood", 500)
        put_large_message(server, "Flood")  # half a gigabyte, were each pull answered with it
        answers = [consumer.receive() for _ in range(500)]
        codes = {answer.code for answer in answers}
        assert codes == {0, 19}
        untaken = next(answer for answer in answers if answer.code == 19)
        assert untaken.fields["nextBeginOffset"] == "0"
        assert "pull again" in (untaken.remark or "")
        assert consumer.ask(Request(11, {**PULL, "topic": "Flood"})).code == 0


def hold_pulls(consumer: Connection, topic: str, count: int) -> None:
    """Let pulls of an empty queue wait; their opaques begin with 1000."""
    assert consumer.ask(Request(17, {**SERVED[17].good_fields, "topic": topic})).code == 0
    fields = {
        **PULL,
        "topic": topic,
        "sysFlag": str(SUSPENDS | SUBSCRIPTION),
        "suspendTimeoutMillis": "600000",
    }
    consumer.send_bytes(
        b"".join(Request(11, fields).encode(1000 + number) for number in range(count))
    )
    assert (
        consumer.ask(Request(30, {"topic": topic, "queueId": "0"})).fields["offset"] == "0"
    )  # those before it were looked at


def test_a_producer_of_one_way_messages_that_never_reads_is_taken_at_the_pace_of_the_log(
    server: Server,
) -> None:
    message = Request(310, {**SEND, "b": "OneWay", "d": "1"}, bytes(64 << 10), flag=ONEWAY).encode(
        1
    )
    count = 64 * MIB // len(message)
    with everybody_else_is_served(server, serve, growth_mib_max=64), deaf_peer(server) as peer:
        peer.settimeout(SERVED_WITHIN_S)
        for _ in range(count):
            peer.sendall(message)
        wait_until(lambda: end_of(server, "OneWay") == count, f"{count} messages are stored")


def test_frames_that_come_byte_by_byte_are_answered(server: Server) -> None:
    frame = Request(310, {**SEND, "b": "Slowly"}, b"slow").encode(1)
    with everybody_else_is_served(server, serve, growth_mib_max=16), ExitStack() as stack:
        peers = [
            stack.enter_context(Connection(server.address, SERVED_WITHIN_S)) for _ in range(100)
        ]
        for at in range(len(frame)):
            for peer in peers:
                peer.send_bytes(frame[at : at + 1])
        for peer in peers:
            assert peer.receive().code == 0
    assert end_of(server, "Slowly") == 100


# ---------------------------------------------------------------- many peers


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections_are_cheap_and_each_of_them_can_ask(server: Server) -> None:
    with everybody_else_is_served(server, serve, growth_mib_max=64), ExitStack() as stack:
        peers = []
        for number in range(10_000):
            source = (  # several addresses, should the ports of one run out, that nobody listens on
                f"127.0.1.{1 + number // 2500}"
            )
            peers.append(
                stack.enter_context(
                    socket.create_connection(
                        ("127.0.0.1", server.port), SERVED_WITHIN_S, (source, 0)
                    )
                )
            )
        # The system connects peers before the server accepts them.
        wait_until(lambda: open_files(server) > len(peers), "all peers are accepted")
        for peer in peers[::50]:
            peer.sendall(GOOD)
        for peer in peers[::50]:
            assert peer.recv(4, socket.MSG_WAITALL), "an idle connection was dropped"


def test_clients_that_come_and_go_are_forgotten(server: Server) -> None:
    names = [f"come-and-go-{number}" for number in range(10)]
    before = open_files(server)
    with everybody_else_is_served(server, serve, growth_mib_max=32):
        for number in range(1000):
            with Connection(server.address, SERVED_WITHIN_S) as client:
                client.send(Request(34, body=heartbeat(f"client-{number}", names[number % 10])))
                if number % 100 == 0:
                    wait_until(lambda: bool(online(server)), "a client that is there is known")
        wait_until(lambda: not online(server), "all clients are forgotten")
        assert open_files(server) < before + 50
    for name in names:
        assert ask(server.address, Request(203, {"consumerGroup": name})).code == 206
        assert ask(server.address, Request(38, {"consumerGroup": name})).code == 1


def heartbeat(client_id: str, group: str) -> bytes:
    subscription = {"topic": "Others", "subString": "*", "subVersion": 1}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    return json.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group}],
            "consumerDataSet": [consumer],
        }
    ).encode()


def online(server: Server) -> dict[str, object]:
    """The producers that the broker knows, by their groups."""
    found: dict[str, object] = ask(server.address, Request(328)).json()["data"]
    return found
