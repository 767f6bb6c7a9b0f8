"""The producer: sends messages to the brokers of a topic, one after the other, and to another one when one fails.

What is sent at the same time shares connections: requests of many callers leave in one write, and their answers may come in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Self

from orbitmq.client.messages import Message, SendResult, SendStatus
from orbitmq.client.queue_choice import FAILURE_LATENCY_MS, BrokerFaults, QueueChoice
from orbitmq.client.routes import TopicRoute
from orbitmq.client.session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import MessageIllegal, NotFound, RemoteError, RequestRefused, SendFailed
from orbitmq.message import batch, flags, hosts, properties
from orbitmq.message.compression import LEVEL_DEFAULT, deflate
from orbitmq.message.flags import CompressionType
from orbitmq.message.message_id import UniqueIds
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
TEMPLATE_TOPIC: Final = "TBW102"  # whose queues a topic gets that its first message makes
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

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends."""

    timeout_ms: int = 3_000  # of one message, all tries together
    retries: int = 2
    retry_when_not_safe: bool = False  # also after an answer that says stored, but not as safely as asked for
    compress_over: int = 4_096
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = LEVEL_DEFAULT
    size_max: int = 4 << 20
    new_topic_queue_count: int = 4
    avoid_slow_brokers: bool = False


class _Prepared(NamedTuple):
    """A message, or a batch of some, as the wire has it but for its queue."""

    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    unique_key: str
    is_batch: bool


