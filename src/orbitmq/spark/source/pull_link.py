"""A blocking connection to a broker for the pulls of one reader, with many requests in flight.

A Python worker has one thread that reads and decodes; an event loop in a second thread would
contend with it and multiply the cost of a pull. Bodies are not copied: they stay in the receive
buffer until the next call of `receive`. All other requests go through `cluster`. Links stay open
between the tasks of a worker, pooled by address and settings. A link that failed, or with replies
still in flight, is closed.
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

from orbitmq.access.credentials import RequestSigner
from orbitmq.client.consumer.pulling import BRINGS_SUBSCRIPTION, PullStatus
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import (
    ProtocolError,
    RemoteTimeoutError,
    RemoteUnavailableError,
    RequestRefusedError,
)
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
_HEAD_SIZE: Final = 8  # frame length and header length
_IDLE_S_MAX: Final = 60.0  # brokers close connections idle for two minutes
# The broker is unavailable; the request itself is fine.
_UNAVAILABLE: Final = (ResponseCode.GO_AWAY, ResponseCode.SYSTEM_BUSY)


def _wire_name(header: type[Header], name: str) -> str:
    return next(field.wire_name for field in wire_fields(header) if field.name == name)


_OFFSET: Final = _wire_name(PullMessageRequestHeader, "queue_offset")
_COUNT: Final = _wire_name(PullMessageRequestHeader, "max_msg_nums")
_NEXT: Final = _wire_name(PullMessageResponseHeader, "next_begin_offset")


class LinkReply(NamedTuple):
    """The reply to a pull; the bounds of the queue are known only if it found nothing."""

    number: int  # of the pull
    status: PullStatus
    body: memoryview | bytes  # valid until the next `receive`
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0


class PullLink:
    """A blocking connection to one broker, open until `close`."""

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self._address = address
        self._timeout_s = settings.timeout_ms / 1000
        self._signer = RequestSigner(settings.credentials) if settings.credentials else None
        self._limits = settings.remoting_config().frames
        self._socket = _connected(address, settings)
        self._buffer = bytearray(_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0  # of the received, not yet decoded bytes
        self._numbers = itertools.count()
        self._unsent: list[bytes] = []
        self._request = RemotingCommand(RequestCode.PULL_MESSAGE)
        self.in_flight = 0
        self.used_s = time.monotonic()  # last use

    def close(self) -> None:
        self._socket.close()

    def select_queue(self, group: str, queue: MessageQueue, wanted: SubscriptionData) -> None:
        """Set the queue of the following pulls."""
        assert not self.in_flight, "replies for another queue are still in flight"
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

    def queue_pull(self, offset: int, count: int) -> int:
        """Queue a pull and return its number; `receive` sends it."""
        request = self._request
        fields = request.ext_fields
        assert fields is not None, "select_queue comes first"
        fields[_OFFSET], fields[_COUNT] = str(offset), str(count)
        request.opaque = number = next(self._numbers)
        if self._signer is not None:
            request = RemotingCommand(request.code, ext_fields=dict(fields), opaque=number)
            self._signer.before(self._address, request)
        self._unsent.append(frame.encode(request))
        self.in_flight += 1
        return number

    def receive(self) -> list[LinkReply]:
        """Send queued pulls and return the replies received so far, waiting for the first one.

        RequestRefusedError is for the reader; a RemoteError may be retried. Invalidates the bodies
        of earlier replies.
        """
        found: list[LinkReply] = []
        try:
            if self._unsent:
                self._socket.sendall(b"".join(self._unsent))
                self._unsent.clear()
            while not found:
                self._read_more()
                while stop := frame.frame_end(self._buffer, self._begin, self._end, self._limits):
                    body_at = (
                        self._begin
                        + _HEAD_SIZE
                        + int.from_bytes(
                            self._view[self._begin + 5 : self._begin + _HEAD_SIZE], "big"
                        )
                    )
                    # The header only: the body is not copied.
                    command = frame.decode(self._buffer, self._begin, body_at)
                    self._begin = stop
                    if command.is_response:
                        self.in_flight -= 1
                        found.append(self._parse_reply(command, self._view[body_at:stop]))
        except TimeoutError:
            raise RemoteTimeoutError(
                f"{self._address} did not reply to a pull within {self._timeout_s:g} s"
            ) from None
        except (OSError, ProtocolError) as problem:
            raise RemoteUnavailableError(
                f"the connection to {self._address} was lost before the reply to a pull: {problem}"
            ) from problem
        return found

    def _read_more(self) -> None:
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._end == len(self._buffer):  # make room for the rest of a partial frame
            rest = self._view[self._begin :]
            if not self._begin:
                self._buffer = bytearray(2 * len(self._buffer))
                self._view = memoryview(self._buffer)
            self._view[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        size = self._socket.recv_into(self._view[self._end :])
        if not size:
            raise ConnectionError("closed by the broker")
        self._end += size

    def _parse_reply(self, command: RemotingCommand, body: memoryview) -> LinkReply:
        fields = command.ext_fields
        if command.code == ResponseCode.SUCCESS and fields is not None:
            next_offset = fields.get(_NEXT, "")
            if not next_offset.isdecimal():
                raise ProtocolError(
                    f"the reply to a pull has an invalid next offset {next_offset!r}"
                )
            return LinkReply(command.opaque, PullStatus.FOUND, body, int(next_offset))
        if command.code in _UNAVAILABLE:
            raise RemoteUnavailableError(
                f"{self._address} serves no pulls now: {command.remark or f'code {command.code}'}"
            )
        try:
            status = PullStatus(command.code)
        except ValueError:
            raise RequestRefusedError(
                command.code,
                command.remark or f"{self._address} replied to a pull with code {command.code}",
            ) from None
        header = PullMessageResponseHeader.from_fields(fields)
        return LinkReply(
            command.opaque,
            status,
            b"",
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
        )


def _connected(address: str, settings: ClientSettings) -> socket.socket:
    host, port = split_address(address)
    try:
        connection = socket.create_connection(
            (host, port), settings.remoting_config().connect_timeout_ms / 1000
        )
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
        raise RemoteUnavailableError(
            f"TLS with {address} failed: {problem}; does it use TLS, and do both sides trust each"
            " other?"
        ) from problem
    except OSError as problem:
        raise RemoteUnavailableError(
            f"cannot connect to {address}: {problem.strerror or problem}; is a broker running"
            " there?"
        ) from problem


_idle: dict[tuple[str, ClientSettings], list[PullLink]] = {}
os.register_at_fork(after_in_child=_idle.clear)  # a connection belongs to one process


@contextmanager
def borrow_link(address: str, settings: ClientSettings) -> Iterator[PullLink]:
    """Borrow a pooled link, or open one, for the duration of the block."""
    pool = _idle.setdefault((address, settings), [])
    while pool and time.monotonic() - pool[0].used_s > _IDLE_S_MAX:
        pool.pop(0).close()
    link = pool.pop() if pool else PullLink(address, settings)
    try:
        yield link
    except BaseException:
        link.close()
        raise
    if link.in_flight:
        link.close()
    else:
        link.used_s = time.monotonic()
        pool.append(link)
