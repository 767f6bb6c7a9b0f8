"""The transaction producer: sends messages that consumers see only after a local transaction of the
application has committed.

The broker stores the message but withholds it ("half message"); the local transaction runs; its
outcome is sent to the broker. If the broker receives no outcome or UNKNOWN, it asks any producer of
the group, possibly in another process, until it knows.

Plain application functions run in threads, never on the loop. Invariant: a half message is rolled
back only if the application says so, or if the broker did not store it as requested; any other
failure leaves it UNKNOWN.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from orbitmq.client.messages import Message, SendResult, SendStatus, TransactionState
from orbitmq.client.producer.checkable_producer import (
    THREADS_DEFAULT,
    Check,
    CheckableProducer,
    HalfPlace,
)
from orbitmq.client.producer.outbox import OutgoingMessage, ProducerSettings
from orbitmq.client.producer.producer import QueueSelector
from orbitmq.client.session.client_session import Cluster
from orbitmq.common.errors import OrbitError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.bodies.clients import MessageQueue

log = logging.getLogger(__name__)

Execute = (
    Callable[[Message, Any], TransactionState]
    | Callable[[Message, Any], Awaitable[TransactionState]]
)


class TransactionResult(NamedTuple):
    """Where the half message was stored, how its transaction ended, and the error of the local
    transaction, if any.
    """

    sent: SendResult
    state: TransactionState
    problem: Exception | None = None


class TransactionProducer(CheckableProducer):
    """Sends messages in local transactions.

    `await producer.send_in_transaction(message, argument)` calls `execute(message, argument)` after
    the broker has stored the message. The transaction id is the property `__transactionId__` of
    that message; `check(message)` gets it as `msg_id`, and returns how the transaction ended.
    `topics` are those whose brokers may ask from the start, about messages of earlier processes.
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
        super().__init__(
            cluster, group=group, check=check, topics=topics, threads=threads, settings=settings
        )
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
        """Send a half message, run the local transaction, and commit or roll back the message
        accordingly.
        """
        self._check_call()
        outgoing = self.outbox.message(
            message, self.half_properties(message), TransactionType.PREPARED
        )
        sent = await self.send_half(outgoing, queue, selector, timeout_ms)
        half = HalfPlace.of(outgoing.topic, sent)
        problem: Exception | None = None
        if sent.status is SendStatus.SEND_OK:
            named = replace(
                message,
                properties={**message.properties, properties.TRANSACTION_ID: outgoing.unique_key},
            )
            state, problem = await self._call(self._execute, named, argument)
        else:
            state = TransactionState.ROLLBACK
            log.warning(
                "half_message_not_safe msg_id=%s status='%s'; rolled back",
                sent.msg_id,
                sent.status.value,
            )
        await self._end_own(outgoing, sent, half, state, problem)
        return TransactionResult(sent, state, problem)

    async def _end_own(
        self,
        outgoing: OutgoingMessage,
        sent: SendResult,
        half: HalfPlace,
        state: TransactionState,
        problem: Exception | None,
    ) -> None:
        """Send the outcome; if that fails, the broker will ask for it."""
        address: str | None = None
        # The local transaction has ended, even if the route cannot be found.
        with contextlib.suppress(OrbitError):
            address = (await self._routes.find(outgoing.topic)).master(sent.queue.broker_name)
        reported = {
            properties.MSG_REGION: sent.region or "",
            properties.TRACE_ON: "true" if sent.is_traced else "false",
        }
        await self._end(
            address,
            self.end_of(half, state),
            problem,
            {**properties.parse(outgoing.properties), **reported},
        )
