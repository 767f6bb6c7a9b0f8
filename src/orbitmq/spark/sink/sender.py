"""Sends the messages of tasks with many requests in flight, and retries while brokers are
unreachable.

There is one producer per process and settings, kept until the process ends, since Spark reuses
workers. A failing topic is retried for `retry_ms`; a topic unknown to all name servers only for the
time of one request, so that a wrong address or name is reported soon. Messages for one queue are
sent one request at a time, all others in any order.
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
from orbitmq.client.producer.outbox import OutgoingMessage, ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import (
    NotFoundError,
    OrbitError,
    RemoteError,
    RequestRefusedError,
    SendFailedError,
)
from orbitmq.message.message_id import UniqueIds
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.sink.options import SinkOptions

T = TypeVar("T")
S = TypeVar("S", bound="Sender")
_IN_FLIGHT_MAX: Final = 256  # requests of one task
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
_BUSY: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY}
)
log = logging.getLogger(__name__)


class SendStats(NamedTuple):
    """How many messages and requests were sent."""

    messages: int = 0
    requests: int = 0
    tries_more: int = 0  # retried requests
    unsafe: int = 0  # messages stored but not flushed or replicated as configured

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())

    @classmethod
    def of_all(cls, parts: Iterable[SendStats]) -> SendStats:
        """Return the sum of several stats."""
        return cls(*map(sum, zip(*parts, strict=True))) if (parts := list(parts)) else cls()


class DeliveryResult(NamedTuple):
    """The outcome of one request."""

    sent: SendStats
    result: SendResult


class Sender:
    """Sends requests through one producer on the loop thread, with retries; any thread may
    use it.
    """

    def __init__(
        self, client: ClientSettings, group: str, settings: ProducerSettings, retry_ms: int
    ) -> None:
        self._names = client.names
        self._request_ms, self._retry_ms = settings.timeout_ms, retry_ms
        self._refreshing: asyncio.Task[None] | None = None
        self._loop = loop_thread.acquire()
        self._producer = self._loop.call(self._started, client, group, settings)

    def new_ids(self) -> UniqueIds:
        """Return a generator of message ids for one task."""
        return self._producer.new_ids()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic; the topic is named without the namespace."""
        found, _ = self._loop.call(
            self._with_retries, self._names.wire(topic), lambda: self._producer.queues(topic)
        )
        if not found:
            raise NotFoundError(
                f"topic {topic} has no writable queue; check its permissions, and that its masters"
                " are up"
            )
        return found

    def send(
        self, outgoing: OutgoingMessage, queue: MessageQueue | None, count: int
    ) -> Call[DeliveryResult]:
        """Start to send a request of `count` messages."""
        return self._loop.submit(self._deliver, outgoing, queue, count)

    def cancel(self, call: Call[DeliveryResult]) -> None:
        """Cancel a request whose result is no longer needed."""
        self._loop.give_up(call)

    # -- on the loop

    async def _started(
        self, client: ClientSettings, group: str, settings: ProducerSettings
    ) -> Producer:
        """Start a producer on the loop it belongs to."""
        producer = Producer(client, group=group, settings=settings)
        await producer.start()
        return producer

    async def _send_once(self, outgoing: OutgoingMessage, queue: MessageQueue | None) -> SendResult:
        return await self._producer.send_outgoing(outgoing, queue)

    async def _deliver(
        self, outgoing: OutgoingMessage, queue: MessageQueue | None, count: int
    ) -> DeliveryResult:
        result, tries_more = await self._with_retries(
            outgoing.topic, lambda: self._send_once(outgoing, queue)
        )
        return DeliveryResult(
            SendStats(count, 1, tries_more, 0 if result.status is SendStatus.SEND_OK else count),
            result,
        )

    async def _with_retries(self, topic: str, work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Run `work` until it succeeds; return its result and the number of retries. Raises
        SendFailedError when the time is up.
        """
        loop, pause_s, tries_more = asyncio.get_running_loop(), _PAUSE_S, 0
        began_s = loop.time()
        while True:
            try:
                result = await work()
            except (SendFailedError, RemoteError, NotFoundError) as problem:
                if not _is_transient(problem):
                    raise
                limit_ms = self._retry_limit_ms(topic)
                if loop.time() + pause_s > began_s + limit_ms / 1000:
                    reason = (
                        problem
                        if isinstance(problem, SendFailedError)
                        else f"a message to topic {topic} was not sent: {problem}"
                    )
                    option = "retryTimeout" if limit_ms == self._retry_ms else "requestTimeout"
                    raise SendFailedError(
                        f"{reason}; tried {1 + tries_more} times in {limit_ms / 1000:g} s (option"
                        f" {option})"
                    ) from problem
                log.warning("sent_again topic=%s try=%d why='%s'", topic, 2 + tries_more, problem)
            else:
                return result, tries_more
            self._refresh_routes()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            tries_more += 1

    def _retry_limit_ms(self, topic: str) -> int:
        """Return how long to retry a topic: not long if no name server knows it."""
        is_known = self._producer.session.known_route(topic) is not None
        return self._retry_ms if is_known else min(self._retry_ms, self._request_ms)

    def _refresh_routes(self) -> None:
        """Refresh the routes in the background, one refresh at a time."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._producer.session.refresh_routes())


def _is_transient(problem: OrbitError) -> bool:
    """Return whether a retry may succeed: no server refused the request, or only for being busy."""
    cause = problem.__cause__ if isinstance(problem, SendFailedError) else problem
    return not isinstance(cause, RequestRefusedError) or cause.code in _BUSY


class InFlightSends:
    """The requests of one task, bounded by bytes and count. For one thread."""

    def __init__(
        self,
        sender: Sender,
        size_max: int,
        on_result: Callable[[SendResult, MessageQueue | None], None] | None = None,
    ) -> None:
        self._sender = sender
        self._size_max = size_max
        # Called with each result in the order of sending, and with the queue if one was required.
        self._on_result = on_result
        self._size = 0  # bytes of bodies in flight
        self._in_flight: deque[tuple[Call[DeliveryResult], int, MessageQueue | None]] = deque()
        self._last_of_queue: dict[
            MessageQueue, Call[DeliveryResult]
        ] = {}  # the last request of each queue
        self._sent = SendStats()

    def send(self, outgoing: OutgoingMessage, queue: MessageQueue | None, count: int) -> None:
        """Start to send messages, once there is room for them and the previous request to the same
        queue is acknowledged.
        """
        size = len(outgoing.body)
        while self._in_flight and (
            self._size + size > self._size_max or len(self._in_flight) == _IN_FLIGHT_MAX
        ):
            self._settle_oldest()
        before = None if queue is None else self._last_of_queue.get(queue)
        if before is not None:
            before.wait()
        call = self._sender.send(outgoing, queue, count)
        self._in_flight.append((call, size, queue))
        self._size += size
        if queue is not None:
            self._last_of_queue[queue] = call

    def finish(self) -> SendStats:
        """Wait for all requests and return their stats."""
        while self._in_flight:
            self._settle_oldest()
        return self._sent

    def cancel(self) -> None:
        """Stop retrying the requests in flight."""
        for call, *_ in self._in_flight:
            self._sender.cancel(call)

    def _settle_oldest(self) -> None:
        call, size, queue = self._in_flight.popleft()
        self._size -= size
        sent, result = call.wait()
        self._sent = SendStats.of_all((self._sent, sent))
        if self._on_result is not None:
            self._on_result(result, queue)


_senders: dict[tuple[type[Sender], ClientSettings, str, ProducerSettings, int], Sender] = {}
os.register_at_fork(after_in_child=_senders.clear)  # connections belong to one process


def sender_of(options: SinkOptions, kind: type[S]) -> S:
    """Return the sender of this process for these options, of the given class."""
    key = options.client, options.group, options.producer_settings(), options.retry_ms
    found = _senders.get((kind, *key))
    if found is None:
        found = _senders[(kind, *key)] = kind(*key)
    assert isinstance(found, kind)
    return found
