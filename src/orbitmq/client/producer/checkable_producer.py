"""A producer that answers transaction checks: brokers ask how the transaction of a half message
ended when they have received no outcome.

A half message is withheld from consumers until its broker knows the outcome. Brokers may ask any
producer of the group, possibly in another process than the sender, and repeat until they know.

Plain application functions run in threads, never on the loop. Invariant: a failure leaves the
transaction UNKNOWN.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from orbitmq.client.background import DaemonPool
from orbitmq.client.messages import Message, ReceivedMessage, SendResult, TransactionState
from orbitmq.client.observers import TransactionEnd, notify
from orbitmq.client.producer.outbox import OutgoingMessage, ProducerSettings
from orbitmq.client.producer.producer import Producer, QueueSelector
from orbitmq.client.session.client_session import Cluster, MemberHandler
from orbitmq.client.unwrapping import unwrap_one
from orbitmq.common.errors import InvalidMessageError, NotFoundError, OrbitError
from orbitmq.message import properties
from orbitmq.message.message_id import parse_offset_id
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from orbitmq.remoting.channel import Channel

CHECKS_MAX: Final = 2_000  # running at the same time; the broker repeats those beyond it
THREADS_DEFAULT: Final = 20

log = logging.getLogger(__name__)

Check = (
    Callable[[ReceivedMessage], TransactionState]
    | Callable[[ReceivedMessage], Awaitable[TransactionState]]
)


class HalfPlace(NamedTuple):
    """A half message and its location in the broker."""

    topic: str  # its real topic, by the broker's name
    broker_name: str | None
    queue_offset: int  # in the half-message queue
    log_offset: int
    msg_id: str
    transaction_id: str | None

    @classmethod
    def of(cls, topic: str, sent: SendResult) -> HalfPlace:
        """Return the location of a half message from the result of its send."""
        log_offset = parse_offset_id(sent.offset_msg_id).log_offset
        return cls(
            topic,
            sent.queue.broker_name,
            sent.queue_offset,
            log_offset,
            sent.msg_id,
            sent.transaction_id,
        )


class CheckableProducer(Producer):
    """A producer whose `check(message)` returns how a transaction ended; its id is the message's
    `msg_id`.

    `topics` are those whose brokers may ask from the start, about messages of earlier processes.
    """

    def __init__(
        self,
        cluster: Cluster = "",
        *,
        group: str,
        check: Check,
        topics: Iterable[str] = (),
        threads: int = THREADS_DEFAULT,
        settings: ProducerSettings | None = None,
    ) -> None:
        super().__init__(cluster, group=group, settings=settings)
        self._check = check
        self._topics = tuple(map(self.session.names.wire, topics))
        self._pool = DaemonPool(threads, f"transaction-{group}")
        self._checks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register with brokers, including those of `topics`."""
        await super().start()
        for topic in self._topics:
            with contextlib.suppress(
                NotFoundError
            ):  # fetched again with the next refresh of routes
                await self.session.route(topic)
        await self.session.announce()

    async def close(self) -> None:
        """Leave; running checks are cancelled, and the broker asks another producer."""
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        self._pool.close()
        await super().close()

    # -- as a member of its session

    def topics(self) -> Iterable[str]:
        return *super().topics(), *self._topics

    def serves(self) -> Mapping[int, MemberHandler]:
        return {**super().serves(), RequestCode.CHECK_TRANSACTION_STATE: self._accept_check}

    # -- half messages

    def half_properties(self, message: Message) -> Mapping[str, str]:
        """Return the properties of a half message; raise InvalidMessageError for a delayed one."""
        if message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None:
            raise InvalidMessageError(
                "a transactional message cannot be delayed: it is delivered when its transaction"
                " commits"
            )
        return {
            properties.TRANSACTION_PREPARED: "true",
            properties.PRODUCER_GROUP: self.producer_group,
        }

    async def send_half(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a half message encoded by the outbox, once the brokers know whom to ask about it."""
        timeout_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        await self._routes.before_deadline(outgoing.topic, deadline_ms, timeout_ms)
        with contextlib.suppress(TimeoutError):  # the send fails by the same deadline
            async with asyncio.timeout((deadline_ms - self._clock.monotonic_ms()) / 1000):
                await self.session.announce()
        return await self.send_outgoing(
            outgoing, queue, selector, deadline_ms - self._clock.monotonic_ms()
        )

    def end_of(
        self, half: HalfPlace, state: TransactionState, *, from_check: bool = False
    ) -> EndTransactionRequestHeader:
        """Return the header that ends the transaction of a half message."""
        return EndTransactionRequestHeader(
            producer_group=self.producer_group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=state,
            msg_id=half.msg_id,
            topic=half.topic,
            from_transaction_check=from_check,
            transaction_id=half.transaction_id,
            target_broker=half.broker_name,
        )

    async def end(self, half: HalfPlace, state: TransactionState, timeout_ms: int) -> None:
        """End a transaction and wait for the broker's reply; raise RequestRefusedError if it
        refuses.
        """
        request = RemotingCommand.request(RequestCode.END_TRANSACTION, self.end_of(half, state))
        await self.session.ask(await self.master_of(half), request, timeout_ms)

    async def master_of(self, half: HalfPlace) -> str:
        """Return the address of the master that stores a half message."""
        address = (await self._routes.find(half.topic)).master(half.broker_name or "")
        if address is None:
            raise NotFoundError(
                f"the broker {half.broker_name} of a half message to topic {half.topic} has no"
                " master at the moment"
            )
        return self.session.send_address(address)

    async def _call(
        self, function: Callable[..., Any], *arguments: object
    ) -> tuple[TransactionState, Exception | None]:
        """Call an application function; return UNKNOWN and the error if it fails."""
        try:
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
                type(function).__call__
            ):
                state = await function(*arguments)
            else:
                state = await self._pool.run(function, *arguments)
            if not isinstance(state, TransactionState):
                raise TypeError(f"{function!r} returned {state!r}, which is not a TransactionState")
        except Exception as problem:
            log.exception(
                "transaction_function_failed group=%s; the broker will check the transaction",
                self.group,
            )
            return TransactionState.UNKNOWN, problem
        return state, None

    async def _end(
        self,
        address: str | None,
        header: EndTransactionRequestHeader,
        problem: Exception | None,
        found: Mapping[str, str],
    ) -> None:
        """Send the outcome one-way; if that fails, the broker will ask for it."""
        request = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        if problem is not None:
            request.remark = f"the local transaction or its check failed: {problem!r}"
        try:
            if address is None:
                raise NotFoundError(
                    f"its broker {header.target_broker} has no master at the moment"
                )
            await self.session.client.invoke_oneway(address, request, self.settings.timeout_ms)
        except OrbitError as failure:
            log.warning(
                "transaction_not_ended msg_id=%s why='%s'; the broker will check it",
                header.msg_id,
                failure,
            )
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
        notify(self.observers, lambda observer: observer.transaction_ended(self.group, end))

    # -- checks by the broker

    async def _accept_check(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | None:
        header = CheckTransactionStateRequestHeader.from_fields(request.ext_fields)
        message = unwrap_one(request.body or b"", header.target_broker or "")
        if message.properties.get(properties.PRODUCER_GROUP) != self.producer_group:
            return None
        if len(self._checks) >= CHECKS_MAX:
            log.warning(
                "transaction_check_put_off msg_id=%s; %d checks are running, the broker will repeat"
                " it",
                message.msg_id,
                CHECKS_MAX,
            )
        else:
            task = asyncio.create_task(self._answer_check(channel.remote_address, header, message))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)
        return request.reply(ResponseCode.SUCCESS)

    async def _answer_check(
        self, address: str, asked: CheckTransactionStateRequestHeader, message: ReceivedMessage
    ) -> None:
        state, problem = await self._call(
            self._check, replace(message, topic=self.session.names.own(message.topic))
        )
        half = HalfPlace(
            message.topic,
            asked.target_broker,
            asked.tran_state_table_offset,
            asked.commit_log_offset,
            message.msg_id,
            asked.transaction_id,
        )
        header = self.end_of(half, state, from_check=True)
        await self._end(address, header, problem, message.properties)
