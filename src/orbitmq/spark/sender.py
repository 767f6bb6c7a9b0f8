"""Sends what tasks hand it, many requests at a time, and again while brokers cannot be reached.

One producer per process and settings, kept as long as the process lives: workers are used again. While the brokers of a topic fail it is
tried for `retry_ms`; a topic that no name server has told of, only for the time of one request, so that a wrong address or name is told
soon. What is for one queue is sent one request after the other, everything else in any order.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from orbitmq.blocking import loop_thread
from orbitmq.blocking.loop_thread import Call
from orbitmq.client.messages import SendResult, SendStatus
from orbitmq.client.outbox import Outgoing, ProducerSettings
from orbitmq.client.producer import Producer
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import NotFound, OrbitError, RemoteError, RequestRefused, SendFailed
from orbitmq.message.message_id import UniqueIds
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.sink_options import SinkOptions

T = TypeVar("T")
S = TypeVar("S", bound="Sender")
_IN_FLIGHT_MAX: Final = 256  # requests of one task
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
_BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY})
log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """What was sent."""

    messages: int = 0
    requests: int = 0
    tries_more: int = 0  # of requests, after the first of each
    unsafe: int = 0  # messages that brokers have stored, but not as safely as they should

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())

    @classmethod
    def of_all(cls, parts: Iterable[Sent]) -> Sent:
        return cls(*map(sum, zip(*parts, strict=True))) if (parts := list(parts)) else cls()


class Delivered(NamedTuple):
    """What became of a request."""

    sent: Sent
    result: SendResult


class Sender:
    """See above; any thread may use it."""

    def __init__(self, client: ClientSettings, group: str, settings: ProducerSettings, retry_ms: int) -> None:
        self._names = client.names
        self._request_ms, self._retry_ms = settings.timeout_ms, retry_ms
        self._refreshing: asyncio.Task[None] | None = None
        self._loop = loop_thread.acquire()
        self._producer = self._loop.call(self._started, client, group, settings)

    def new_ids(self) -> UniqueIds:
        """Ids for the messages of one task."""
        return self._producer.new_ids()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that may be written to; the topic's name is the user's."""
        found, _ = self._loop.call(self._patiently, self._names.wire(topic), lambda: self._producer.queues(topic))
        if not found:
            raise NotFound(f"topic {topic} has no queue that may be written to: see its permissions, and whether its masters are up")
        return found

    def send(self, outgoing: Outgoing, queue: MessageQueue | None, count: int) -> Call[Delivered]:
        """Begin to send so many messages."""
        return self._loop.submit(self._deliver, outgoing, queue, count)

    def give_up(self, call: Call[Delivered]) -> None:
        """End what nobody waits for any more."""
        self._loop.give_up(call)

    # -- on the loop

    async def _started(self, client: ClientSettings, group: str, settings: ProducerSettings) -> Producer:
        """A producer belongs to the loop that it is made on."""
        producer = Producer(client, group=group, settings=settings)
        await producer.start()
        return producer

    async def _send_once(self, outgoing: Outgoing, queue: MessageQueue | None) -> SendResult:
        return await self._producer.send_outgoing(outgoing, queue)

    async def _deliver(self, outgoing: Outgoing, queue: MessageQueue | None, count: int) -> Delivered:
        result, tries_more = await self._patiently(outgoing.topic, lambda: self._send_once(outgoing, queue))
        return Delivered(Sent(count, 1, tries_more, 0 if result.status is SendStatus.SEND_OK else count), result)

    async def _patiently(self, topic: str, work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """What the work brings, and how often it was tried again; SendFailed when it did not in time."""
        loop, pause_s, tries_more = asyncio.get_running_loop(), _PAUSE_S, 0
        began_s = loop.time()
        while True:
            try:
                result = await work()
            except (SendFailed, RemoteError, NotFound) as problem:
                if not _may_pass(problem):
                    raise
                limit_ms = self._limit_ms(topic)
                if loop.time() + pause_s > began_s + limit_ms / 1000:
                    told = problem if isinstance(problem, SendFailed) else f"a message to topic {topic} was not sent: {problem}"
                    option = "retryTimeout" if limit_ms == self._retry_ms else "requestTimeout"
                    raise SendFailed(f"{told}; tried {1 + tries_more} times in {limit_ms / 1000:g} s (option {option})") from problem
                log.warning("sent_again topic=%s try=%d why='%s'", topic, 2 + tries_more, problem)
            else:
                return result, tries_more
            self._refresh_routes()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            tries_more += 1

    def _limit_ms(self, topic: str) -> int:
        """How long a topic is tried: where nobody has ever heard of it, not for long."""
        is_known = self._producer.session.known_route(topic) is not None
        return self._retry_ms if is_known else min(self._retry_ms, self._request_ms)

    def _refresh_routes(self) -> None:
        """Look for where brokers are now; one look at a time, for which nobody waits."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._producer.session.refresh_routes())


def _may_pass(problem: OrbitError) -> bool:
    """Whether the same may succeed later: nobody, or nobody who could, has said no."""
    cause = problem.__cause__ if isinstance(problem, SendFailed) else problem
    return not isinstance(cause, RequestRefused) or cause.code in _BUSY


class Deliveries:
    """What one task has sent, and has on its way. For one thread."""

    def __init__(self, sender: Sender, size_max: int, heard: Callable[[SendResult, MessageQueue | None], None] | None = None) -> None:
        self._sender = sender
        self._size_max = size_max
        self._heard = heard  # what brokers say, in the order in which it was sent, with the queue that it had to go to
        self._size = 0  # of bodies on their way
        self._in_flight: deque[tuple[Call[Delivered], int, MessageQueue | None]] = deque()
        self._of_queues: dict[MessageQueue, Call[Delivered]] = {}  # the last of each
        self._sent = Sent()

    def send(self, outgoing: Outgoing, queue: MessageQueue | None, count: int) -> None:
        """Begin to send messages, once there is room for them and what goes to their queue before them is there."""
        size = len(outgoing.body)
        while self._in_flight and (self._size + size > self._size_max or len(self._in_flight) == _IN_FLIGHT_MAX):
            self._settle()
        before = None if queue is None else self._of_queues.get(queue)
        if before is not None:
            before.wait()
        call = self._sender.send(outgoing, queue, count)
        self._in_flight.append((call, size, queue))
        self._size += size
        if queue is not None:
            self._of_queues[queue] = call

    def finish(self) -> Sent:
        """Wait until all are there; what they were."""
        while self._in_flight:
            self._settle()
        return self._sent

    def give_up(self) -> None:
        """Try nothing again of what is on its way."""
        for call, *_ in self._in_flight:
            self._sender.give_up(call)

    def _settle(self) -> None:
        call, size, queue = self._in_flight.popleft()
        self._size -= size
        sent, result = call.wait()
        self._sent = Sent.of_all((self._sent, sent))
        if self._heard is not None:
            self._heard(result, queue)


_kept: dict[tuple[type[Sender], ClientSettings, str, ProducerSettings, int], Sender] = {}
os.register_at_fork(after_in_child=_kept.clear)  # connections belong to one process


def sender_of(options: SinkOptions, kind: type[S]) -> S:
    """The sender of this process for these options, of that kind."""
    key = options.client, options.group, options.producer_settings(), options.retry_ms
    found = _kept.get((kind, *key))
    if found is None:
        found = _kept[(kind, *key)] = kind(*key)
    assert isinstance(found, kind)
    return found
