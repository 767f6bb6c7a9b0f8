"""Dispatches requests to handlers by code: lanes with limits, refusals with reasons, failures as
responses.

A plain function runs at once, within the iteration that read the request. A coroutine function runs
in a lane, which limits how many run, how many wait, and for how long; requests beyond that are
refused with SYSTEM_BUSY and the reason. A generator function runs in slices (`slices.py`): the
first at once, which completes a small request, the rest one per loop iteration.

Invariant: requests that arrive on a connection after one in slices are held until it is done, which
preserves their order, and while the peer does not read its responses. The number of unfinished
requests in slices is limited, of large ones more tightly: what they have read and not sent yet
takes several times their size. The others wait in order and hold nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, cast

from orbitmq.common.clock import Clock
from orbitmq.common.errors import OrbitError, RefusedError, RequestRefusedError, reason_of
from orbitmq.common.slices import Slices, is_to_be_finished
from orbitmq.protocol.codes import REFUSAL_CODES, ResponseCode
from orbitmq.protocol.command import FLAG_ONEWAY, RemotingCommand
from orbitmq.protocol.in_flight import kept_bytes
from orbitmq.protocol.versions import V5_3_1
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.hooks import RpcGuard, RpcHook
from orbitmq.remoting.lanes import Job, Lane, LaneLimits, Reply, WaitingHandler
from orbitmq.remoting.slices import SliceQueue

log = logging.getLogger(__name__)

PlainHandler = Callable[[Channel, RemotingCommand], Reply]
SlicedHandler = Callable[[Channel, RemotingCommand], Slices[Reply]]
Handler = PlainHandler | WaitingHandler | SlicedHandler
Refusal = Callable[[], str | None]
# Called for each completed request: its code, the response code, the duration, and whether it was
# one-way. Responses sent later on the channel are reported by their sender.
OnReplied = Callable[[int, int, int, bool], object]

_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
_BUSY = "system busy, start flow control for a while"
_HELD_PER_SLICE: Final = 32  # held requests served per slice
_HELD_NS: Final = 5_000_000  # after this time the slice ends early
_UNTAKEN_WAIT_S: Final = 0.05  # interval between checks of a peer that does not read its responses
_BEGUN_MAX: Final = 256  # unfinished requests in slices
_LARGE_BEGUN_MAX: Final = 16
_LARGE_BYTES: Final = 64 * 1024


class Processor(Protocol):
    """Serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]: ...


class _Entry(NamedTuple):
    """A registered handler."""

    handler: Handler
    lane: Lane | None
    refusal: Refusal | None
    is_sliced: bool


class _Held(NamedTuple):
    """A request held until an earlier one on its connection is done."""

    request: RemotingCommand
    begun_ms: int
    size: int


class _Busy:
    """A connection with a request in slices, running or waiting to start, and the requests held
    behind it.
    """

    __slots__ = ("channel", "held", "outlives", "size", "work")

    def __init__(self, channel: Channel, size: int) -> None:
        self.channel = channel
        self.size = size  # of the request
        self.held: deque[_Held] = deque()
        self.outlives = False  # the current request continues if the connection closes
        self.work: Slices[None] | None = None


