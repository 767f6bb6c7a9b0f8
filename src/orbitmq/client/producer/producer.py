"""The producer: sends messages to the queues of a topic in turn, and retries on another broker when
one fails.

Concurrent sends share connections: requests of many callers leave in one write, and their replies
may arrive in any order.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from orbitmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from orbitmq.client.observers import SendObserver, notify
from orbitmq.client.producer import recall, replies
from orbitmq.client.producer.outbox import Outbox, OutgoingMessage, ProducerSettings
from orbitmq.client.producer.queue_choice import FAILURE_LATENCY_MS, BrokerFaults, QueueChoice
from orbitmq.client.session.client_session import OTHER_LOOP, Cluster, MemberHandler, SessionUser
from orbitmq.client.session.routes import TopicRoute
from orbitmq.client.session.write_routes import WriteRoutes, not_sent, refused, too_late
from orbitmq.common.errors import (
    InvalidMessageError,
    InvalidStateError,
    OrbitError,
    RemoteError,
    RequestRefusedError,
    SendFailedError,
    SendRefusedError,
)
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.message import hosts
from orbitmq.message.message_id import UniqueIds
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import SendMessageRequestHeaderV2, send_fields, sent_to
from orbitmq.remoting.channel import Channel

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
_RETRIED: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
_STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)
QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Selects the queue of a message; called on the loop, so it must not block."""


