"""The producer of transactions: a message that consumers see only when a local transaction of the application was committed.

The broker takes the message, but keeps it back ("half message"); the local transaction runs; its end is told to the broker. When the broker
hears nothing, or that the end is not known, it asks any producer of the group, which may be another process, and asks again until it knows.

Plain functions of the application run in threads, never on the loop. Invariant: a half message is rolled back only when the application
says so, or when the broker did not store it as asked for; whatever fails leaves it UNKNOWN.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple

from orbitmq.client.messages import Message, ReceivedMessage, SendResult, SendStatus, TransactionState
from orbitmq.client.observers import TransactionEnd, tell
from orbitmq.client.outbox import Outgoing, ProducerSettings
from orbitmq.client.producer import Producer, QueueSelector
from orbitmq.client.pulling import BODY_SIZE_MAX
from orbitmq.client.session import Cluster, MemberHandler
from orbitmq.common.errors import MessageIllegal, NotFound, OrbitError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.record import decode
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from orbitmq.remoting.channel import Channel

CHECKS_MAX: Final = 2_000  # under way at the same time; what does not fit the broker asks again
THREADS_DEFAULT: Final = 20

log = logging.getLogger(__name__)

Execute = Callable[[Message, Any], TransactionState] | Callable[[Message, Any], Awaitable[TransactionState]]
Check = Callable[[ReceivedMessage], TransactionState] | Callable[[ReceivedMessage], Awaitable[TransactionState]]


class TransactionResult(NamedTuple):
    """Where the half message went, and how its transaction ended; `problem` is what the local transaction raised, if it did."""

    sent: SendResult
    state: TransactionState
    problem: Exception | None = None


class TransactionProducer(Producer):
    """`await producer.send_in_transaction(message, argument)` calls `execute(message, argument)` when the broker has the message.

    The id of the transaction is the property `__transactionId__` of that message; `check(message)` gets it as `msg_id`, and says how the
    transaction ended. `topics` are those whose brokers may ask from the start on, about messages of processes that are gone.
    """

    def __init__(
        self,
        cluster: Cluster = "",
        *,
        group: str,
        execute: Execute,
        check: Check,
        topics: Iterable[str] = (),
        threads: int = THREADS_DEFAULT,
        settings: ProducerSettings | None = None,
    ) -> None:
        super().__init__(cluster, group=group, settings=settings)
        self._execute = execute
        self._check = check
        self._topics = tuple(map(self.session.names.wire, topics))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"transaction-{group}")
        self._checks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await super().start()
        for topic in self._topics:
            with contextlib.suppress(NotFound):  # it is asked for again with all other routes
                await self.session.route(topic)
        await self.session.introduce()

    async def close(self) -> None:
        """Leave; checks that are under way are given up, the broker asks somebody else."""
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        await super().close()

    # -- as a member of its session

    def topics(self) -> Iterable[str]:
        return self._topics

    def serves(self) -> Mapping[int, MemberHandler]:
        return {**super().serves(), RequestCode.CHECK_TRANSACTION_STATE: self._take_check}

    # -- sending

    async def send_in_transaction(
        self,
        message: Message,
        argument: object = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Send a message, run the local transaction, and have the message delivered or not, as that ended."""
        if message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None:
            raise MessageIllegal("a message of a transaction cannot come later: it comes when the transaction is committed")
        added = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: self.producer_group}
        outgoing = self.outbox.message(message, added, TransactionType.PREPARED)
        await self.queues(message.topic)
        await self.session.introduce()  # a broker asks only producers that it knows
        sent = await self.send_outgoing(outgoing, queue, selector, timeout_ms)
        log_offset = parse_offset_id(sent.offset_msg_id).log_offset
        problem: Exception | None = None
        if sent.status is SendStatus.SEND_OK:
            named = replace(message, properties={**message.properties, properties.TRANSACTION_ID: outgoing.unique_key})
            state, problem = await self._call(self._execute, named, argument)
        else:
            state = TransactionState.ROLLBACK
            log.warning("half_message_not_safe msg_id=%s status='%s'; rolled back", sent.msg_id, sent.status.value)
        await self._end_own(outgoing, sent, log_offset, state, problem)
        return TransactionResult(sent, state, problem)

    async def _call(self, function: Execute | Check, *arguments: object) -> tuple[TransactionState, Exception | None]:
        """What a function of the application says; what it raises means that nobody knows."""
        call: Callable[..., Any] = function
        try:
            if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__):
                state = await call(*arguments)
            else:
                state = await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
            if not isinstance(state, TransactionState):
                raise TypeError(f"{call!r} returned {state!r}, which is no TransactionState")
        except Exception as problem:
            log.exception("transaction_function_failed group=%s; the broker will ask how the transaction ended", self.group)
            return TransactionState.UNKNOWN, problem
        return state, None

    # -- telling the broker

    async def _end_own(
        self, outgoing: Outgoing, sent: SendResult, log_offset: int, state: TransactionState, problem: Exception | None
    ) -> None:
        header = EndTransactionRequestHeader(
            producer_group=self.producer_group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=log_offset,
            commit_or_rollback=state,
            msg_id=sent.msg_id,
            topic=outgoing.topic,
            from_transaction_check=False,
            transaction_id=sent.transaction_id,
            target_broker=sent.queue.broker_name,
        )
        address: str | None = None
        with contextlib.suppress(OrbitError):  # the local transaction has ended, whatever became of the route
            address = (await self._route(outgoing.topic)).master(sent.queue.broker_name)
        told = {properties.MSG_REGION: sent.region or "", properties.TRACE_ON: "true" if sent.is_traced else "false"}
        await self._end(address, header, problem, {**properties.parse(outgoing.properties), **told})

    async def _end(
        self,
        address: str | None,
        header: EndTransactionRequestHeader,
        problem: Exception | None,
        found: Mapping[str, str],
    ) -> None:
        """Tell a broker, which does not answer; when it cannot be told, it will ask."""
        request = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        if problem is not None:
            request.remark = f"the local transaction, or its check, failed: {problem!r}"
        try:
            if address is None:
                raise NotFound(f"its broker {header.target_broker} has no master now")
            await self.session.client.invoke_oneway(address, request, self.settings.timeout_ms)
        except OrbitError as failure:
            log.warning("transaction_not_ended msg_id=%s why='%s'; the broker will ask", header.msg_id, failure)
        end = TransactionEnd(
            topic=self.session.names.own(header.topic or ""),
            msg_id=header.msg_id,
            tags=found.get(properties.TAGS),
            keys=found.get(properties.KEYS),
            region=found.get(properties.MSG_REGION),
            broker_address=address or "",
            transaction_id=header.transaction_id,
            state=TransactionState(header.commit_or_rollback),
            from_check=bool(header.from_transaction_check),
            is_traced=found.get(properties.TRACE_ON) != "false",
        )
        tell(self.observers, lambda observer: observer.transaction_ended(self.group, end))

    # -- asked by the broker

    async def _take_check(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        stored = decode(request.body or b"").inflated(BODY_SIZE_MAX)
        header = CheckTransactionStateRequestHeader.from_fields(request.ext_fields)
        message = ReceivedMessage.of(stored, header.target_broker or "")
        if message.properties.get(properties.PRODUCER_GROUP) != self.producer_group:
            return None
        if len(self._checks) >= CHECKS_MAX:
            log.warning("transaction_check_put_off msg_id=%s; %d are under way, the broker asks again", message.msg_id, CHECKS_MAX)
        else:
            task = asyncio.create_task(self._answer_check(channel.remote_address, header, message))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)
        return request.answer(ResponseCode.SUCCESS)

    async def _answer_check(self, address: str, asked: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        state, problem = await self._call(self._check, replace(message, topic=self.session.names.own(message.topic)))
        header = EndTransactionRequestHeader(
            producer_group=self.producer_group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=state,
            msg_id=message.msg_id,
            topic=message.topic,
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
            target_broker=asked.target_broker,
        )
        await self._end(address, header, problem, message.properties)
