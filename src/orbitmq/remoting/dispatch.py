"""From a request's code to its handler: lanes with limits, refusals that say why, failures that become answers.

A plain function runs at once, within the turn that read the request. A coroutine function runs in a lane: so many at a time, so
many waiting, each waiting so long; what does not fit is answered SYSTEM_BUSY with the reason.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefused
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import FLAG_ONEWAY, RemotingCommand
from orbitmq.protocol.versions import V5_3_1
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.hooks import RpcHook

log = logging.getLogger(__name__)

# None: no answer now; the handler sends it later on the same channel, or never.
Answer = RemotingCommand | None
PlainHandler = Callable[[Channel, RemotingCommand], Answer]
WaitingHandler = Callable[[Channel, RemotingCommand], Awaitable[Answer]]
Handler = PlainHandler | WaitingHandler
Refusal = Callable[[], str | None]

_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
_BUSY = "system busy, start flow control for a while"


class Processor(Protocol):
    """Serves some request codes."""

    def handlers(self) -> Mapping[int, Handler]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """How many requests of a lane run at once, how many wait, and how long."""

    name: str
    running_max: int
    queue_max: int
    wait_ms_max: int = 5000


class _Entry(NamedTuple):
    handler: Handler
    lane: Lane | None
    refusal: Refusal | None


class _Job(NamedTuple):
    arrived_ms: int
    channel: Channel
    request: RemotingCommand
    handler: WaitingHandler


class Dispatcher:
    """The table of handlers, and the way of every request through it: by the guards, which may refuse it, and by the other hooks."""

    def __init__(
        self, clock: Clock, hooks: Sequence[RpcHook] = (), *, guards: Sequence[RpcHook] = (), requests_in_flight_max: int = 100_000
    ) -> None:
        self._clock = clock
        self._hooks = (*guards, *hooks)
        self._is_only_guarded = not hooks
        self._requests_in_flight_max = requests_in_flight_max
        self._entries: dict[int, _Entry] = {}
        self._unhindered: dict[int, PlainHandler] = {}  # neither hook, refusal nor lane before them: most requests, so they go first
        self._default: _Entry | None = None
        self._lanes: list[Lane] = []
        self._draining = False

    def add_lane(self, limits: LaneLimits) -> Lane:
        """A lane that several codes may share."""
        lane = Lane(limits, self._clock, self._run)
        self._lanes.append(lane)
        return lane

    def register(self, code: int, handler: Handler, *, lane: Lane | None = None, refusal: Refusal | None = None) -> None:
        """Serve `code` by `handler`; `refusal` is asked first and refuses by returning a reason."""
        assert code not in self._entries, f"request code {code} has two handlers"
        self._entries[code] = self._entry(handler, lane, refusal)
        if lane is None and refusal is None and not self._hooks and not self._draining:
            self._unhindered[code] = cast("PlainHandler", handler)

    def register_default(self, handler: Handler, *, lane: Lane | None = None, refusal: Refusal | None = None) -> None:
        """Serve every code that has no handler of its own."""
        self._default = self._entry(handler, lane, refusal)

    def _entry(self, handler: Handler, lane: Lane | None, refusal: Refusal | None) -> _Entry:
        assert inspect.iscoroutinefunction(handler) == (lane is not None), f"{handler} is a coroutine function if and only if it has a lane"
        return _Entry(handler, lane, refusal)

    def is_direct(self, code: int, *, but_for_guards: bool = False) -> bool:
        """Whether nothing stands between a request of that code and its handler: no hook, no refusal, no lane.

        Whoever asks `but_for_guards` asks them himself, before each request that he serves.
        """
        if not but_for_guards:
            return code in self._unhindered
        entry = self._entries.get(code)
        return self._is_only_guarded and not self._draining and entry is not None and entry.lane is None and entry.refusal is None

    @property
    def codes(self) -> Collection[int]:
        """The codes that have a handler of their own."""
        return self._entries.keys()

    def drain(self) -> None:
        """From now on tell peers that understand it to go away."""
        self._draining = True
        self._unhindered.clear()

    async def close(self) -> None:
        """Drop the requests that wait in lanes and cancel those that run; for when the servers that feed it are stopped."""
        for lane in self._lanes:
            await lane.close()

    @property
    def in_flight(self) -> int:
        """How many requests run or wait in lanes."""
        return sum(lane.size for lane in self._lanes)

    def dispatch(self, channel: Channel, request: RemotingCommand) -> None:
        """Handle `request` and answer it on `channel`, now or when its lane is done with it."""
        handler = self._unhindered.get(request.code)
        if handler is None:
            self._dispatch_hindered(channel, request)
            return
        try:
            response = handler(channel, request)
        except Exception as problem:
            response = failure(request, problem)
        if response is not None:
            self._answer(channel, request, response)

    def _dispatch_hindered(self, channel: Channel, request: RemotingCommand) -> None:
        entry = self._entries.get(request.code) or self._default
        if entry is None:
            unsupported = f" request type {request.code} not supported"
            self._answer(channel, request, request.answer(_NOT_SUPPORTED, unsupported))
            return
        if self._draining and request.version > V5_3_1:
            self._answer(channel, request, request.answer(ResponseCode.GO_AWAY, "please go away"))
            return
        try:
            reason = entry.refusal() if entry.refusal is not None else None
        except Exception as problem:
            self._answer(channel, request, failure(request, problem))
            return
        if reason is not None:
            self._answer(channel, request, _busy(request, "REJECTREQUEST", reason))
        elif entry.lane is None:
            self._run_now(channel, request, cast("PlainHandler", entry.handler))
        else:
            job = _Job(self._clock.monotonic_ms(), channel, request, cast("WaitingHandler", entry.handler))
            self._enqueue(entry.lane, job)

    def _enqueue(self, lane: Lane, job: _Job) -> None:
        in_flight = self.in_flight
        if in_flight >= self._requests_in_flight_max:
            reason = f"{in_flight} requests are in flight, the most this server takes (maxRequestsInFlight); retry in a moment"
        else:
            reason = lane.submit(job) or ""
        if reason:
            self._answer(job.channel, job.request, _busy(job.request, "OVERLOAD", reason))

    def _run_now(self, channel: Channel, request: RemotingCommand, handler: PlainHandler) -> None:
        try:
            for hook in self._hooks:
                hook.before(channel.remote_address, request)
            response = handler(channel, request)
        except Exception as problem:
            response = failure(request, problem)
        self._finish(channel, request, response)

    async def _run(self, job: _Job, refused: str | None) -> None:
        """Run a job whose turn has come, or answer that it waited too long."""
        request = job.request
        if refused is not None:
            self._answer(job.channel, request, request.answer(ResponseCode.SYSTEM_BUSY, refused))
            return
        try:
            for hook in self._hooks:
                hook.before(job.channel.remote_address, request)
            response = await job.handler(job.channel, request)
        except Exception as problem:
            response = failure(request, problem)
        self._finish(job.channel, request, response)

    def _finish(self, channel: Channel, request: RemotingCommand, response: RemotingCommand | None) -> None:
        try:
            for hook in self._hooks:
                hook.after(channel.remote_address, request, response)
        except Exception as problem:
            told = failure(request, problem)
            response = None if response is None else told  # whoever answers later still does: a request has one answer
        if response is not None:
            self._answer(channel, request, response)

    def _answer(self, channel: Channel, request: RemotingCommand, response: RemotingCommand) -> None:
        if request.flag & FLAG_ONEWAY:
            return
        response.bind(request)
        try:
            channel.send(response)
        except Exception as problem:  # an answer that cannot be encoded
            channel.send(failure(request, problem))


class Lane:
    """Requests that run beside each other up to a limit, and wait in order beyond it."""

    def __init__(self, limits: LaneLimits, clock: Clock, run: Callable[[_Job, str | None], Awaitable[None]]) -> None:
        self.limits = limits
        self._clock = clock
        self._run = run
        self._waiting: deque[_Job] = deque()
        self._tasks: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return len(self._tasks) + len(self._waiting)

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._waiting)

    def waited_ms(self, now_ms: int) -> int:
        """For how long the first of them has waited; 0 when none does."""
        return now_ms - self._waiting[0].arrived_ms if self._waiting else 0

    def submit(self, job: _Job) -> str | None:
        """Run the job or let it wait; a reason when there is no room."""
        if len(self._tasks) < self.limits.running_max:
            self._start(job, None)
            return None
        if len(self._waiting) >= self.limits.queue_max:
            limits = self.limits
            return f"the {limits.name} queue is full: {limits.queue_max} requests wait, {limits.running_max} run; retry in a moment"
        self._waiting.append(job)
        self._plan_expiry()
        return None

    async def close(self) -> None:
        """Let nobody wait or run any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, job: _Job, refused: str | None) -> None:
        task = asyncio.ensure_future(self._run(job, refused))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        while self._waiting and len(self._tasks) < self.limits.running_max:
            self._start(self._waiting.popleft(), None)

    def _plan_expiry(self) -> None:
        """Look again when the job that waits longest has waited too long."""
        if self._timer is None and self._waiting:
            wait_ms = self._waiting[0].arrived_ms + self.limits.wait_ms_max - self._clock.monotonic_ms()
            self._timer = asyncio.get_running_loop().call_later(max(wait_ms, 1) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._waiting and now_ms - self._waiting[0].arrived_ms >= self.limits.wait_ms_max:
            size = len(self._waiting)
            job = self._waiting.popleft()
            self._start(
                job,
                f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {now_ms - job.arrived_ms}ms, "
                f"size of queue: {size}, running: {len(self._tasks)} in {self.limits.name}; retry in a moment",
            )
        self._plan_expiry()


def _busy(request: RemotingCommand, mark: str, reason: str) -> RemotingCommand:
    return request.answer(ResponseCode.SYSTEM_BUSY, f"[{mark}]{_BUSY}: {reason}")


def failure(request: RemotingCommand, problem: Exception) -> RemotingCommand:
    """The answer that tells of a refusal, or of a handler that failed: what, and where."""
    if isinstance(problem, RequestRefused):
        answer = request.answer(problem.code, problem.remark)
        answer.ext_fields = None if problem.fields is None else dict(problem.fields)
        return answer
    log.error("handler failed code=%s", request.code, exc_info=problem)
    frames = traceback.extract_tb(problem.__traceback__)
    where = f", {frames[-1].name} line {frames[-1].lineno}" if frames else ""
    return request.answer(ResponseCode.SYSTEM_ERROR, f"{type(problem).__name__}: {problem}{where}")
