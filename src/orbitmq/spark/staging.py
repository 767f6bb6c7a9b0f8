"""Stages messages at brokers, as half messages that nobody reads, and ends them when their batch was decided.

A half message says which query and batch it is of. Brokers that hear no end of one ask any process that stages. That looks into the
transaction log: a message that is still there when its batch is done is not wanted, since it is left over from a task that was repeated, or
a copy. Of any other nobody knows yet. So only the driver commits, by what tasks told it, which it can however often the broker asked
in vain, or gave up, before.

Ends are told again when an answer was lost. Brokers of OrbitMQ refuse the second end; since Apache's take it for another message, it is
looked up first whether the message is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from orbitmq.client.asked_producer import AskedProducer, HalfPlace
from orbitmq.client.messages import Message, ReceivedMessage, SendResult, TransactionState
from orbitmq.client.outbox import Outgoing, ProducerSettings
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import OrbitError, RemoteUnavailable, RequestRefused
from orbitmq.message import properties
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.query import QueryMessageRequestHeader
from orbitmq.spark.failures import DataLost
from orbitmq.spark.sender import Sender
from orbitmq.spark.staged_messages import Staged
from orbitmq.spark.transaction_log import BatchState, TransactionLog

BATCH_PROPERTY: Final = "SPARK_BATCH"
_LANES: Final = 256  # ends under way at the same time, of messages whose order does not matter
_LANE_ENDS_MIN: Final = 4
_FOREVER_MS: Final = (1 << 63) - 1
log = logging.getLogger(__name__)


class StagingSender(Sender):
    """See above; any thread may use it."""

    _producer: AskedProducer

    def half_properties(self, message: Message, batch: str) -> dict[str, str]:
        """What a message of a batch says of itself while it is staged."""
        return {**self._producer.half_properties(message), BATCH_PROPERTY: batch}

    def commit(self, staged: Iterable[Staged], *, is_doubtful: bool) -> None:
        """Commit messages; `is_doubtful`: some of them may be committed already. SendFailed when it cannot be done in time."""
        self._loop.call(self._commit_all, staged, is_doubtful)

    def roll_back(self, staged: Iterable[Staged]) -> None:
        """Let messages be forgotten, as far as brokers can be reached now; the others are when brokers ask."""
        self._loop.call(self._roll_back_all, staged)

    # -- on the loop

    async def _started(self, client: ClientSettings, group: str, settings: ProducerSettings) -> AskedProducer:
        producer = AskedProducer(client, group=group, check=_answer, settings=settings, threads=1)
        await producer.start()
        return producer

    async def _send_once(self, outgoing: Outgoing, queue: MessageQueue | None) -> SendResult:
        return await self._producer.send_half(outgoing, queue)

    async def _commit_all(self, staged: Iterable[Staged], is_doubtful: bool) -> None:
        async def commit(lane: list[HalfPlace]) -> None:
            for half in lane:
                await self._commit(half, is_doubtful)

        tasks = [asyncio.create_task(commit(lane)) for lane in _lanes(staged)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _commit(self, half: HalfPlace, is_doubtful: bool) -> None:
        async def work() -> None:
            nonlocal is_doubtful
            try:
                if is_doubtful and await self._is_delivered(half):
                    return
                is_doubtful = True
                await self._producer.end(half, TransactionState.COMMIT, self._request_ms)
            except RequestRefused as refusal:
                if refusal.code != ResponseCode.TRANSACTION_FAILED:
                    raise RemoteUnavailable(f"{half.broker_name} did not commit message {half.msg_id}: {refusal.remark}") from refusal
                if not await self._is_delivered(half):
                    raise DataLost(_not_delivered(half)) from refusal

        await self._patiently(half.topic, work)

    async def _is_delivered(self, half: HalfPlace) -> bool:
        """Whether the broker has the message where consumers read it."""
        header = QueryMessageRequestHeader(
            topic=half.topic, key=half.msg_id, max_num=32, begin_timestamp=0, end_timestamp=_FOREVER_MS, unique_key_query=True
        )
        address = await self._producer.master_of(half)
        request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
        answer = await self._producer.session.client.invoke(address, request, self._request_ms)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or f"code {answer.code}")
        found = decode_all(answer.body or b"")
        return any(each.topic == half.topic and each.properties().get(properties.UNIQUE_KEY) == half.msg_id for each in found)

    async def _roll_back_all(self, staged: Iterable[Staged]) -> None:
        async def roll_back(lane: list[HalfPlace]) -> None:
            try:
                for half in lane:
                    await self._producer.end(half, TransactionState.ROLLBACK, self._request_ms)
            except OrbitError as problem:
                log.warning("staged_messages_left broker=%s why='%s'; the broker will ask", half.broker_name, problem)

        await asyncio.gather(*map(roll_back, _lanes(staged)))


def _lanes(staged: Iterable[Staged]) -> list[list[HalfPlace]]:
    """What can be told at the same time: those of a queue that care for their order one behind the other, the others as they come."""
    ordered: dict[tuple[str, str | None, int], list[HalfPlace]] = {}
    free: list[HalfPlace] = []
    for half, queue_id in staged:
        if queue_id is None:
            free.append(half)
        else:
            ordered.setdefault((half.topic, half.broker_name, queue_id), []).append(half)
    lanes = min(_LANES, max(1, len(free) // _LANE_ENDS_MIN))
    return [*ordered.values(), *(free[lane::lanes] for lane in range(lanes))]


def _not_delivered(half: HalfPlace) -> str:
    return (
        f"message {half.msg_id} was staged at {half.broker_name}, which says that its transaction has ended, "
        f"and it is not in topic {half.topic}: somebody has rolled it back (orbitmq tx), "
        "or the broker has no index by which it would be found (messageIndexEnable=false)"
    )


# -- what brokers are told who ask

_logs: dict[str, TransactionLog] = {}  # of queries that this process has worked for


def batch_name(transaction_log: TransactionLog, batch: int) -> str:
    """How a message says what it is part of; from now on this process can say what becomes of such messages."""
    _logs[transaction_log.name] = transaction_log
    return f"{transaction_log.name}/{batch}"


def _answer(message: ReceivedMessage) -> TransactionState:
    name, _, batch = message.properties.get(BATCH_PROPERTY, "").rpartition("/")
    transaction_log = _logs.get(name)
    if transaction_log is None or not batch.isdecimal():
        return TransactionState.UNKNOWN
    return TransactionState.ROLLBACK if transaction_log.state(int(batch)) is BatchState.DONE else TransactionState.UNKNOWN
