"""No reply is sent before `before_send` was called."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.server import ServerConfig
from orbitmq.remoting.tls import ClientTls, client_context
from support.remoting.peers import Peer, connected, request, run, serving, sized

KIB, MIB = 1024, 1024 * 1024
ANYBODY = client_context(ClientTls(enabled=True))
NOW, LATER = 1001, 1002
# the first byte of a connection, and the TLS handshake, come before the last of them
ROUNDS = 3


class Commits:
    """A fast path that handles no request: its handlers acknowledge a commit by a small reply,
    followed by two large ones.
    """

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.has_commits = False
        self.left_early: list[bool] = []

    def commit(self, channel: Channel, question: RemotingCommand) -> RemotingCommand:
        self.has_commits = True
        channel.send(question.reply(0))
        channel.send(sized(channel, question))
        return sized(channel, question)

    async def commit_later(self, channel: Channel, question: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0)
        return self.commit(channel, question)

    def try_handle(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        return start

    def end_of_iteration(self) -> None:
        self.before_send()

    def before_send(self) -> None:
        if self.has_commits and self.peer is not None:
            self.left_early.append(self.peer.has_bytes())
        self.has_commits = False


@pytest.mark.parametrize("tls", [None, ANYBODY], ids=["plaintext", "TLS"])
@pytest.mark.parametrize(
    ("unsent_max", "size"),
    [(4 * KIB, 8 * KIB), (64 * MIB, 9 * MIB), (64 * MIB, 1)],
    ids=["too much for its link", "too much for all links", "little"],
)
@pytest.mark.parametrize("code", [NOW, LATER], ids=["at once", "later"])
def test_replies_leave_only_after_the_serving_side_was_told(
    code: int, unsent_max: int, size: int, tls: ssl.SSLContext | None
) -> None:
    commits = Commits()

    async def scenario() -> None:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(NOW, commits.commit)
        dispatcher.register(
            LATER,
            commits.commit_later,
            lane=dispatcher.add_lane(LaneLimits(name="later", running_max=1, queue_max=1)),
        )
        async with serving(
            ServerConfig(unsent_bytes_max=unsent_max), dispatcher=dispatcher
        ) as server:
            server.endpoint.fast_path = commits
            async with connected(server, tls) as peer:
                for number in range(ROUNDS):
                    peer.write(request(code, number, size=str(size)))
                    for _ in range(3):
                        assert (await peer.receive()).code == 0
                        assert not commits.has_commits
                    commits.peer = peer
                commits.peer = None

    run(scenario)
    assert commits.left_early == [False] * (ROUNDS - 1)
