"""The plain pull consumer: one call, one question to a broker. Where it reads, and how far the group is, the application says itself.

Nothing is read ahead, shared or committed in the background; heartbeats alone keep the group known to the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.client import queue_offsets
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.name_checks import check_group
from orbitmq.client.pulling import PullResult, pull, subscription
from orbitmq.client.send_back import MAX_ATTEMPTS_DEFAULT, SendBack
from orbitmq.client.served import ConsumerAnswers, no_listener
from orbitmq.client.session import Cluster, MemberHandler, SessionUser
from orbitmq.common.errors import SendFailed, WrongCall
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.bodies.running_info import CONSUMES_IN_ORDER, ConsumerRunningInfo, DirectResult
from orbitmq.protocol.bodies.subscriptions import TAG, ConsumeFromWhere, ConsumeType, MessageModel
from orbitmq.version import ROCKETMQ_VERSION

_LATE_MS_MAX: Final = 10_000  # brokers look after pulls that wait only every few seconds


class PullConsumer(SessionUser):
    """`async with PullConsumer("127.0.0.1:9876", "group") as consumer: await consumer.pull(queue, 0)`."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        super().__init__(cluster)
        self.group = group
        self.wire_group = self.session.names.wire(group)
        check_group(self.wire_group)
        self._send_back = SendBack(self.session, self.wire_group, MAX_ATTEMPTS_DEFAULT)
        self._handlers = ConsumerAnswers(self, self.session.names).handlers()
        self._updated: dict[MessageQueue, int] = {}  # what the application let brokers keep
        self._started_ms = 0

    async def start(self) -> None:
        """Have brokers know of the group from now on."""
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
        return ConsumerData(self.wire_group, ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING, where, ())

    def topics(self) -> Iterable[str]:
        return ()

    async def routes_changed(self) -> None: ...

    def serves(self) -> Mapping[int, MemberHandler]:
        return self._handlers

    # -- what brokers ask

    def rebalance_soon(self) -> None:
        """Nothing is shared here."""

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep them; the application finds them when it asks where to go on."""
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
        """The queues of a topic that can be read; their brokers know of the group from now on."""
        route = await self.session.route(self.session.names.wire(topic))
        await self.session.introduce()
        return route.read_queues

    async def pull(
        self, queue: MessageQueue, offset: int, expression: str = "*", count_max: int = 32, timeout_ms: int = 0, *, kind: str = TAG
    ) -> PullResult:
        """Messages of a queue from `offset` on, those of some tags or of an expression; the broker waits so long for the first one."""
        if count_max < 1:
            raise WrongCall(f"count_max is {count_max}: ask for one message at least")
        wanted = subscription(queue.topic, expression, kind, self.session.clock.now_ms())
        patience_ms = timeout_ms + _LATE_MS_MAX if timeout_ms else self.session.settings.timeout_ms
        return await pull(
            self.session, self.wire_group, queue, offset, wanted, count_max=count_max, suspend_ms=timeout_ms, timeout_ms=patience_ms
        )

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the broker deliver a message again, from the retry topic of the group, after the delay of a level or of its own rule."""
        if not await self._send_back.send_back(message, delay_level):
            raise SendFailed(f"no broker took {message.msg_id} back; the log says why. It is still where it was pulled from")

    # -- offsets

    async def fetch_offset(self, queue: MessageQueue) -> int | None:
        """How far the group has consumed a queue, as its broker knows it; None when it never did."""
        return await queue_offsets.group_offset(self.session, self.wire_group, queue)

    async def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Let the broker keep how far the group has consumed a queue: `offset` is that of the next message."""
        await queue_offsets.set_group_offset(self.session, self.wire_group, queue, offset)
        self._updated[queue] = offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that a queue still has."""
        return await queue_offsets.min_offset(self.session, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message that comes into a queue."""
        return await queue_offsets.max_offset(self.session, queue)

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message of a queue that was stored at a time or later."""
        return await queue_offsets.offset_at(self.session, queue, time_ms)
