"""Peers without sockets: real channels of a real endpoint, whose links keep what is sent, for tests
of a broker's clients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any, cast

from orbitmq.access.decisions import AccessDeniedError
from orbitmq.broker.clients.registry import ClientInfo
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import frame
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler, PlainHandler, RequestDispatcher, SlicedHandler
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.lanes import Reply
from orbitmq.remoting.slices import SliceQueue
from orbitmq.testing.manual_clock import ManualClock

_ports = itertools.count(40_000)


class Link:
    """A connection's bytes, kept."""

    channel: Any

    def __init__(self) -> None:
        self.reading = True
        self.last_active_ms = 0
        self.written = bytearray()

    @property
    def may_receive(self) -> bool:
        return self.reading

    def yield_if_late(self) -> None:
        """It has time."""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.reading = False


class Peers:
    """The connections of a server."""

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or ManualClock()
        self.endpoint = Endpoint(
            RequestDispatcher(clock), clock, limits=frame.FrameLimits(), invoke_max=100
        )

    def connect(self) -> Channel:
        """A new peer."""
        link = Link()
        channel = link.channel = Channel(
            self.endpoint,
            link,
            remote_address=f"127.0.0.1:{next(_ports) % 65536}",
            local_address="127.0.0.1:10911",
        )
        return channel

    def answer(self, channel: Channel, response: RemotingCommand) -> None:
        """Let the peer send an answer."""
        data = bytearray(frame.encode(response))
        assert self.endpoint.receive(channel.link, data, 0, len(data)) == len(data)


def sent(channel: Channel) -> list[RemotingCommand]:
    """What was sent to a peer since this was asked last."""
    assert isinstance(channel.link, Link)
    data, channel.link.written = channel.link.written, bytearray()
    commands, start = [], 0
    while start < len(data):
        end = frame.frame_end(data, start, len(data), frame.FrameLimits())
        commands.append(frame.decode(data, start, end))
        start = end
    return commands


def client(client_id: str, version: int = 513) -> ClientInfo:
    return ClientInfo(client_id, LanguageCode.JAVA, version)


class NoAccess:
    """Access control that is off."""

    def user_of(self, remote_address: str, request: RemotingCommand) -> str | None:
        return None

    def refusal(
        self, remote_address: str, request: RemotingCommand, denied: AccessDeniedError
    ) -> RequestRefusedError:
        raise AssertionError("nobody is denied anything")


def answered_now(handler: Handler, channel: Channel, request: RemotingCommand) -> Reply:
    """What a handler without a lane answers, all its slices run at once; None when the answer comes
    later.
    """
    answer = cast("PlainHandler | SlicedHandler", handler)(channel, request)
    return finish(answer) if isinstance(answer, Generator) else answer


class InlineSlices(SliceQueue):
    """Runs all slices at once, for tests without a loop."""

    def start(
        self,
        work: Slices[None],
        ended: Callable[[], object] | None = None,
        *,
        is_bounded: bool = False,
    ) -> bool:
        finish(work)
        return True
