"""Open transactions: list and inspect them, end them by hand, list those that were given up, and
resume their checks.

Open transactions are computed from the two queues in which brokers record them, so that Apache
brokers report as much as OrbitMQ. The only changes are the requests that producers and Apache's
tools also send.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from orbitmq.admin import system_queues
from orbitmq.admin.calls import Calls, GatheredReplies
from orbitmq.broker.transactions.pending import Floors, Pending
from orbitmq.client.messages import TransactionState
from orbitmq.common.errors import NotFoundError
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.half_messages import OFFSETS_GROUP, QUEUE_ID, Half, ended_offsets, root_of
from orbitmq.message.record import decode_all
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import ClientConnection, decode_producer_connection
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.clients import GetProducerConnectionListRequestHeader
from orbitmq.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from orbitmq.protocol.headers.query import QueryMessageRequestHeader
from orbitmq.protocol.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

_RELATIVES_MAX: Final = 64
_FOREVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message of one broker whose transaction is open or was given up."""

    broker: str
    address: str
    stored: StoredMessage
    half: Half

    @property
    def unique_key(self) -> str:
        """The id its producer gave it."""
        return self.stored.properties().get(properties.UNIQUE_KEY, "")

    @property
    def is_given_up(self) -> bool:
        """Whether the broker stopped checking it."""
        return self.stored.topic == CHECK_MAX_TIME_TOPIC


class TransactionOperations:
    """Lists and ends open transactions."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # -- queries

    async def open(
        self, *, broker: str | None = None, given_up: bool = False
    ) -> GatheredReplies[list[HalfMessage]]:
        """Return the open half messages of each broker, or of one, or those given up."""
        places = (
            await self._calls.readers()
            if broker is None
            else await self._calls.masters(broker=broker)
        )
        names = {address: name for name, address in places.items()}
        read = self._given_up_at if given_up else self._open_at
        return await self._calls.gather(places, lambda address: read(names[address], address))

    async def find(self, wanted: str, *, broker: str | None = None) -> HalfMessage:
        """Return the half message with that unique id or offset id, open or given up; or raise
        NotFoundError.
        """
        for given_up in (False, True):
            found = (await self.open(broker=broker, given_up=given_up)).found
            matching = [
                each
                for halves in found.values()
                for each in halves
                if wanted in (each.unique_key, each.stored.msg_id)
            ]
            if matching:
                return matching[-1]
        raise NotFoundError(
            f"message {wanted} has no open transaction, nor one that was given up: it has ended, or"
            " the id is wrong"
        )

    async def producers(self, half: HalfMessage) -> list[ClientConnection]:
        """Return the online producers that the broker can ask about it."""
        header = GetProducerConnectionListRequestHeader(producer_group=half.half.group)
        code, offline = RequestCode.GET_PRODUCER_CONNECTION_LIST, (ResponseCode.SYSTEM_ERROR,)
        answer = await self._calls.ask(half.address, code, header, accept=offline)
        return (
            list(decode_producer_connection(answer.body))
            if answer.code == ResponseCode.SUCCESS and answer.body
            else []
        )

    # -- changes

    async def resolve(self, half: HalfMessage, state: TransactionState) -> None:
        """End a transaction as a checked producer would; raise RequestRefusedError if it has
        already ended.

        One that was given up is resumed first.
        """
        if half.is_given_up:
            await self.resume(half)
            half = await self._brought_back(half)
        header = EndTransactionRequestHeader(
            producer_group=half.half.group,
            tran_state_table_offset=half.stored.queue_offset,
            commit_log_offset=half.stored.log_offset,
            commit_or_rollback=state,
            msg_id=half.unique_key,
            topic=half.half.topic,
            from_transaction_check=True,
            transaction_id=half.unique_key,
            target_broker=half.broker,
        )
        await self._calls.ask(half.address, RequestCode.END_TRANSACTION, header)

    async def resume(self, half: HalfMessage) -> None:
        """Restart the broker's checks of a transaction, with a fresh count."""
        header = ResumeCheckHalfMessageRequestHeader(
            topic=half.stored.topic, msg_id=half.stored.msg_id
        )
        await self._calls.ask(half.address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    async def _brought_back(self, given_up: HalfMessage) -> HalfMessage:
        """Return the half message after it was resumed."""
        found: list[HalfMessage] = []

        async def is_there() -> bool:
            halves = await self._open_at(given_up.broker, given_up.address)
            found.extend(each for each in halves if each.unique_key == given_up.unique_key)
            return bool(found)

        if not await self._calls.until(is_there):
            raise NotFoundError(
                f"{given_up.broker} did not resume {given_up.unique_key} in time; look for it with:"
                " orbitmq tx list"
            )
        return found[-1]

    # -- reading

    async def _open_at(self, broker: str, address: str) -> list[HalfMessage]:
        floors = Floors(
            *await asyncio.gather(
                *(self._done_until(address, topic) for topic in (HALF_TOPIC, OP_HALF_TOPIC))
            )
        )
        pending = Pending()
        pending.begin(floors)
        records: dict[int, StoredMessage] = {}
        async for stored in system_queues.read_messages(
            self._calls, address, HALF_TOPIC, floors.half
        ):
            pending.took_half(Half.of(stored))
            records[stored.log_offset] = stored
        async for op in system_queues.read_messages(self._calls, address, OP_HALF_TOPIC, floors.op):
            pending.took_op(op.queue_offset, ended_offsets(op))
        found = (HalfMessage(broker, address, records[half.log_offset], half) for half in pending)
        return sorted(found, key=lambda each: each.half.since_ms)

    async def _given_up_at(self, broker: str, address: str) -> list[HalfMessage]:
        begin = await system_queues.first_offset(self._calls, address, CHECK_MAX_TIME_TOPIC)
        kept = [
            stored
            async for stored in system_queues.read_messages(
                self._calls, address, CHECK_MAX_TIME_TOPIC, begin
            )
        ]
        return [
            HalfMessage(broker, address, stored, Half.of(stored))
            for stored in kept
            if await self._is_left(address, stored)
        ]

    async def _is_left(self, address: str, given_up: StoredMessage) -> bool:
        """Return whether a transaction is unchanged since it was given up: no new copy, and no op
        record but that of giving up.
        """
        key, root = given_up.properties().get(properties.UNIQUE_KEY), root_of(given_up)
        if not key:
            return True
        halves, ops = await asyncio.gather(
            *(
                self._stored_since(address, topic, key, given_up)
                for topic in (HALF_TOPIC, OP_HALF_TOPIC)
            )
        )
        return not halves and len([op for op in ops if root in ended_offsets(op)]) <= 1

    async def _stored_since(
        self, address: str, topic: str, key: str, since: StoredMessage
    ) -> list[StoredMessage]:
        """Return the messages of a topic with a unique key that were stored after another."""
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=_RELATIVES_MAX,
            begin_timestamp=0,
            end_timestamp=_FOREVER_MS,
            unique_key_query=True,
        )
        answer = await self._calls.ask(
            address, RequestCode.QUERY_MESSAGE, header, accept=(ResponseCode.QUERY_NOT_FOUND,)
        )
        return [
            each
            for each in decode_all(answer.body or b"")
            if each.topic == topic and each.log_offset > since.log_offset
        ]

    async def _done_until(self, address: str, topic: str) -> int:
        """Return the first offset of a queue that is still needed to find open transactions."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=OFFSETS_GROUP, topic=topic, queue_id=QUEUE_ID
        )
        answer = await self._calls.ask(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return await system_queues.first_offset(self._calls, address, topic)
        return QueryConsumerOffsetResponseHeader.from_fields(answer.ext_fields).offset
