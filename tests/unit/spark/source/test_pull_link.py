"""Tests the pull connection: every reply has its own body, however the bytes and replies arrive."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from orbitmq.common.errors import RemoteUnavailableError
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import PullMessageResponseHeader
from orbitmq.spark.options import SourceOptions
from orbitmq.spark.source.pull_link import PullLink

Answering = Callable[[list[RemotingCommand]], bytes]
QUEUE = MessageQueue("orders", "broker-a", 0)
OPTIONS = SourceOptions.of({"nameServer": "127.0.0.1:9876", "subscribe": "orders"})


@contextmanager
def broker(asked: int, answering: Answering) -> Iterator[str]:
    """Wait for `count` pulls, send the replies in small and large chunks, and close the
    connection.
    """
    pieces = random.Random(1)

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            received = b""
            requests: list[RemotingCommand] = []
            while len(requests) < asked:
                received += peer.recv(1 << 16)
                while end := frame.frame_end(received, 0, len(received), frame.FrameLimits()):
                    requests.append(frame.decode(received, 0, end))
                    received = received[end:]
            answer = answering(requests)
            while answer:
                size = pieces.choice((1, 7, 100, 5_000, 300_000))
                peer.sendall(answer[:size])
                answer = answer[size:]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.join(30)


def answer(request: RemotingCommand, body: bytes) -> bytes:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1
    )
    return frame.encode(request.reply(ResponseCode.SUCCESS, header=header, body=body))


def bodies(address: str, asked: int) -> dict[int, bytes]:
    """Return the body of the reply to each pull by its number, read before the next `receive`."""
    link = PullLink(address, OPTIONS.client)
    try:
        link.select_queue("readers", QUEUE, OPTIONS.subscription_for(QUEUE.topic))
        for offset in range(asked):
            link.queue_pull(offset, 32)
        found: dict[int, bytes] = {}
        while len(found) < asked:
            for each in link.receive():
                assert each.number not in found
                found[each.number] = bytes(each.body)
        return found
    finally:
        link.close()


@pytest.mark.parametrize(
    "sizes", [(100, 20, 3_000), (1 << 19, 3 << 20, 40, 1 << 20), (5 << 20, 1, 2 << 20)], ids=str
)
def test_each_answer_has_its_body_whatever_pieces_and_order_it_comes_in(
    sizes: tuple[int, ...],
) -> None:
    sent = {number: random.Random(number).randbytes(size) for number, size in enumerate(sizes)}

    def backwards(requests: list[RemotingCommand]) -> bytes:
        return b"".join(
            answer(request, sent[number]) for number, request in reversed(list(enumerate(requests)))
        )

    with broker(len(sizes), backwards) as address:
        assert bodies(address, len(sizes)) == sent


def test_a_connection_that_ends_within_an_answer_is_told_as_such() -> None:
    with (
        broker(1, lambda requests: answer(requests[0], b"whole")[:-1]) as address,
        pytest.raises(RemoteUnavailableError, match="lost before"),
    ):
        bodies(address, 1)
