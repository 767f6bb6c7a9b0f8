"""A reply to an offset commit leaves the broker only when the journal has the commit, whatever else
is written to the connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.common.mem import Buffer
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.server import RemotingServer
from orbitmq.remoting.tls import ClientTls, client_context
from orbitmq.store.file_layer import OsFileLayer
from support.broker.process import pull_request, send_request
from support.broker.running import broker, request
from support.remoting.peers import Peer, connected, run

ANYBODY = client_context(ClientTls(enabled=True))
# the first byte of a connection, and what its TLS says by itself, come before the last of them
ROUNDS = 3


class WatchedJournal(OsFileLayer):
    """Notes of each write to the offset journal whether bytes of the broker had reached the watched
    peer before.
    """

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.bytes_came_first: list[bool] = []
        self._journals: set[int] = set()

    def open(self, path: Path, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        if path.name.startswith("consumerOffset.journal"):
            self._journals.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._journals.discard(descriptor)
        super().close(descriptor)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        if self.peer is not None and descriptor in self._journals:
            self.bytes_came_first.append(self.peer.has_bytes())
        super().pwrite(descriptor, data, offset)


def commit(offset: int) -> RemotingCommand:
    return request(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup="g",
        topic="T",
        queueId="0",
        commitOffset=str(offset),
    )


def pull_that_commits(offset: int) -> RemotingCommand:
    pull = pull_request("T", 0)
    assert pull.ext_fields is not None
    pull.ext_fields |= {"sysFlag": "5", "commitOffset": str(offset)}
    return pull


@pytest.mark.parametrize("tls", [None, ANYBODY], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("ask", [commit, pull_that_commits])
def test_a_reply_to_a_commit_leaves_after_the_journal_has_it_though_a_large_reply_follows(
    tmp_path: Path, tls: ssl.SSLContext | None, ask: Callable[[int], RemotingCommand]
) -> None:
    journal = WatchedJournal()

    async def scenario() -> None:
        async with broker(
            tmp_path,
            journal,
            writeBufferHighWaterMark="1000",
            flushConsumerOffsetInterval="3600000",
        ) as running:
            for first in (
                send_request("T", b"x" * 30_000),
                pull_request("T", 0),
            ):  # the pull makes the group
                assert (await running(first)).code == ResponseCode.SUCCESS
            assert running.broker._requests is not None
            server: RemotingServer = running.broker._requests.servers["remoting server"]
            async with connected(server, tls) as peer:
                for offset in range(1, ROUNDS + 1):
                    peer.write(frame.encode(ask(offset)) + frame.encode(pull_request("T", 0)))
                    for _ in range(2):
                        assert (await peer.receive()).code == ResponseCode.SUCCESS
                    journal.peer = peer
                journal.peer = None

    run(scenario)
    assert journal.bytes_came_first == [False] * (ROUNDS - 1)
