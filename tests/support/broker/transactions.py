"""What tests of transactions share: the application's own record of how they end, and what is said
and asked of a broker about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orbitmq.client.messages import Message, ReceivedMessage, SendResult, TransactionState
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.common.clock import SystemClock
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message.flags import TransactionType
from orbitmq.message.half_messages import OFFSETS_GROUP
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.record import decode_all
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from orbitmq.protocol.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing import LocalCluster
from support.broker.listeners import Unheard
from support.common.waiting import until

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)
GROUP, TOPIC = "ledger", "Orders"
HALF, OP, GIVEN_UP = HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC
WITHIN_S = 60.0


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            await scenario()

    asyncio.run(main())


class Ledger:
    """How transactions end, by the key of their message: first, then, and so on; the last answer is
    given again and again.
    """

    def __init__(self, **states: list[TransactionState]) -> None:
        self._states = states
        self.asked: list[str] = []

    def _next(self, key: str) -> TransactionState:
        states = self._states[key]
        return states.pop(0) if len(states) > 1 else states[0]

    def execute(self, message: Message, _argument: object) -> TransactionState:
        assert isinstance(message.keys, str)
        return self._next(message.keys)

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message.keys[0])
        return self._next(message.keys[0])

    async def until_asked(self, times: int) -> None:
        await until(lambda: len(self.asked) == times)

    def producer(self, mq: LocalCluster, group: str = GROUP) -> TransactionProducer:
        """One that a broker may ask from the start on."""
        return TransactionProducer(
            mq.name_server, group=group, execute=self.execute, check=self.check, topics=[TOPIC]
        )


class Desk:
    """Asks the first broker of a cluster as a producer or an operator does who knows where
    everything lies.
    """

    def __init__(self, mq: LocalCluster) -> None:
        self._mq = mq
        self._client = RemotingClient(ClientConfig(), SystemClock())

    async def __aenter__(self) -> Desk:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._client.close()

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        return await self._client.invoke(self._mq.broker_address(), request, 15_000)

    async def end(
        self, sent: SendResult, state: TransactionState, group: str = GROUP, *, asked: bool = False
    ) -> RemotingCommand:
        """Say how the transaction ended of a half message that was sent so."""
        return await self.end_at(
            sent.queue_offset,
            parse_offset_id(sent.offset_msg_id).log_offset,
            state,
            group,
            asked=asked,
        )

    async def end_at(
        self,
        offset: int,
        log_offset: int,
        state: TransactionState,
        group: str = GROUP,
        *,
        asked: bool = True,
    ) -> RemotingCommand:
        header = EndTransactionRequestHeader(
            producer_group=group,
            tran_state_table_offset=offset,
            commit_log_offset=log_offset,
            commit_or_rollback=state,
            msg_id="",
            from_transaction_check=asked,
        )
        return await self.ask(RemotingCommand.request(RequestCode.END_TRANSACTION, header))

    async def resume(self, stored: StoredMessage) -> RemotingCommand:
        header = ResumeCheckHalfMessageRequestHeader(topic=stored.topic, msg_id=stored.msg_id)
        return await self.ask(
            RemotingCommand.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        )

    async def stored(self, topic: str = TOPIC, queues: int = 1) -> list[StoredMessage]:
        """Every message of a topic."""
        found: list[StoredMessage] = []
        for queue_id in range(queues):
            offset = 0
            while True:
                fields = {
                    "consumerGroup": "desk",
                    "topic": topic,
                    "queueId": str(queue_id),
                    "queueOffset": str(offset),
                    "maxMsgNums": "32",
                    "sysFlag": "4",
                    "commitOffset": "0",
                    "suspendTimeoutMillis": "0",
                    "subscription": "*",
                    "subVersion": "0",
                }
                answer = await self.ask(
                    RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)
                )
                if answer.code != ResponseCode.SUCCESS:
                    break
                messages = list(decode_all(answer.body or b""))
                found += messages
                offset = messages[-1].queue_offset + 1
        return found

    async def done_until(self, topic: str) -> int:
        """How far the broker is done with a queue of its own."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=OFFSETS_GROUP, topic=topic, queue_id=0
        )
        answer = await self.ask(RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        return QueryConsumerOffsetResponseHeader.from_fields(answer.ext_fields).offset

    async def bodies(self, topic: str = TOPIC) -> list[bytes]:
        return [each.body for each in await self.stored(topic)]

    async def wait_for(self, *bodies: bytes, topic: str = TOPIC) -> None:
        """Until a topic has just these messages."""

        async def are_there() -> bool:
            return await self.bodies(topic) == list(bodies)

        await until(are_there, f"{topic} has just {bodies}")


def order(key: str) -> Message:
    return Message(TOPIC, key.encode(), keys=key)


class Nothing(Unheard):
    """Stands where transactions need somebody: hears everything and does nothing, delays nothing,
    can ask nobody.
    """

    def prepared(self, topic: str) -> None: ...
    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None: ...
    def rewrite(self, message: object, found: object) -> None: ...
    def rewrite_accepted(self, message: object, found: object) -> None: ...
    def ask(self, half: StoredMessage) -> None: ...

    def can_ask(self, group: str) -> bool:
        return False

    def given_up(self, half: StoredMessage) -> None:
        return None
