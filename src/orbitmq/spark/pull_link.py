"""A connection to a broker for the pulls of one reader: blocking, many requests ahead, each frame decoded where it lies.

A Python worker has one thread that reads and decodes; a second one with an event loop would take turns with it, and cost several times as
much for each pull. Bodies are not copied: they lie where they were received, until the next answers are waited for. Everything else that a
cluster is asked goes by `cluster`. Links are kept open between the tasks of a worker, by what they were opened with. A link on which
something went wrong, or on which answers are still to come, is closed.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from orbitmq.client.credentials import RequestSigner
from orbitmq.client.pulling import BRINGS_SUBSCRIPTION, PullStatus
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import ProtocolError, RemoteTimeout, RemoteUnavailable, RequestRefused
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.base import Header, wire_fields
from orbitmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from orbitmq.remoting.name_servers import split_address
from orbitmq.remoting.tls import client_context

_BUFFER_SIZE: Final = 1 << 20
_HEAD_SIZE: Final = 8  # of a frame, before its header
_KEPT_S: Final = 60.0  # brokers close what is idle for two minutes
_AWAY: Final = (ResponseCode.GO_AWAY, ResponseCode.SYSTEM_BUSY)  # it is not the request that is wrong


def _wire_name(header: type[Header], name: str) -> str:
    return next(field.wire_name for field in wire_fields(header) if field.name == name)


_OFFSET: Final = _wire_name(PullMessageRequestHeader, "queue_offset")
_COUNT: Final = _wire_name(PullMessageRequestHeader, "max_msg_nums")
_NEXT: Final = _wire_name(PullMessageResponseHeader, "next_begin_offset")


class Answer(NamedTuple):
    """What came of a pull; the ends of the queue are told only when it found nothing."""

    number: int  # of the pull
    status: PullStatus
    body: memoryview | bytes  # good until the link is asked for more
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0


class PullLink:
    """See above; from its making to `close`."""

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self._address = address
        self._timeout_s = settings.timeout_ms / 1000
        self._signer = RequestSigner(settings.credentials) if settings.credentials else None
        self._limits = settings.remoting_config().frames
        self._socket = _connected(address, settings)
        self._buffer = bytearray(_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0  # of what came and is not decoded
        self._numbers = itertools.count()
        self._unsent: list[bytes] = []
        self._request = RemotingCommand(RequestCode.PULL_MESSAGE)
        self.in_flight = 0
        self.used_s = time.monotonic()  # last

    def close(self) -> None:
        self._socket.close()

    def aim(self, group: str, queue: MessageQueue, wanted: SubscriptionData) -> None:
        """The pulls to come are of this queue."""
        assert not self.in_flight, "answers of another queue are still to come"
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=0,
            sys_flag=BRINGS_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=wanted.sub_version,
            subscription=wanted.sub_string,
            expression_type=wanted.expression_type,
        )
        self._request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)

    def ask(self, offset: int, count: int) -> int:
        """Prepare a pull; its number. It is sent when answers are waited for."""
        request = self._request
        fields = request.ext_fields
        assert fields is not None, "aim comes first"
        fields[_OFFSET], fields[_COUNT] = str(offset), str(count)
        request.opaque = number = next(self._numbers)
        if self._signer is not None:
            request = RemotingCommand(request.code, ext_fields=dict(fields), opaque=number)
            self._signer.before(self._address, request)
        self._unsent.append(frame.encode(request))
        self.in_flight += 1
        return number

    def answers(self) -> list[Answer]:
        """Those that are here, at least one: the first is waited for. RequestRefused is for the reader, RemoteError for another try.

        The bodies of answers before these are no more.
        """
        found: list[Answer] = []
        try:
            if self._unsent:
                self._socket.sendall(b"".join(self._unsent))
                self._unsent.clear()
            while not found:
                self._receive()
                while stop := frame.frame_end(self._buffer, self._begin, self._end, self._limits):
                    body_at = self._begin + _HEAD_SIZE + int.from_bytes(self._view[self._begin + 5 : self._begin + _HEAD_SIZE], "big")
                    command = frame.decode(self._buffer, self._begin, body_at)  # as if it had no body
                    self._begin = stop
                    if command.is_response:
                        self.in_flight -= 1
                        found.append(self._read(command, self._view[body_at:stop]))
        except TimeoutError:
            raise RemoteTimeout(f"{self._address} did not answer a pull within {self._timeout_s:g} s") from None
        except (OSError, ProtocolError) as problem:
            raise RemoteUnavailable(f"the connection to {self._address} ended before the answer to a pull came: {problem}") from problem
        return found

    def _receive(self) -> None:
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._end == len(self._buffer):  # a frame is begun, and not whole: it needs the room before it, or more
            rest = self._view[self._begin :]
            if not self._begin:
                self._buffer = bytearray(2 * len(self._buffer))
                self._view = memoryview(self._buffer)
            self._view[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        size = self._socket.recv_into(self._view[self._end :])
        if not size:
            raise ConnectionError("the broker closed it")
        self._end += size

    def _read(self, command: RemotingCommand, body: memoryview) -> Answer:
        fields = command.ext_fields
        if command.code == ResponseCode.SUCCESS and fields is not None:
            told_next = fields.get(_NEXT, "")
            if not told_next.isdecimal():
                raise ProtocolError(f"an answer to a pull says that it goes on at {told_next!r}")
            return Answer(command.opaque, PullStatus.FOUND, body, int(told_next))
        if command.code in _AWAY:
            raise RemoteUnavailable(f"{self._address} serves no pulls now: {command.remark or f'it answers {command.code}'}")
        try:
            status = PullStatus(command.code)
        except ValueError:
            raise RequestRefused(command.code, command.remark or f"{self._address} answered a pull with code {command.code}") from None
        told = PullMessageResponseHeader.from_fields(fields)
        return Answer(command.opaque, status, b"", told.next_begin_offset, told.min_offset, told.max_offset)


def _connected(address: str, settings: ClientSettings) -> socket.socket:
    host, port = split_address(address)
    try:
        connection = socket.create_connection((host, port), settings.remoting_config().connect_timeout_ms / 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(settings.timeout_ms / 1000)
        if not settings.tls.enabled:
            return connection
        try:
            return client_context(settings.tls).wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise
    except ssl.SSLError as problem:
        raise RemoteUnavailable(f"TLS with {address} failed: {problem}; does it speak TLS, and do both sides trust the other?") from problem
    except OSError as problem:
        raise RemoteUnavailable(f"cannot connect to {address}: {problem.strerror or problem}; is a broker running there?") from problem


_idle: dict[tuple[str, ClientSettings], list[PullLink]] = {}
os.register_at_fork(after_in_child=_idle.clear)  # a connection belongs to one process


@contextmanager
def link_to(address: str, settings: ClientSettings) -> Iterator[PullLink]:
    """A link for as long as one reader needs it."""
    kept = _idle.setdefault((address, settings), [])
    while kept and time.monotonic() - kept[0].used_s > _KEPT_S:
        kept.pop(0).close()
    link = kept.pop() if kept else PullLink(address, settings)
    try:
        yield link
    except BaseException:
        link.close()
        raise
    if link.in_flight:
        link.close()
    else:
        link.used_s = time.monotonic()
        kept.append(link)
