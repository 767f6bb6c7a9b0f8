"""One side of the protocol, server or client: frames in, commands to the dispatcher, answers to whoever asked.

It owns no socket: links hand it bytes by `receive` and are written to through their channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from orbitmq.common.clock import Clock
from orbitmq.common.errors import ProtocolError, RemoteTimeout, RemoteUnavailable, TooManyRequests
from orbitmq.protocol.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from orbitmq.protocol.frame import FrameLimits, decode, frame_end
from orbitmq.protocol.in_flight import InFlight, opaques
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import Dispatcher

log = logging.getLogger(__name__)

Callback = Callable[[RemotingCommand | Exception], None]

EXPIRY_GRACE_MS = 1000  # as the original: an entry is dropped a second after its timeout
TIMEOUT_STEP_S = 0.05  # so much later than asked for a call may find that its time is over


class Taker(Protocol):
    """A room's kernel that takes whole requests straight from the buffer, before anything is decoded.

    `take` consumes whole frames from `start` on as long as it knows them and returns where it stopped; `end_turn` runs when all
    ready connections are read. `before_send` runs before replies leave earlier than that, maybe within `end_turn`: it makes durable
    what the replies written so far acknowledge, and writes none.
    """

    def take(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int: ...

    def end_turn(self) -> None: ...

    def before_send(self) -> None: ...


class ConnectionListener(Protocol):
    """Is told what becomes of connections."""

    def on_connect(self, channel: Channel) -> None: ...

    def on_close(self, channel: Channel) -> None: ...

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...


class _Waiter(NamedTuple):
    """Who waits for the answer to what."""

    callback: Callback
    address: str
    code: int
    timeout_ms: int

    def overdue(self) -> RemoteTimeout:
        return RemoteTimeout(f"{self.address} did not answer request {self.code} within {self.timeout_ms} ms")


class Endpoint:
    """The commands of all connections of one server or one client."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        limits: FrameLimits,
        invoke_max: int,
        listeners: tuple[ConnectionListener, ...] = (),
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> None:
        self.dispatcher = dispatcher
        self._busy = dispatcher.busy
        self.taker: Taker | None = None
        self._clock = clock
        self._limits = limits
        self._invoke_max = invoke_max
        self._listeners = listeners
        self._is_json = serialize_type is SerializeType.JSON
        self._in_flight: InFlight[_Waiter] = InFlight()
        self._opaques = opaques()
        self._due: dict[int, list[int]] = {}  # opaques by the step in which their time is over; most are answered long before

    # -- bytes in

    def receive(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        """Consume the whole frames of buffer[start:end]; stops early while the peer does not take its answers, or had its share."""
        taker, limits, channel = self.taker, self._limits, link.channel
        dispatch, busy = self.dispatcher.dispatch, self._busy
        while True:
            if taker is not None and channel not in busy and link.may_receive:  # of one that is busy the dispatcher keeps the order
                start = taker.take(link, buffer, start, end)
            if not link.may_receive:
                break
            stop = frame_end(buffer, start, end, limits)
            if stop == 0:
                break
            command = decode(buffer, start, stop)
            start = stop
            if command.flag & 1:
                self._on_answer(channel, command)
            else:
                dispatch(channel, command)
            link.yield_if_late()
        return start

    def end_turn(self) -> None:
        """All ready connections are read: let a kernel finish what it took."""
        if self.taker is not None:
            self.taker.end_turn()

    def before_send(self) -> None:
        """Replies are about to leave before the end of the turn."""
        if self.taker is not None:
            self.taker.before_send()

    def _on_answer(self, channel: Channel, command: RemotingCommand) -> None:
        waiter = self._in_flight.take(command.opaque, channel)
        if waiter is None:
            log.debug("answer nobody waits for peer=%s opaque=%d code=%d", channel.remote_address, command.opaque, command.code)
        else:
            _settle(waiter, command)

    # -- connections

    def opened(self, channel: Channel) -> None:
        """A peer is connected."""
        log.debug("connected peer=%s tls=%s", channel.remote_address, channel.is_tls)
        self._tell(lambda listener: listener.on_connect(channel))

    def closed(self, channel: Channel, error: BaseException | None) -> None:
        """A connection ended: fail what waits for its answers at once."""
        channel.is_open = False
        self.dispatcher.disconnected(channel)
        if isinstance(error, ProtocolError | MemoryError):
            log.warning("connection closed peer=%s why=%s", channel.remote_address, error)
        elif error is not None and not isinstance(error, OSError):
            log.error("connection closed peer=%s by a failure", channel.remote_address, exc_info=error)
        elif channel.close_reason is not None:
            log.info("connection closed peer=%s why=%s", channel.remote_address, channel.close_reason)
        else:
            log.debug("disconnected peer=%s why=%s", channel.remote_address, error or "closed by the peer")
        if error is not None:
            self._tell(lambda listener: listener.on_exception(channel, error))
        self._tell(lambda listener: listener.on_close(channel))
        why = channel.close_reason or error or "the peer closed the connection"
        for waiter in self._in_flight.drop(channel):
            _settle(waiter, RemoteUnavailable(f"the connection to {channel.remote_address} ended before the answer came: {why}"))

    def idle(self, channel: Channel, idle_ms: int) -> None:
        """Nothing moved on a connection for too long: close it."""
        self._tell(lambda listener: listener.on_idle(channel))
        channel.close(f"idle for {idle_ms // 1000} s")

    def _tell(self, tell: Callable[[ConnectionListener], None]) -> None:
        for listener in self._listeners:
            try:
                tell(listener)
            except Exception:
                log.exception("connection listener failed listener=%r", listener)

    # -- requests out

    def invoke_callback(self, channel: Channel, request: RemotingCommand, timeout_ms: int, callback: Callback) -> int:
        """Send `request`; `callback` gets the answer, or the error, once. The number is the request's opaque."""
        if len(self._in_flight) >= self._invoke_max:
            raise TooManyRequests(f"{len(self._in_flight)} requests wait for their answers, the most allowed; nothing was sent")
        self._check_sendable(channel)
        self._number(request)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms + EXPIRY_GRACE_MS
        self._in_flight.add(request.opaque, channel, deadline_ms, _Waiter(callback, channel.remote_address, request.code, timeout_ms))
        try:
            channel.send(request)
        except BaseException:
            self._in_flight.take(request.opaque, channel)
            raise
        return request.opaque

    async def invoke(self, channel: Channel, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send `request` and wait for its answer."""
        answered: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()

        def settle(result: RemotingCommand | Exception) -> None:
            if answered.done():
                return
            if isinstance(result, Exception):
                answered.set_exception(result)
            else:
                answered.set_result(result)

        opaque = self.invoke_callback(channel, request, timeout_ms, settle)
        self._fail_after(timeout_ms, opaque)
        try:
            return await answered
        except BaseException:
            self._in_flight.withdraw(opaque)
            raise

    def _fail_after(self, timeout_ms: int, opaque: int) -> None:
        """One timer for all calls whose time is over in the same step: a timer of its own would cost more than the call."""
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
        """Send `request`, which nobody answers."""
        self._check_sendable(channel)
        self._number(request)
        request.flag |= FLAG_ONEWAY
        channel.send(request)

    def _check_sendable(self, channel: Channel) -> None:
        """Refuse to send to a peer that is gone, or that leaves too much of what was sent to it unread."""
        if not channel.is_open or channel.close_reason is not None:
            raise RemoteUnavailable(f"the connection to {channel.remote_address} is closed; nothing was sent")
        if not channel.link.reading:
            raise TooManyRequests(f"{channel.remote_address} does not take what was sent to it before; nothing was sent")

    def _number(self, request: RemotingCommand) -> None:
        """Give a request its opaque, and its header encoding unless whoever made it chose one."""
        request.opaque = next(self._opaques)
        if not self._is_json:
            request.serialize_type = SerializeType.ROCKETMQ

    def sweep(self) -> None:
        """Fail the requests whose answer is overdue; called every second."""
        for waiter in self._in_flight.expire(self._clock.monotonic_ms()):
            _settle(waiter, waiter.overdue())


def _settle(waiter: _Waiter, result: RemotingCommand | Exception) -> None:
    """Tell a waiter its result; one that fails costs neither the connection nor the other waiters anything."""
    try:
        waiter.callback(result)
    except Exception:
        log.exception("callback failed")
