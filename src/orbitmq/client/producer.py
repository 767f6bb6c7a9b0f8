"""The producer: sends messages to the brokers of a topic, one after the other, and to another one when one fails.

What is sent at the same time shares connections: requests of many callers leave in one write, and their answers may come in any order.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from orbitmq.client import recall, replies
from orbitmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus
from orbitmq.client.observers import SendObserver, tell
from orbitmq.client.outbox import Outbox, Outgoing, ProducerSettings
from orbitmq.client.queue_choice import FAILURE_LATENCY_MS, BrokerFaults, QueueChoice
from orbitmq.client.routes import TopicRoute
from orbitmq.client.session import OTHER_LOOP, Cluster, MemberHandler, SessionUser
from orbitmq.client.write_routes import WriteRoutes, not_sent, refused, too_late
from orbitmq.common.errors import MessageIllegal, OrbitError, RemoteError, RequestRefused, SendFailed, WrongCall
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
"""Takes the queue of a message; called on the loop, so it must not block."""


class Producer(SessionUser):
    """`async with Producer("127.0.0.1:9876") as producer: await producer.send(Message("topic", b"body"))`."""

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
        """Be known to brokers from now on."""
        if self._is_closed:
            raise WrongCall("this producer is closed; make a new one")
        await self.session.join(self)
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Leave; what is under way is given up."""
        if self._loop is not None:
            self._check_call()
        self._loop, self._is_closed = None, True
        await self.session.leave(self)
        await super().close()

    def _check_call(self) -> None:
        """WrongCall unless it is started, and this is its loop."""
        if self._loop is not asyncio.get_running_loop():
            if self._loop is not None:
                raise WrongCall(OTHER_LOOP)
            why = "is closed; make a new one" if self._is_closed else "is not started: use it in `async with`, or call start() first"
            raise WrongCall(f"this producer {why}")

    def new_ids(self) -> UniqueIds:
        """Ids for messages that are not made by the outbox; one of their own for each thread that makes some."""
        address = hosts.pack(self.session.client_id.partition("@")[0], 0)[:-4]
        return UniqueIds(address=address, pid=os.getpid(), process_number=Random().getrandbits(32), now_ms=self._clock.now_ms)

    # -- as a member of its session

    @property
    def producer_group(self) -> str:
        return self._wire_group

    def consumer_data(self) -> ConsumerData | None:
        return None

    def topics(self) -> Iterable[str]:
        return self._routes.made

    async def routes_changed(self) -> None:
        self._routes.routes_changed()

    def serves(self) -> Mapping[int, MemberHandler]:
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take_reply}

    async def _take_reply(self, _: Channel, command: RemotingCommand) -> RemotingCommand:
        return await replies.take_reply(self.session, command)

    # -- sending

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message: to the next queue, to `queue`, or to the one that `selector` takes; SendFailed when no broker took it."""
        self._check_call()
        return await self.send_outgoing(self.outbox.message(message), queue, selector, timeout_ms)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None) -> None:
        """Send one message once, and hear nothing of it: it may be lost."""
        self._check_call()
        outgoing = self.outbox.message(message)
        timeout_ms = self.settings.timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        route = await self._route(outgoing, queue, deadline_ms, timeout_ms)
        target = queue or self._target(route, outgoing, selector, None)
        request, left_ms = self._request(outgoing, target), deadline_ms - self._clock.monotonic_ms()
        await self.session.client.invoke_oneway(self._routes.address(route, target), request, left_ms)

    async def send_batch(self, messages: Iterable[Message], *, queue: MessageQueue | None = None) -> list[SendResult]:
        """Send messages of one topic together, in as few requests as their sizes and sharding keys allow; the result of each request.

        SendFailed when one of several requests fails; its `sent` has the results of those before it.
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
                told = f"{len(results)} of the {len(parts)} requests of a batch to topic {part.topic} were taken, then one failed"
                raise SendFailed(f"{told}: {problem}", results) from problem
        return results

    async def request(
        self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> ReceivedMessage:
        """Send one message and wait for the reply of whoever consumes it; RequestTimeout when none came in time."""
        self._check_call()
        return await replies.request(self, message, timeout_ms or self.settings.timeout_ms, queue, selector)

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
        """Reply to a message that was sent by `request`; SendFailed also when its sender cannot be reached."""
        self._check_call()
        reply = replies.reply_to(received, body, tags=tags, keys=keys, properties=properties)
        return await replies.send_reply(self, received, reply, timeout_ms)

    async def recall(self, topic: str, recall_handle: str | None, *, timeout_ms: int | None = None) -> str:
        """Take back a message that was to come later, by the handle of its SendResult; its id, or RequestRefused when it is too late."""
        self._check_call()
        return await recall.recall(self, topic, recall_handle, timeout_ms)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that messages can be sent to."""
        self._check_call()
        return (await self._routes.of(self.session.names.wire(topic))).write_queues

    # -- one request

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> RemotingCommand:
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
                RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2, header, outgoing.body
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
        return RemotingCommand(_SEND_REPLY if outgoing.is_reply else _SEND, ext_fields=fields, body=outgoing.body)

    # -- where it goes

    async def _route(self, outgoing: Outgoing, queue: MessageQueue | None, deadline_ms: int, timeout_ms: int) -> TopicRoute:
        """The route of a message; one without a queue to write to is asked for once more before it is believed."""
        topic = outgoing.topic
        if queue is not None and queue.topic != topic and self.session.names.wire(queue.topic) != topic:
            raise MessageIllegal(f"a message to topic {topic} cannot go to {queue}: take a queue of its own topic, as queues() tells them")
        route = self.session.known_route(topic) or await self._routes.within(topic, deadline_ms, timeout_ms)
        if not route.write_queues and queue is None:
            route = await self._routes.once_more(topic, deadline_ms, timeout_ms)
        return route

    def _target(self, route: TopicRoute, outgoing: Outgoing, selector: QueueSelector | None, last_broker: str | None) -> MessageQueue:
        if selector is not None:
            return selector(route.write_queues, outgoing.messages[0])
        if outgoing.messages and outgoing.messages[0].sharding_key is not None:
            return by_sharding_key(route.write_queues, outgoing.messages[0])
        chosen = self._choice.choose(route, last_broker, self._clock.monotonic_ms())
        assert chosen is not None, "there are queues"
        return chosen

    async def send_outgoing(
        self, outgoing: Outgoing, queue: MessageQueue | None = None, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send what the outbox made, again and elsewhere as the settings say; observers hear how it ended."""
        timeout_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        began_ms = self._clock.monotonic_ms()
        if not self.observers:
            return await self._send_in_turn(outgoing, queue, selector, began_ms, timeout_ms)
        result: SendResult | Exception
        try:
            result = await self._send_in_turn(outgoing, queue, selector, began_ms, timeout_ms)
        except Exception as problem:
            result = problem
        cost_ms = self._clock.monotonic_ms() - began_ms
        tell(self.observers, lambda observer: observer.sent(self.group, outgoing, result, cost_ms))
        if isinstance(result, Exception):
            raise result
        return result

    async def _send_in_turn(
        self, outgoing: Outgoing, queue: MessageQueue | None, selector: QueueSelector | None, began_ms: int, timeout_ms: int
    ) -> SendResult:
        """Send it when not too many others are under way."""
        room = self.session.send_room
        if room.free > 0:
            room.free -= 1
        else:
            try:
                await room.wait(timeout_ms)
            except TimeoutError:
                why = f"{room.size} others were under way all the time; send fewer at once, or raise invoke_max of ClientConfig"
                raise too_late(outgoing.topic, timeout_ms, why) from None
        try:
            return await self._send(outgoing, queue, selector, began_ms + timeout_ms, timeout_ms)
        finally:
            room.leave()

    async def _send(
        self, outgoing: Outgoing, queue: MessageQueue | None, selector: QueueSelector | None, deadline_ms: int, timeout_ms: int
    ) -> SendResult:
        settings, clock = self.settings, self._clock
        failures: list[str] = []
        last: MessageQueue | None = None
        last_problem: Exception | None = None
        for tries_left in range(settings.retries, -1, -1):
            route = self.session.known_route(outgoing.topic)
            if route is None or queue is not None or not route.write_queues:
                route = await self._route(outgoing, queue, deadline_ms, timeout_ms)
            target = queue or self._target(route, outgoing, selector, last.broker_name if last else None)
            began_ms = clock.monotonic_ms()
            left_ms = deadline_ms - began_ms
            if left_ms <= 0:
                break
            if tries_left and settings.try_timeout_ms is not None:
                left_ms = min(left_ms, settings.try_timeout_ms)
            try:
                result = await self._send_once(self._routes.address(route, target), outgoing, target, left_ms)
            except (RemoteError, RequestRefused) as problem:
                self._note(target, FAILURE_LATENCY_MS)
                if isinstance(problem, RequestRefused) and problem.code not in _RETRIED:
                    remark = f"{target.broker_name} refused a message to topic {outgoing.topic}: {problem.remark}"
                    raise RequestRefused(problem.code, remark) from problem
                failures.append(f"{target.broker_name}: {problem}")
                last, last_problem = target, problem
                if isinstance(problem, RequestRefused) and problem.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._routes.forget(outgoing.topic)
                continue
            self._note(target, clock.monotonic_ms() - began_ms)
            if result.status is SendStatus.SEND_OK or not settings.retry_when_not_safe or not tries_left:
                return result
            failures.append(f"{target.broker_name}: {result.status.value}")
            last = target
        told = "; ".join(dict.fromkeys(failures)) or "the time was over before anything was sent"
        if isinstance(last_problem, RequestRefused):
            raise refused(outgoing.topic, last_problem.code, told) from last_problem
        if failures and clock.monotonic_ms() < deadline_ms:
            raise not_sent(outgoing.topic, told) from last_problem
        raise too_late(outgoing.topic, timeout_ms, told) from last_problem

    async def _send_once(self, address: str, outgoing: Outgoing, queue: MessageQueue, timeout_ms: int) -> SendResult:
        response = await self.session.client.invoke(address, self._request(outgoing, queue), timeout_ms)
        status = _STATUSES.get(response.code)
        if status is None:
            raise RequestRefused(response.code, response.remark or f"{address} answered with code {response.code}")
        offset_msg_id, queue_id, offset, transaction_id, region, recall_handle, is_traced = sent_to(response.ext_fields)
        if queue_id != queue.queue_id:
            queue = queue._replace(queue_id=queue_id)
        return SendResult(status, outgoing.unique_key, offset_msg_id, queue, offset, transaction_id, region, recall_handle, is_traced)

    def _note(self, queue: MessageQueue, latency_ms: int) -> None:
        if self._faults is not None:
            self._faults.note(queue.broker_name, latency_ms, self._clock.monotonic_ms())


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of all messages that have this sharding key, as long as the number of queues stays; Java clients take the same."""
    return queues[abs(java_hash(message.sharding_key or "")) % len(queues)]
