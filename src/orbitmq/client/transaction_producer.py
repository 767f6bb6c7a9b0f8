"""The producer of transactions: a message that consumers see only when a local transaction of the application was committed.

The broker takes the message, but keeps it back ("half message"); the local transaction runs; its end is told to the broker. When the broker
hears nothing, or that the end is not known, it asks any producer of the group, which may be another process, and asks again until it knows.

Plain functions of the application run in threads, never on the loop. Invariant: a half message is rolled back only when the application
says so, or when the broker did not store it as asked for; whatever fails leaves it UNKNOWN.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from orbitmq.client.asked_producer import THREADS_DEFAULT, AskedProducer, Check, HalfPlace
from orbitmq.client.messages import Message, SendResult, SendStatus, TransactionState
from orbitmq.client.outbox import Outgoing, ProducerSettings
from orbitmq.client.producer import QueueSelector
from orbitmq.client.session import Cluster
from orbitmq.common.errors import OrbitError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.bodies.clients import MessageQueue

log = logging.getLogger(__name__)

Execute = Callable[[Message, Any], TransactionState] | Callable[[Message, Any], Awaitable[TransactionState]]


class TransactionResult(NamedTuple):
    """Where the half message went, and how its transaction ended; `problem` is what the local transaction raised, if it did."""

    sent: SendResult
    state: TransactionState
    problem: Exception | None = None


class TransactionProducer(AskedProducer):
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
        super().__init__(cluster, group=group, check=check, topics=topics, threads=threads, settings=settings)
        self._execute = execute

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
        self._check_call()
        outgoing = self.outbox.message(message, self.half_properties(message), TransactionType.PREPARED)
        sent = await self.send_half(outgoing, queue, selector, timeout_ms)
        half = HalfPlace.of(outgoing.topic, sent)
        problem: Exception | None = None
        if sent.status is SendStatus.SEND_OK:
            named = replace(message, properties={**message.properties, properties.TRANSACTION_ID: outgoing.unique_key})
            state, problem = await self._call(self._execute, named, argument)
        else:
            state = TransactionState.ROLLBACK
            log.warning("half_message_not_safe msg_id=%s status='%s'; rolled back", sent.msg_id, sent.status.value)
        await self._end_own(outgoing, sent, half, state, problem)
        return TransactionResult(sent, state, problem)

    async def _end_own(
        self, outgoing: Outgoing, sent: SendResult, half: HalfPlace, state: TransactionState, problem: Exception | None
    ) -> None:
        """Say how it ended; a broker that cannot be told will ask."""
        address: str | None = None
        with contextlib.suppress(OrbitError):  # the local transaction has ended, whatever became of the route
            address = (await self._routes.of(outgoing.topic)).master(sent.queue.broker_name)
        told = {properties.MSG_REGION: sent.region or "", properties.TRACE_ON: "true" if sent.is_traced else "false"}
        await self._end(address, self.end_of(half, state), problem, {**properties.parse(outgoing.properties), **told})
