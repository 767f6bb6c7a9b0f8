"""The plain pull consumer: one call is one request to a broker. The application chooses where to
read and tracks the group's progress itself.

It prefetches, shares and commits nothing in the background; only heartbeats keep the group known to
the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.client.checks import check_group
from orbitmq.client.consumer import queue_offsets
from orbitmq.client.consumer.broker_requests import BrokerRequestHandler, no_listener
from orbitmq.client.consumer.pulling import PullResult, pull, subscription
from orbitmq.client.consumer.send_back import MAX_ATTEMPTS_DEFAULT, RetrySender
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.session.client_session import Cluster, MemberHandler, SessionUser
from orbitmq.common.errors import InvalidStateError, SendFailedError
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.bodies.running_info import (
    CONSUMES_IN_ORDER,
    ConsumerRunningInfo,
    DirectResult,
)
from orbitmq.protocol.bodies.subscriptions import TAG, ConsumeFromWhere, ConsumeType, MessageModel
from orbitmq.version import ROCKETMQ_VERSION

_LATE_MS_MAX: Final = 10_000  # brokers check suspended pulls only every few seconds


class PullConsumer(SessionUser):
    """Pulls messages of single queues on request.

    `async with PullConsumer("127.0.0.1:9876", "group") as consumer: await consumer.pull(queue, 0)`.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        super().__init__(cluster)
        self.group = group
        self.wire_group = self.session.names.wire(group)
        check_group(self.wire_group)
        self._send_back = RetrySender(self.session, self.wire_group, MAX_ATTEMPTS_DEFAULT)
        self._handlers = BrokerRequestHandler(self, self.session.names).handlers()
        self._updated: dict[MessageQueue, int] = {}  # offsets the application committed
        self._started_ms = 0

    async def start(self) -> None:
        """Register the group with the brokers."""
        self._started_ms = self.session.clock.now_ms()
        await self.session.join(self)

    async def close(self) -> None:
        """Leave the group."""
        await self.session.leave(self)
        await super().close()

    # -- as a member of its session

    @property
    def producer_group(self) -> str | None:
        return None

    def consumer_data(self) -> ConsumerData:
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        return ConsumerData(
            self.wire_group, ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING, where, ()
        )

    def topics(self) -> Iterable[str]:
        return ()

    async def routes_changed(self) -> None: ...

    def serves(self) -> Mapping[int, MemberHandler]:
        return self._handlers

    # -- requests of brokers

    def rebalance_soon(self) -> None:
        """Do nothing: this consumer shares no queues."""

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets; the application finds them with `fetch_offset`."""
        for queue, offset in offsets.items():
            await self.update_offset(queue, offset)

    def committed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._updated.items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": f"V{ROCKETMQ_VERSION.replace('.', '_')}",
                CONSUMES_IN_ORDER: "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.name,
                "PROP_NAMESERVER_ADDR": ";".join(self.session.client.name_servers.in_order()),
                "consumerGroup": self.group,
                "messageModel": MessageModel.CLUSTERING.name,
            },
            subscriptions=(),
            queues={},
            topics={},
        )

    async def consume_directly(self, message: ReceivedMessage) -> DirectResult:
        raise no_listener(self.group, message)

    # -- messages

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic, after registering the group with their brokers."""
        route = await self.session.route(self.session.names.wire(topic))
        await self.session.announce()
        return route.read_queues

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        count_max: int = 32,
        timeout_ms: int = 0,
        *,
        kind: str = TAG,
    ) -> PullResult:
        """Return messages of a queue from `offset`, filtered by tags or an expression of `kind`.

        The broker waits up to `timeout_ms` for the first one.
        """
        if count_max < 1:
            raise InvalidStateError(f"count_max is {count_max}: request at least one message")
        wanted = subscription(queue.topic, expression, kind, self.session.clock.now_ms())
        patience_ms = timeout_ms + _LATE_MS_MAX if timeout_ms else self.session.settings.timeout_ms
        return await pull(
            self.session,
            self.wire_group,
            queue,
            offset,
            wanted,
            count_max=count_max,
            suspend_ms=timeout_ms,
            timeout_ms=patience_ms,
        )

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the broker redeliver a message from the group's retry topic, after a delay level or
        its default.
        """
        if not await self._send_back.send_back(message, delay_level):
            raise SendFailedError(
                f"no broker accepted {message.msg_id} for redelivery; see the log. It is still in"
                " the queue it was pulled from"
            )

    # -- offsets

    async def fetch_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of a queue, or None if it has none."""
        return await queue_offsets.group_offset(self.session, self.wire_group, queue)

    async def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commit the offset of the next message that the group should consume in a queue."""
        await queue_offsets.set_group_offset(self.session, self.wire_group, queue, offset)
        self._updated[queue] = offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        return await queue_offsets.min_offset(self.session, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will have."""
        return await queue_offsets.max_offset(self.session, queue)

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at `time_ms` or later."""
        return await queue_offsets.offset_at(self.session, queue, time_ms)