class Producer:
    """`async with Producer("127.0.0.1:9876") as producer: await producer.send(Message("topic", b"body"))`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] = "",
        *,
        group: str = DEFAULT_GROUP,
        settings: ProducerSettings | None = None,
        session: ClientSession | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or ProducerSettings()
        self._owns_session = session is None
        self.session = session or ClientSession(ClientSettings(name_servers=name_servers))
        self._clock = self.session.clock
        self._faults = BrokerFaults() if self.settings.avoid_slow_brokers else None
        random = Random()
        self._choice = QueueChoice(random.getrandbits(16), self._faults)
        address = hosts.pack(self.session.client_id.partition("@")[0], 0)[:-4]
        self._ids = UniqueIds(address=address, pid=os.getpid(), process_number=random.getrandbits(32), now_ms=self._clock.now_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        await self.session.join(self)

    async def close(self) -> None:
        if self._owns_session:
            await self.session.close()
        else:
            await self.session.leave(self)

    # -- as a member of its session

    @property
    def producer_group(self) -> str:
        return self.group

    def consumer_data(self) -> ConsumerData | None:
        return None

    def topics(self) -> Iterable[str]:
        return ()

    async def routes_changed(self) -> None: ...

    # -- sending

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message: to the next queue, to `queue`, or to the one that `selector` takes; SendFailed when no broker took it."""
        return await self._send(self._prepared(message), message, queue, selector, timeout_ms)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None) -> None:
        """Send one message once, and hear nothing of it: it may be lost."""
        prepared = self._prepared(message)
        route = await self._route(message.topic)
        target = queue or self._target(route, message, selector, None)
        await self.session.client.invoke_oneway(self._address(route, target), self._request(prepared, target), self.settings.timeout_ms)

    async def send_batch(self, messages: Iterable[Message], *, queue: MessageQueue | None = None) -> list[SendResult]:
        """Send messages of one topic together, in as few requests as their sizes allow; the result of each request."""
        return [await self._send(each, None, queue, None, None) for each in self._batches(list(messages))]

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that messages can be sent to."""
        return (await self._route(topic)).write_queues

    # -- what is sent

    def _prepared(self, message: Message) -> _Prepared:
        settings, body = self.settings, message.body
        _check(message.topic, body, settings.size_max)
        sys_flag = 0
        if len(body) >= settings.compress_over:
            body = deflate(body, settings.compression, settings.compression_level)
            sys_flag = flags.with_compression(sys_flag, settings.compression)
        key = self._ids.next()
        texts = properties.write({**message.wire_properties(), properties.UNIQUE_KEY: key})
        return _Prepared(message.topic, body, sys_flag, message.flag, texts, key, False)

    def _batches(self, messages: list[Message]) -> Iterator[_Prepared]:
        """The messages of a topic in batches that a broker takes."""
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise MessageIllegal(f"a batch has messages of one topic, not of {len(topics)}: {', '.join(sorted(topics)) or 'none at all'}")
        (topic,) = topics
        items: list[batch.BatchItem] = []
        size = 0
        for message in messages:
            if message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None:
                raise MessageIllegal("a message of a batch cannot come later: send it alone")
            _check(topic, message.body, self.settings.size_max)
            texts = {**message.wire_properties(), properties.UNIQUE_KEY: self._ids.next()}
            item = batch.BatchItem(message.flag, message.body, properties.encode(texts))
            if items and size + item.size > self.settings.size_max:
                yield self._batch(topic, items)
                items, size = [], 0
            items.append(item)
            size += item.size
        yield self._batch(topic, items)

    def _batch(self, topic: str, items: list[batch.BatchItem]) -> _Prepared:
        key = self._ids.next()
        texts = properties.write({properties.WAIT: "true", properties.UNIQUE_KEY: key})
        return _Prepared(topic, batch.encode(items), 0, 0, texts, key, True)

    def _request(self, prepared: _Prepared, queue: MessageQueue) -> RemotingCommand:
        header = SendMessageRequestHeaderV2(
            producer_group=self.group,
            topic=prepared.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=self.settings.new_topic_queue_count,
            queue_id=queue.queue_id,
            sys_flag=prepared.sys_flag,
            born_timestamp=self._clock.now_ms(),
            flag=prepared.flag,
            properties=prepared.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=prepared.is_batch,
            target_broker=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if prepared.is_batch else RequestCode.SEND_MESSAGE_V2
        return RemotingCommand.request(code, header, prepared.body)

    # -- where it goes

    async def _route(self, topic: str) -> TopicRoute:
        """The route of a topic; of one that does not exist yet, that of the topic whose example brokers follow."""
        try:
            return await self.session.route(topic)
        except NotFound as missing:
            try:
                template = await self.session.route(TEMPLATE_TOPIC)
            except NotFound:
                raise NotFound(f"{missing}; brokers make topics by themselves only with autoCreateTopicEnable=true") from missing
            return template.as_template(topic, self.settings.new_topic_queue_count)

    def _target(self, route: TopicRoute, message: Message | None, selector: QueueSelector | None, last_broker: str | None) -> MessageQueue:
        if not route.write_queues:
            raise NotFound(f"topic {route.topic} has no queue that may be written to: see its permissions, and whether its masters are up")
        if selector is not None and message is not None:
            return selector(route.write_queues, message)
        if message is not None and message.sharding_key is not None:
            return by_sharding_key(route.write_queues, message)
        chosen = self._choice.choose(route, last_broker, self._clock.monotonic_ms())
        assert chosen is not None, "there are queues"
        return chosen

    def _address(self, route: TopicRoute, queue: MessageQueue) -> str:
        address = route.master(queue.broker_name)
        if address is None:
            raise NotFound(f"the broker {queue.broker_name} of {queue} has no master now: choose another queue, or wait until it is back")
        return self.session.send_address(address)

    async def _send(
        self,
        prepared: _Prepared,
        message: Message | None,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_ms: int | None,
    ) -> SendResult:
        settings, clock = self.settings, self._clock
        timeout_ms = settings.timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = clock.monotonic_ms() + timeout_ms
        failures: list[str] = []
        last: MessageQueue | None = None
        last_problem: Exception | None = None
        for _ in range(1 + settings.retries):
            route = await self._route(prepared.topic)
            target = queue or self._target(route, message, selector, last.broker_name if last else None)
            began_ms = clock.monotonic_ms()
            if began_ms >= deadline_ms:
                break
            try:
                result = await self._send_once(self._address(route, target), prepared, target, deadline_ms - began_ms)
            except (RemoteError, RequestRefused) as problem:
                self._note(target, FAILURE_LATENCY_MS)
                if isinstance(problem, RequestRefused) and problem.code not in _RETRIED:
                    raise
                failures.append(f"{target.broker_name}: {problem}")
                last, last_problem = target, problem
                if isinstance(problem, RequestRefused) and problem.code == ResponseCode.TOPIC_NOT_EXIST:
                    self.session.forget_route(prepared.topic)
                continue
            self._note(target, clock.monotonic_ms() - began_ms)
            if result.status is SendStatus.SEND_OK or not settings.retry_when_not_safe or len(failures) == settings.retries:
                return result
            failures.append(f"{target.broker_name}: {result.status.value}")
            last = target
        told = "; ".join(failures) or "the time was over before anything was sent"
        raise SendFailed(f"a message to topic {prepared.topic} was not sent within {timeout_ms} ms: {told}") from last_problem

    async def _send_once(self, address: str, prepared: _Prepared, queue: MessageQueue, timeout_ms: int) -> SendResult:
        response = await self.session.client.invoke(address, self._request(prepared, queue), timeout_ms)
        status = _STATUSES.get(response.code)
        if status is None:
            raise RequestRefused(response.code, response.remark or f"{address} answered with code {response.code}")
        header = SendMessageResponseHeader.from_fields(response.ext_fields)
        return SendResult(
            status,
            prepared.unique_key,
            header.msg_id,
            queue._replace(queue_id=header.queue_id),
            header.queue_offset,
            header.transaction_id,
            header.msg_region,
            header.recall_handle,
        )

    def _note(self, queue: MessageQueue, latency_ms: int) -> None:
        if self._faults is not None:
            self._faults.note(queue.broker_name, latency_ms, self._clock.monotonic_ms())


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of all messages that have this sharding key, as long as the number of queues stays; Java clients take the same."""
    return queues[abs(java_hash(message.sharding_key or "")) % len(queues)]


def _check(topic: str, body: bytes, size_max: int) -> None:
    if not topic:
        raise MessageIllegal("a message needs a topic")
    if not body:
        raise MessageIllegal(f"the body of a message to {topic} is empty; brokers take none without one")
    if len(body) > size_max:
        raise MessageIllegal(
            f"the body of a message to {topic} has {len(body)} bytes, {size_max} are allowed: send less, or raise size_max"
        )