class Producer(SessionUser):
    """Sends messages to a cluster.

    `async with Producer("127.0.0.1:9876") as producer: await producer.send(Message("topic",
    b"body"))`.
    """

    def __init__(
        self,
        cluster: Cluster = "",
        *,
        group: str = DEFAULT_GROUP,
        settings: ProducerSettings | None = None,
    ) -> None:
        super().__init__(cluster)
        self.group = group
        self.settings = settings or ProducerSettings()
        self.observers: list[SendObserver] = []
        self._routes = WriteRoutes(self.session, self.settings.new_topic_queue_count)
        self._loop: asyncio.AbstractEventLoop | None = None  # from start to close
        self._is_closed = False
        self._wire_group = self.session.names.wire(group)
        self._new_topic = AUTO_CREATE_TOPIC, str(self.settings.new_topic_queue_count)
        self._clock = self.session.clock
        self._faults = BrokerFaults() if self.settings.avoid_slow_brokers else None
        self._choice = QueueChoice(Random().getrandbits(16), self._faults)
        self.outbox = Outbox(self.settings, self.session.names, self.new_ids())

    async def start(self) -> None:
        """Register with the brokers."""
        if self._is_closed:
            raise InvalidStateError("this producer is closed: create a new one")
        await self.session.join(self)
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Unregister; sends in flight are abandoned."""
        if self._loop is not None:
            self._check_call()
        self._loop, self._is_closed = None, True
        await self.session.leave(self)
        await super().close()

    def _check_call(self) -> None:
        """Raise InvalidStateError unless the producer is started and this is its loop."""
        if self._loop is not asyncio.get_running_loop():
            if self._loop is not None:
                raise InvalidStateError(OTHER_LOOP)
            why = (
                "is closed: create a new one"
                if self._is_closed
                else "is not started: use it in `async with`, or call start() first"
            )
            raise InvalidStateError(f"this producer {why}")

    def new_ids(self) -> UniqueIds:
        """Return a generator of message ids, for messages not encoded by the outbox; one per
        thread.
        """
        address = hosts.pack(self.session.client_id.partition("@")[0], 0)[:-4]
        return UniqueIds(
            address=address,
            pid=os.getpid(),
            process_number=Random().getrandbits(32),
            now_ms=self._clock.now_ms,
        )

    # -- as a member of its session

    @property
    def producer_group(self) -> str:
        return self._wire_group

    def consumer_data(self) -> ConsumerData | None:
        return None

    def topics(self) -> Iterable[str]:
        return self._routes.expected_topics

    async def routes_changed(self) -> None:
        self._routes.routes_changed()

    def serves(self) -> Mapping[int, MemberHandler]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._accept_reply}

    async def _accept_reply(self, _: Channel, command: RemotingCommand) -> RemotingCommand:
        return await replies.accept_reply(self.session, command)

    # -- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message to the next queue, to `queue`, or to the one that `selector` returns.

        Raises SendFailedError if no broker accepted it.
        """
        self._check_call()
        return await self.send_outgoing(self.outbox.message(message), queue, selector, timeout_ms)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send one message once without waiting for a reply: it may be lost."""
        self._check_call()
        outgoing = self.outbox.message(message)
        timeout_ms = self.settings.timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        route = await self._route(outgoing, queue, deadline_ms, timeout_ms)
        target = queue or self._target(route, outgoing, selector, None)
        request, left_ms = self._request(outgoing, target), deadline_ms - self._clock.monotonic_ms()
        await self.session.client.invoke_oneway(
            self._routes.address(route, target), request, left_ms
        )

    async def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their sizes and sharding keys allow.

        Returns the result of each request. If one of several requests fails, SendFailedError has
        the results of those before it in `sent`.
        """
        self._check_call()
        parts = self.outbox.batches(list(messages), by_key=queue is None)
        results: list[SendResult] = []
        for part in parts:
            try:
                results.append(await self.send_outgoing(part, queue))
            except OrbitError as problem:
                if not results:
                    raise
                text = (
                    f"{len(results)} of the {len(parts)} requests of a batch to topic {part.topic}"
                    " were accepted, then one failed"
                )
                if isinstance(problem, RequestRefusedError):
                    raise SendRefusedError(f"{text}: {problem}", problem.code, results) from problem
                raise SendFailedError(f"{text}: {problem}", results) from problem
        return results

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> ReceivedMessage:
        """Send one message and wait for its consumer's reply; raise RequestTimeoutError if none
        arrives.
        """
        self._check_call()
        return await replies.request(
            self, message, timeout_ms or self.settings.timeout_ms, queue, selector
        )

    async def reply(
        self,
        received: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Reply to a message sent with `request`; raise SendFailedError also if its sender is
        unreachable.
        """
        self._check_call()
        reply = replies.reply_to(received, body, tags=tags, keys=keys, properties=properties)
        return await replies.send_reply(self, received, reply, timeout_ms)

    async def recall(
        self, topic: str, recall_handle: str | None, *, timeout_ms: int | None = None
    ) -> str:
        """Recall a scheduled message by the `recall_handle` of its SendResult, and return its id.

        Raises RequestRefusedError if it is too late.
        """
        self._check_call()
        return await recall.recall(self, topic, recall_handle, timeout_ms)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic."""
        self._check_call()
        return (await self._routes.find(self.session.names.wire(topic))).write_queues

    # -- one request

    def _request(self, outgoing: OutgoingMessage, queue: MessageQueue) -> RemotingCommand:
        settings, born_ms = self.settings, self._clock.now_ms()
        if outgoing.is_batch or outgoing.reconsume_times:
            header = SendMessageRequestHeaderV2(
                producer_group=self._wire_group,
                topic=outgoing.topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=settings.new_topic_queue_count,
                queue_id=queue.queue_id,
                sys_flag=outgoing.sys_flag,
                born_timestamp=born_ms,
                flag=outgoing.flag,
                properties=outgoing.properties,
                reconsume_times=outgoing.reconsume_times,
                max_reconsume_times=outgoing.max_reconsume_times,
                unit_mode=False,
                batch=outgoing.is_batch,
                target_broker=queue.broker_name,
            )
            return RemotingCommand.request(
                (
                    RequestCode.SEND_BATCH_MESSAGE
                    if outgoing.is_batch
                    else RequestCode.SEND_MESSAGE_V2
                ),
                header,
                outgoing.body,
            )
        fields = send_fields(
            self._wire_group,
            outgoing.topic,
            self._new_topic,
            queue.queue_id,
            queue.broker_name,
            outgoing.sys_flag,
            born_ms,
            outgoing.flag,
            outgoing.properties,
        )
        return RemotingCommand(
            _SEND_REPLY if outgoing.is_reply else _SEND, ext_fields=fields, body=outgoing.body
        )

    # -- the target queue

    async def _route(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        deadline_ms: int,
        timeout_ms: int,
    ) -> TopicRoute:
        """Return the route of a message; one without writable queues is fetched again first."""
        topic = outgoing.topic
        if (
            queue is not None
            and queue.topic != topic
            and self.session.names.wire(queue.topic) != topic
        ):
            raise InvalidMessageError(
                f"a message to topic {topic} cannot be sent to {queue}: choose a queue of its"
                " topic, as returned by queues()"
            )
        route = self.session.known_route(topic) or await self._routes.before_deadline(
            topic, deadline_ms, timeout_ms
        )
        if not route.write_queues and queue is None:
            route = await self._routes.refetch(topic, deadline_ms, timeout_ms)
        return route

    def _target(
        self,
        route: TopicRoute,
        outgoing: OutgoingMessage,
        selector: QueueSelector | None,
        last_broker: str | None,
    ) -> MessageQueue:
        if selector is not None:
            return selector(route.write_queues, outgoing.messages[0])
        if outgoing.messages and outgoing.messages[0].sharding_key is not None:
            return by_sharding_key(route.write_queues, outgoing.messages[0])
        chosen = self._choice.choose(route, last_broker, self._clock.monotonic_ms())
        assert chosen is not None, "the route has queues"
        return chosen

    async def send_outgoing(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message encoded by the outbox with the configured retries; notify observers of the
        result.
        """
        timeout_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        began_ms = self._clock.monotonic_ms()
        if not self.observers:
            return await self._send_limited(outgoing, queue, selector, began_ms, timeout_ms)
        result: SendResult | Exception
        try:
            result = await self._send_limited(outgoing, queue, selector, began_ms, timeout_ms)
        except Exception as problem:
            result = problem
        cost_ms = self._clock.monotonic_ms() - began_ms
        notify(
            self.observers, lambda observer: observer.sent(self.group, outgoing, result, cost_ms)
        )
        if isinstance(result, Exception):
            raise result
        return result

    async def _send_limited(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        began_ms: int,
        timeout_ms: int,
    ) -> SendResult:
        """Send a message once the number in flight permits it."""
        in_flight = self.session.in_flight
        if in_flight.free > 0:
            in_flight.free -= 1
        else:
            try:
                await in_flight.acquire(timeout_ms)
            except TimeoutError:
                why = (
                    f"{in_flight.size} other messages were in flight all the time: send fewer at"
                    " once, or raise invoke_max of ClientConfig"
                )
                raise too_late(outgoing.topic, timeout_ms, why) from None
        try:
            return await self._send(outgoing, queue, selector, began_ms + timeout_ms, timeout_ms)
        finally:
            in_flight.release()

    async def _send(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        deadline_ms: int,
        timeout_ms: int,
    ) -> SendResult:
        settings, clock = self.settings, self._clock
        failures: list[str] = []
        last: MessageQueue | None = None
        last_problem: Exception | None = None
        for tries_left in range(settings.retries, -1, -1):
            route = self.session.known_route(outgoing.topic)
            if route is None or queue is not None or not route.write_queues:
                route = await self._route(outgoing, queue, deadline_ms, timeout_ms)
            target = queue or self._target(
                route, outgoing, selector, last.broker_name if last else None
            )
            began_ms = clock.monotonic_ms()
            left_ms = deadline_ms - began_ms
            if left_ms <= 0:
                break
            if tries_left and settings.try_timeout_ms is not None:
                left_ms = min(left_ms, settings.try_timeout_ms)
            try:
                result = await self._send_once(
                    self._routes.address(route, target), outgoing, target, left_ms
                )
            except (RemoteError, RequestRefusedError) as problem:
                self._note(target, FAILURE_LATENCY_MS)
                if isinstance(problem, RequestRefusedError) and problem.code not in _RETRIED:
                    remark = (
                        f"{target.broker_name} refused a message to topic {outgoing.topic}:"
                        f" {problem.remark}"
                    )
                    raise SendRefusedError(remark, problem.code) from problem
                failures.append(f"{target.broker_name}: {problem}")
                last, last_problem = target, problem
                if (
                    isinstance(problem, RequestRefusedError)
                    and problem.code == ResponseCode.TOPIC_NOT_EXIST
                ):
                    self._routes.forget(outgoing.topic)
                continue
            self._note(target, clock.monotonic_ms() - began_ms)
            if (
                result.status is SendStatus.SEND_OK
                or not settings.retry_when_not_safe
                or not tries_left
            ):
                return result
            failures.append(f"{target.broker_name}: {result.status.value}")
            last = target
        why = "; ".join(dict.fromkeys(failures)) or "the timeout passed before anything was sent"
        if isinstance(last_problem, RequestRefusedError):
            raise refused(outgoing.topic, last_problem.code, why) from last_problem
        if failures and clock.monotonic_ms() < deadline_ms:
            raise not_sent(outgoing.topic, why) from last_problem
        raise too_late(outgoing.topic, timeout_ms, why) from last_problem

    async def _send_once(
        self, address: str, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int
    ) -> SendResult:
        response = await self.session.client.invoke(
            address, self._request(outgoing, queue), timeout_ms
        )
        status = _STATUSES.get(response.code)
        if status is None:
            raise RequestRefusedError(
                response.code, response.remark or f"{address} replied with code {response.code}"
            )
        offset_msg_id, queue_id, offset, transaction_id, region, recall_handle, is_traced = sent_to(
            response.ext_fields
        )
        if queue_id != queue.queue_id:
            queue = queue._replace(queue_id=queue_id)
        return SendResult(
            status,
            outgoing.unique_key,
            offset_msg_id,
            queue,
            offset,
            transaction_id,
            region,
            recall_handle,
            is_traced,
        )

    def _note(self, queue: MessageQueue, latency_ms: int) -> None:
        if self._faults is not None:
            self._faults.note(queue.broker_name, latency_ms, self._clock.monotonic_ms())


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Return the queue for the message's sharding key, the same as Java clients choose.

    It changes only with the number of queues.
    """
    return queues[abs(java_hash(message.sharding_key or "")) % len(queues)]