class RequestDispatcher:
    """Passes each request to its handler, through the guards, which may refuse it, and the other
    hooks.
    """

    def __init__(
        self,
        clock: Clock,
        hooks: Sequence[RpcHook] = (),
        *,
        guards: Sequence[RpcGuard] = (),
        requests_in_flight_max: int = 100_000,
        bytes_in_flight_max: int = 256 * 1024 * 1024,
        on_replied: OnReplied | None = None,
    ) -> None:
        self._on_replied = on_replied
        self._slices = (
            SliceQueue()
        )  # its own queue, so that many requests do not delay other work in slices
        self._busy: dict[Channel, _Busy] = {}
        self._held_count = 0
        self._begun = 0  # unfinished requests in slices
        self._waiting: deque[_Busy] = deque()
        self._large_waiting: deque[_Busy] = deque()
        self._clock = clock
        self._guards = guards
        self._own_hooks = hooks
        self._hooks = (*guards, *hooks)
        self._is_only_guarded = not hooks
        self._requests_in_flight_max = requests_in_flight_max
        self._bytes_in_flight_max = bytes_in_flight_max
        self.bytes_in_flight = (
            0  # of requests that run or wait in lanes, or are held behind one in slices
        )
        self._entries: dict[int, _Entry] = {}
        self._direct_handlers: dict[
            int, PlainHandler
        ] = {}  # without hook, refusal or lane: most requests, so they are looked up first
        self._default: _Entry | None = None
        self._lanes: list[Lane] = []
        self._draining = False

    def add_lane(self, limits: LaneLimits) -> Lane:
        """Return a new lane, which several codes may share."""
        lane = Lane(limits, self._clock, self._run)
        self._lanes.append(lane)
        return lane

    def register(
        self,
        code: int,
        handler: Handler,
        *,
        lane: Lane | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """Serve `code` by `handler`; `refusal` is called first and refuses by returning
        a reason.
        """
        assert code not in self._entries, f"request code {code} has two handlers"
        self._entries[code] = self._entry(handler, lane, refusal)
        is_direct = lane is None and refusal is None and not self._entries[code].is_sliced
        if is_direct and not self._hooks and not self._draining:
            self._direct_handlers[code] = cast("PlainHandler", handler)

    def register_default(
        self, handler: Handler, *, lane: Lane | None = None, refusal: Refusal | None = None
    ) -> None:
        """Serve every code without a handler by `handler`."""
        self._default = self._entry(handler, lane, refusal)

    def _entry(self, handler: Handler, lane: Lane | None, refusal: Refusal | None) -> _Entry:
        assert inspect.iscoroutinefunction(handler) == (lane is not None), (
            f"{handler} is a coroutine function if and only if it has a lane"
        )
        return _Entry(handler, lane, refusal, inspect.isgeneratorfunction(handler))

    def is_direct(self, code: int, *, but_for_guards: bool = False) -> bool:
        """Return whether requests with this code go straight to their handler: no hook, refusal or
        lane.

        With `but_for_guards` the caller checks the guards itself, before each request that it
        serves.
        """
        if not but_for_guards:
            return code in self._direct_handlers
        entry = self._entries.get(code)
        if entry is None or entry.lane is not None or entry.refusal is not None or entry.is_sliced:
            return False
        return self._is_only_guarded and not self._draining

    @property
    def busy(self) -> Collection[Channel]:
        """Return the connections with a request in slices: requests on them must be dispatched,
        which holds them.
        """
        return self._busy

    @property
    def codes(self) -> Collection[int]:
        """Return the codes that have their own handler."""
        return self._entries.keys()

    def drain(self) -> None:
        """From now on send GO_AWAY to peers that understand it."""
        self._draining = True
        self._direct_handlers.clear()

    async def close(self) -> None:
        """Drop the requests that wait in lanes and cancel those that run; called after the servers
        that feed it are stopped.
        """
        for channel in list(self._busy):
            self.disconnected(channel)
        self._slices.close()
        for lane in self._lanes:
            await lane.close()

    @property
    def in_flight(self) -> int:
        """Return the number of requests that run or wait in lanes or slices."""
        return sum(lane.size for lane in self._lanes) + self._begun + self._held_count

    def disconnected(self, channel: Channel) -> None:
        """Drop the request in slices of a closed connection, and those held behind it; called
        before listeners are notified.
        """
        busy = self._busy.pop(channel, None)
        if busy is None:
            return
        while busy.held:
            self._let_go(busy.held.popleft())
        if busy.work is None:  # waiting to start, or for its peer
            self.bytes_in_flight -= busy.size
        elif not busy.outlives:
            self._slices.cancel(busy.work)
            self._ended(busy)

    def dispatch(self, channel: Channel, request: RemotingCommand) -> None:
        """Handle `request` and reply on `channel`, now or when its lane is done with it."""
        begun_ms = 0 if self._on_replied is None else self._clock.monotonic_ms()
        if self._busy and channel in self._busy:
            self._hold(channel, request, begun_ms)
            return
        self._dispatch(channel, request, begun_ms)

    def _dispatch(self, channel: Channel, request: RemotingCommand, begun_ms: int) -> None:
        handler = self._direct_handlers.get(request.code)
        if handler is None:
            self._dispatch_checked(channel, request, begun_ms)
            return
        try:
            response = handler(channel, request)
        except Exception as problem:
            response = failure(request, problem)
        if response is not None:
            self._reply(channel, request, response, begun_ms)

    def _dispatch_checked(self, channel: Channel, request: RemotingCommand, begun_ms: int) -> None:
        entry = self._entries.get(request.code) or self._default
        refused = self._refused(entry, request)
        if entry is None or refused is not None:
            assert refused is not None
            self._reply(channel, request, refused, begun_ms)
        elif entry.is_sliced:
            self._start_slices(channel, request, begun_ms)
        elif entry.lane is None:
            self._run_now(channel, request, cast("PlainHandler", entry.handler), begun_ms)
        else:
            job = Job(
                self._clock.monotonic_ms(),
                channel,
                request,
                cast("WaitingHandler", entry.handler),
                kept_bytes(request),
            )
            self._enqueue(entry.lane, job)

    def _refused(self, entry: _Entry | None, request: RemotingCommand) -> RemotingCommand | None:
        """Return the response to a request that must not reach its handler, or None."""
        if entry is None:
            return request.reply(_NOT_SUPPORTED, f" request type {request.code} not supported")
        if self._draining and request.version > V5_3_1:
            return request.reply(ResponseCode.GO_AWAY, "please go away")
        try:
            reason = entry.refusal() if entry.refusal is not None else None
        except Exception as problem:
            return failure(request, problem)
        return None if reason is None else _busy(request, "REJECTREQUEST", reason)

    def _enqueue(self, lane: Lane, job: Job) -> None:
        reason = self._no_room(job.size) or lane.submit(job)
        if reason is None:
            self.bytes_in_flight += job.size
        else:
            self._reply(
                job.channel, job.request, _busy(job.request, "OVERLOAD", reason), job.arrived_ms
            )

    def _no_room(self, size: int) -> str | None:
        """Return why one more request of this size cannot be kept, or None."""
        in_flight = self.in_flight
        if in_flight >= self._requests_in_flight_max:
            return (
                f"{in_flight} requests are in flight, the most this server takes"
                " (maxRequestsInFlight); retry in a moment"
            )
        if self.bytes_in_flight + size > self._bytes_in_flight_max:
            return (
                f"requests in flight have {self.bytes_in_flight} bytes, {size} more would exceed"
                f" the {self._bytes_in_flight_max} that this server takes"
                " (maxRequestBytesInFlight); retry in a moment"
            )
        return None

    def _hold(self, channel: Channel, request: RemotingCommand, begun_ms: int) -> None:
        """Hold a request that arrived after one in slices on its connection."""
        held = _Held(request, begun_ms, kept_bytes(request))
        reason = self._no_room(held.size)
        if reason is not None:
            self._reply(channel, request, _busy(request, "OVERLOAD", reason), begun_ms)
            return
        self.bytes_in_flight += held.size
        self._held_count += 1
        self._busy[channel].held.append(held)

    def _let_go(self, held: _Held) -> None:
        self.bytes_in_flight -= held.size
        self._held_count -= 1

    def _start_slices(self, channel: Channel, request: RemotingCommand, begun_ms: int) -> None:
        """Start a request in slices, or queue it until others are done."""
        busy = _Busy(channel, kept_bytes(request))
        reason = self._no_room(busy.size)
        if reason is not None:
            self._reply(channel, request, _busy(request, "OVERLOAD", reason), begun_ms)
            return
        self.bytes_in_flight += busy.size
        busy.held.append(_Held(request, begun_ms, 0))
        self._held_count += 1
        self._busy[channel] = busy
        is_large = busy.size > _LARGE_BYTES
        if self._begun >= (_LARGE_BEGUN_MAX if is_large else _BEGUN_MAX):
            (self._large_waiting if is_large else self._waiting).append(busy)
        elif self._slices.start(self._begin(busy), lambda: self._ended(busy), is_bounded=True):
            self._ended(busy)

    def _begin(self, busy: _Busy) -> Slices[None]:
        self._begun += 1
        work = busy.work = self._in_slices(busy)
        return work

    def _ended(self, busy: _Busy) -> None:
        """Start waiting requests; check a peer that does not read its responses again later."""
        self._begun -= 1
        busy.work = None
        is_connected = self._busy.get(busy.channel) is busy
        if is_connected and busy.held:
            asyncio.get_running_loop().call_later(_UNTAKEN_WAIT_S, self._go_on, busy)
        else:
            self.bytes_in_flight -= busy.size
            if is_connected:
                del self._busy[busy.channel]
        for waiting, limit in (
            (self._waiting, _BEGUN_MAX),
            (self._large_waiting, _LARGE_BEGUN_MAX),
        ):
            while waiting and self._begun < limit:
                self._go_on(waiting.popleft())

    def _go_on(self, busy: _Busy) -> None:
        if self._busy.get(busy.channel) is busy:
            self._slices.add(self._begin(busy), lambda: self._ended(busy))

    def _in_slices(self, busy: _Busy) -> Slices[None]:
        """Serve a request in slices, then those held behind it, in order, as long as the peer reads
        its responses.
        """
        channel, behind = busy.channel, busy.held
        served, ends_ns = 0, time.monotonic_ns() + _HELD_NS
        while behind and channel.link.reading:
            held = behind.popleft()
            self._let_go(held)
            entry = self._entries.get(held.request.code) or self._default
            if entry is None or not entry.is_sliced:
                self._dispatch(channel, held.request, held.begun_ms)
            elif (refused := self._refused(entry, held.request)) is not None:
                self._reply(channel, held.request, refused, held.begun_ms)
            else:
                if served:
                    yield
                busy.outlives = is_to_be_finished(entry.handler)
                yield from self._replied_in_slices(
                    channel, held.request, cast("SlicedHandler", entry.handler), held.begun_ms
                )
                busy.outlives = False
            served += 1
            if behind and (served % _HELD_PER_SLICE == 0 or time.monotonic_ns() > ends_ns):
                yield
                ends_ns = time.monotonic_ns() + _HELD_NS

    def _replied_in_slices(
        self, channel: Channel, request: RemotingCommand, handler: SlicedHandler, begun_ms: int
    ) -> Slices[None]:
        try:
            for guard in self._guards:
                yield from guard.before_in_slices(channel.remote_address, request)
            for hook in self._own_hooks:
                hook.before(channel.remote_address, request)
            response = yield from handler(channel, request)
        except Exception as problem:
            response = failure(request, problem)
        self._finish(channel, request, response, begun_ms)

    def _run_now(
        self, channel: Channel, request: RemotingCommand, handler: PlainHandler, begun_ms: int
    ) -> None:
        try:
            for hook in self._hooks:
                hook.before(channel.remote_address, request)
            response = handler(channel, request)
        except Exception as problem:
            response = failure(request, problem)
        self._finish(channel, request, response, begun_ms)

    async def _run(self, job: Job, refused: str | None) -> None:
        """Run a job that left the queue, or reply that it waited too long."""
        try:
            await self._run_counted(job, refused)
        finally:
            self.bytes_in_flight -= job.size

    async def _run_counted(self, job: Job, refused: str | None) -> None:
        request = job.request
        if refused is not None:
            self._reply(
                job.channel,
                request,
                request.reply(ResponseCode.SYSTEM_BUSY, refused),
                job.arrived_ms,
            )
            return
        try:
            for hook in self._hooks:
                hook.before(job.channel.remote_address, request)
            response = await job.handler(job.channel, request)
        except Exception as problem:
            response = failure(request, problem)
        self._finish(job.channel, request, response, job.arrived_ms)

    def _finish(
        self,
        channel: Channel,
        request: RemotingCommand,
        response: RemotingCommand | None,
        begun_ms: int,
    ) -> None:
        try:
            for hook in self._hooks:
                hook.after(channel.remote_address, request, response)
        except Exception as problem:
            failed = failure(request, problem)
            response = (
                None if response is None else failed
            )  # a deferred response is still sent: a request has one response
        if response is not None:
            self._reply(channel, request, response, begun_ms)

    def _reply(
        self, channel: Channel, request: RemotingCommand, response: RemotingCommand, begun_ms: int
    ) -> None:
        is_oneway = bool(request.flag & FLAG_ONEWAY)
        if self._on_replied is not None:
            self._on_replied(
                request.code, response.code, self._clock.monotonic_ms() - begun_ms, is_oneway
            )
        if is_oneway:
            return
        response.bind(request)
        try:
            channel.send(response)
        except Exception as problem:  # a response that cannot be encoded
            channel.send(failure(request, problem))


def _busy(request: RemotingCommand, mark: str, reason: str) -> RemotingCommand:
    return request.reply(ResponseCode.SYSTEM_BUSY, f"[{mark}]{_BUSY}: {reason}")


def failure(request: RemotingCommand, problem: Exception) -> RemotingCommand:
    """Return the response to a refused or failed request: the reason, if it was expected; details
    go to the log only.
    """
    if isinstance(problem, RefusedError):
        return request.reply(REFUSAL_CODES[problem.refusal], problem.remark)
    if isinstance(problem, RequestRefusedError):
        response = request.reply(problem.code, problem.remark)
        response.ext_fields = None if problem.fields is None else dict(problem.fields)
        return response
    log.error("handler_failed code=%s opaque=%s", request.code, request.opaque, exc_info=problem)
    if isinstance(problem, OrbitError | OSError):
        remark = f"request {request.code} failed: {reason_of(problem)}"
    else:
        remark = (
            f"request {request.code} failed because of a fault in this server; its log has more"
            " (handler_failed)"
        )
    return request.reply(ResponseCode.SYSTEM_ERROR, remark)
