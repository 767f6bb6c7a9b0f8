"""One side of the protocol, server or client: frames in, requests to the dispatcher, responses to
their callers.

It owns no socket: links pass it bytes by `receive` and are written to through their channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from orbitmq.common.clock import Clock
from orbitmq.common.errors import (
    ProtocolError,
    RemoteTimeoutError,
    RemoteUnavailableError,
    TooManyRequestsError,
)
from orbitmq.protocol.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from orbitmq.protocol.frame import FrameLimits, decode, frame_end
from orbitmq.protocol.in_flight import InFlight, opaques
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import RequestDispatcher

log = logging.getLogger(__name__)

Callback = Callable[[RemotingCommand | Exception], None]

EXPIRY_GRACE_MS = 1000  # as in the original: an entry is dropped a second after its timeout
TIMEOUT_STEP_S = 0.05  # resolution of call timeouts


class FastPath(Protocol):
    """Serves whole requests straight from the receive buffer, before anything is decoded.

    `try_handle` consumes whole frames from `start` on as long as it supports them and returns where
    it stopped; the general path serves the next frame. `end_of_iteration` runs when all ready
    connections are read. `before_send` runs before replies are sent earlier than that, possibly
    within `end_of_iteration`: it makes durable what the replies written so far acknowledge, and
    writes none.
    """

    def try_handle(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int: ...

    def end_of_iteration(self) -> None: ...

    def before_send(self) -> None: ...


class ConnectionListener(Protocol):
    """Receives the events of connections."""

    def on_connect(self, channel: Channel) -> None: ...

    def on_close(self, channel: Channel) -> None: ...

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...


class _Waiter(NamedTuple):
    """The caller of a request in flight."""

    callback: Callback
    address: str
    code: int
    timeout_ms: int

    def overdue(self) -> RemoteTimeoutError:
        return RemoteTimeoutError(
            f"{self.address} did not respond to request {self.code} within {self.timeout_ms} ms"
        )


class Endpoint:
    """The commands of all connections of one server or one client."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        clock: Clock,
        *,
        limits: FrameLimits,
        invoke_max: int,
        listeners: tuple[ConnectionListener, ...] = (),
        serialize_type: SerializeType = SerializeType.JSON,
        fast_path: FastPath | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self._busy = dispatcher.busy
        self.fast_path = fast_path
        self._clock = clock
        self._limits = limits
        self._invoke_max = invoke_max
        self._listeners = listeners
        self._is_json = serialize_type is SerializeType.JSON
        self._in_flight: InFlight[_Waiter] = InFlight()
        self._opaques = opaques()
        self._due: dict[
            int, list[int]
        ] = {}  # opaques by the time step of their timeout; most get a response long before

    # -- bytes in

    def receive(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        """Consume the whole frames of buffer[start:end]; stops early while the peer does not read
        its responses, or has used up its share.
        """
        fast_path, limits, channel = self.fast_path, self._limits, link.channel
        dispatch, busy = self.dispatcher.dispatch, self._busy
        while True:
            if (
                fast_path is not None and channel not in busy and link.may_receive
            ):  # the dispatcher keeps the order of requests on busy connections
                start = fast_path.try_handle(link, buffer, start, end)
            if not link.may_receive:
                break
            stop = frame_end(buffer, start, end, limits)
            if stop == 0:
                break
            command = decode(buffer, start, stop)
            start = stop
            if command.flag & 1:
                self._on_response(channel, command)
            else:
                dispatch(channel, command)
            link.yield_if_late()
        return start

    def end_of_iteration(self) -> None:
        """Let the fast path complete its requests: all ready connections are read."""
        if self.fast_path is not None:
            self.fast_path.end_of_iteration()

    def before_send(self) -> None:
        """Prepare for replies that are sent before the end of the iteration."""
        if self.fast_path is not None:
            self.fast_path.before_send()

    def _on_response(self, channel: Channel, command: RemotingCommand) -> None:
        waiter = self._in_flight.take(command.opaque, channel)
        if waiter is None:
            log.debug(
                "unexpected response peer=%s opaque=%d code=%d",
                channel.remote_address,
                command.opaque,
                command.code,
            )
        else:
            _settle(waiter, command)

    # -- connections

    def opened(self, channel: Channel) -> None:
        """Handle a new connection."""
        log.debug("connected peer=%s tls=%s", channel.remote_address, channel.is_tls)
        self._notify(lambda listener: listener.on_connect(channel))

    def closed(self, channel: Channel, error: BaseException | None) -> None:
        """Handle a closed connection: its pending calls fail at once."""
        channel.is_open = False
        self.dispatcher.disconnected(channel)
        if isinstance(error, ProtocolError | MemoryError):
            log.warning("connection closed peer=%s why=%s", channel.remote_address, error)
        elif error is not None and not isinstance(error, OSError):
            log.error(
                "connection closed peer=%s by a failure", channel.remote_address, exc_info=error
            )
        elif channel.close_reason is not None:
            log.info(
                "connection closed peer=%s why=%s", channel.remote_address, channel.close_reason
            )
        else:
            log.debug(
                "disconnected peer=%s why=%s", channel.remote_address, error or "closed by the peer"
            )
        if error is not None:
            self._notify(lambda listener: listener.on_exception(channel, error))
        self._notify(lambda listener: listener.on_close(channel))
        why = channel.close_reason or error or "the peer closed the connection"
        for waiter in self._in_flight.drop(channel):
            _settle(
                waiter,
                RemoteUnavailableError(
                    f"the connection to {channel.remote_address} closed before the response came:"
                    f" {why}"
                ),
            )

    def idle(self, channel: Channel, idle_ms: int) -> None:
        """Close a connection that was idle for too long."""
        self._notify(lambda listener: listener.on_idle(channel))
        channel.close(f"idle for {idle_ms // 1000} s")

    def _notify(self, notify: Callable[[ConnectionListener], None]) -> None:
        for listener in self._listeners:
            try:
                notify(listener)
            except Exception:
                log.exception("connection listener failed listener=%r", listener)

    # -- requests out

    def invoke_callback(
        self, channel: Channel, request: RemotingCommand, timeout_ms: int, callback: Callback
    ) -> int:
        """Send `request` and return its opaque; `callback` is called once with the response or the
        error.
        """
        if len(self._in_flight) >= self._invoke_max:
            raise TooManyRequestsError(
                f"{len(self._in_flight)} requests are in flight, the most allowed; nothing was sent"
            )
        self._check_sendable(channel)
        self._number(request)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms + EXPIRY_GRACE_MS
        self._in_flight.add(
            request.opaque,
            channel,
            deadline_ms,
            _Waiter(callback, channel.remote_address, request.code, timeout_ms),
        )
        try:
            channel.send(request)
        except BaseException:
            self._in_flight.take(request.opaque, channel)
            raise
        return request.opaque

    async def invoke(
        self, channel: Channel, request: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send `request` and return the response."""
        replied: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()

        def settle(result: RemotingCommand | Exception) -> None:
            if replied.done():
                return
            if isinstance(result, Exception):
                replied.set_exception(result)
            else:
                replied.set_result(result)

        opaque = self.invoke_callback(channel, request, timeout_ms, settle)
        self._fail_after(timeout_ms, opaque)
        try:
            return await replied
        except BaseException:
            self._in_flight.withdraw(opaque)
            raise

    def _fail_after(self, timeout_ms: int, opaque: int) -> None:
        """Schedule the timeout of a call; calls of the same time step share a timer, since one each
        would cost more than the call.
        """
        loop = asyncio.get_running_loop()
        step = int(loop.time() / TIMEOUT_STEP_S + timeout_ms / (1000 * TIMEOUT_STEP_S)) + 1
        due = self._due.get(step)
        if due is None:
            due = self._due[step] = []
            loop.call_at(step * TIMEOUT_STEP_S, self._time_is_over, step)
        due.append(opaque)

    def _time_is_over(self, step: int) -> None:
        for opaque in self._due.pop(step):
            waiter = self._in_flight.withdraw(opaque)
            if waiter is not None:
                _settle(waiter, waiter.overdue())

    def invoke_oneway(self, channel: Channel, request: RemotingCommand) -> None:
        """Send `request` without expecting a response."""
        self._check_sendable(channel)
        self._number(request)
        request.flag |= FLAG_ONEWAY
        channel.send(request)

    def _check_sendable(self, channel: Channel) -> None:
        """Raise if the peer is gone, or has left too much of what was sent to it unread."""
        if not channel.is_open or channel.close_reason is not None:
            raise RemoteUnavailableError(
                f"the connection to {channel.remote_address} is closed; nothing was sent"
            )
        if not channel.link.reading:
            raise TooManyRequestsError(
                f"{channel.remote_address} does not read what was sent to it before; nothing was"
                " sent"
            )

    def _number(self, request: RemotingCommand) -> None:
        """Assign the opaque of a request, and the header encoding unless its creator chose one."""
        request.opaque = next(self._opaques)
        if not self._is_json:
            request.serialize_type = SerializeType.ROCKETMQ

    def sweep(self) -> None:
        """Fail the requests whose response is overdue; called every second."""
        for waiter in self._in_flight.expire(self._clock.monotonic_ms()):
            _settle(waiter, waiter.overdue())


def _settle(waiter: _Waiter, result: RemotingCommand | Exception) -> None:
    """Pass a result to a waiter; a failing callback affects neither the connection nor the other
    waiters.
    """
    try:
        waiter.callback(result)
    except Exception:
        log.exception("callback failed")
