"""Stages messages at brokers as half messages, and commits or rolls them back when their batch is
decided.

A half message names its query and batch. A broker that gets no end of it checks with any process
that stages. That process looks into the transaction log: a message still pending when its batch is
done is unwanted, because a repeated task or a copy left it over. For any other message the outcome
is unknown. So only the driver commits, using what the tasks reported; it can do so however often
the broker has checked in vain or given up.

A commit whose reply was lost is sent again. OrbitMQ brokers refuse the second commit. Brokers of
Apache would store a second message, so the sender first queries whether the message is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from orbitmq.client.messages import Message, ReceivedMessage, SendResult, TransactionState
from orbitmq.client.producer.checkable_producer import CheckableProducer, HalfPlace
from orbitmq.client.producer.outbox import OutgoingMessage, ProducerSettings
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import OrbitError, RemoteUnavailableError, RequestRefusedError
from orbitmq.message import properties
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.query import QueryMessageRequestHeader
from orbitmq.spark.failures import DataLossError
from orbitmq.spark.sink.sender import Sender
from orbitmq.spark.sink.staged_messages import StagedMessage
from orbitmq.spark.sink.transaction_log import BatchState, TransactionLog

BATCH_PROPERTY: Final = "SPARK_BATCH"
_LANES: Final = 256  # concurrent ends of messages whose order does not matter
_LANE_ENDS_MIN: Final = 4
_FOREVER_MS: Final = (1 << 63) - 1
log = logging.getLogger(__name__)


class StagingSender(Sender):
    """Sends half messages and ends them; any thread may use it."""

    _producer: CheckableProducer

    def half_properties(self, message: Message, batch: str) -> dict[str, str]:
        """Return the properties of a message while it is staged."""
        return {**self._producer.half_properties(message), BATCH_PROPERTY: batch}

    def commit(self, staged: Iterable[StagedMessage], *, is_doubtful: bool) -> None:
        """Commit messages. With `is_doubtful`, some may be committed already. Raises
        SendFailedError when the time is up.
        """
        self._loop.call(self._commit_all, staged, is_doubtful)

    def roll_back(self, staged: Iterable[StagedMessage]) -> None:
        """Roll back messages at reachable brokers; the others are rolled back when their broker
        checks.
        """
        self._loop.call(self._roll_back_all, staged)

    # -- on the loop

    async def _started(
        self, client: ClientSettings, group: str, settings: ProducerSettings
    ) -> CheckableProducer:
        producer = CheckableProducer(
            client, group=group, check=_check_transaction, settings=settings, threads=1
        )
        await producer.start()
        return producer

    async def _send_once(self, outgoing: OutgoingMessage, queue: MessageQueue | None) -> SendResult:
        return await self._producer.send_half(outgoing, queue)

    async def _commit_all(self, staged: Iterable[StagedMessage], is_doubtful: bool) -> None:
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
            except RequestRefusedError as refusal:
                if refusal.code != ResponseCode.TRANSACTION_FAILED:
                    raise RemoteUnavailableError(
                        f"{half.broker_name} did not commit message {half.msg_id}: {refusal.remark}"
                    ) from refusal
                if not await self._is_delivered(half):
                    raise DataLossError(_not_delivered(half)) from refusal

        await self._with_retries(half.topic, work)

    async def _is_delivered(self, half: HalfPlace) -> bool:
        """Return whether the broker has the message in its topic."""
        header = QueryMessageRequestHeader(
            topic=half.topic,
            key=half.msg_id,
            max_num=32,
            begin_timestamp=0,
            end_timestamp=_FOREVER_MS,
            unique_key_query=True,
        )
        address = await self._producer.master_of(half)
        request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
        answer = await self._producer.session.client.invoke(address, request, self._request_ms)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefusedError(answer.code, answer.remark or f"code {answer.code}")
        found = decode_all(answer.body or b"")
        return any(
            each.topic == half.topic and each.properties().get(properties.UNIQUE_KEY) == half.msg_id
            for each in found
        )

    async def _roll_back_all(self, staged: Iterable[StagedMessage]) -> None:
        async def roll_back(lane: list[HalfPlace]) -> None:
            try:
                for half in lane:
                    await self._producer.end(half, TransactionState.ROLLBACK, self._request_ms)
            except OrbitError as problem:
                log.warning(
                    "staged_messages_left broker=%s why='%s'; the broker will check",
                    half.broker_name,
                    problem,
                )

        await asyncio.gather(*map(roll_back, _lanes(staged)))


def _lanes(staged: Iterable[StagedMessage]) -> list[list[HalfPlace]]:
    """Group messages that can be ended concurrently: those whose order matters one after another
    per queue, the others in any order.
    """
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
        f"message {half.msg_id} was staged at {half.broker_name}, which reports its transaction as"
        f" ended, but it is not in topic {half.topic}: it was rolled back (orbitmq tx), or the"
        " broker has no index to find it (messageIndexEnable=false)"
    )


# -- checks by brokers

_logs: dict[str, TransactionLog] = {}  # of the queries of this process, by name


def batch_name(transaction_log: TransactionLog, batch: int) -> str:
    """Return the name of a batch that its messages carry, and register its transaction log for
    checks by brokers.
    """
    _logs[transaction_log.name] = transaction_log
    return f"{transaction_log.name}/{batch}"


def _check_transaction(message: ReceivedMessage) -> TransactionState:
    """Answer a broker's check of a half message."""
    name, _, batch = message.properties.get(BATCH_PROPERTY, "").rpartition("/")
    transaction_log = _logs.get(name)
    if transaction_log is None or not batch.isdecimal():
        return TransactionState.UNKNOWN
    return (
        TransactionState.ROLLBACK
        if transaction_log.state(int(batch)) is BatchState.DONE
        else TransactionState.UNKNOWN
    )
