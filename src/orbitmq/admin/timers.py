"""Scheduled messages: list those pending in the timer topic of each broker, and cancel them.

Pending messages are computed from the stored messages themselves, so that Apache brokers report as
much as OrbitMQ: those that are due later and not recalled. The only change is the recall request
that producers also send.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from orbitmq.admin import system_queues
from orbitmq.admin.calls import Calls, GatheredReplies
from orbitmq.admin.timer_topic import TimerTopic
from orbitmq.common.errors import InvalidMessageError, InvalidStateError, NotFoundError
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers.send import RecallMessageRequestHeader

_IsWanted: TypeAlias = Callable[[RecordCursor], bool]
_READS_MAX: Final = 3  # of a queue: the second knows all recalls, unless new ones arrived since
_SAME_ID_MAX: Final = 100
_GROUP: Final = "orbitmq-timer"  # the producer group of recalls


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """A pending scheduled message at one broker."""

    broker: str
    address: str
    stored: StoredMessage
    deliver_at_ms: int

    @property
    def topic(self) -> str:
        """The topic it will be delivered to."""
        return self.stored.properties().get(properties.REAL_TOPIC, "")

    @property
    def unique_key(self) -> str:
        """The id its producer gave it."""
        return self.stored.properties().get(properties.UNIQUE_KEY, "")

    @property
    def recall_handle(self) -> str:
        """The handle that recalls it."""
        out_ms = int(self.stored.properties()[properties.TIMER_OUT_MS])
        return RecallHandle(self.topic, self.broker, out_ms + 1, self.unique_key).text()


class TimerOperations:
    """Lists and cancels scheduled messages."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def waiting(
        self, *, broker: str | None = None, topic: str | None = None, limit: int | None = None
    ) -> GatheredReplies[list[TimedMessage]]:
        """Return the pending messages of each broker, or of one, at most `limit` each; the next due
        first.
        """
        is_wanted = (
            (lambda record: record.property(properties.REAL_TOPIC) == topic)
            if topic is not None
            else (lambda record: True)
        )
        return await self._gathered(broker, limit, is_wanted)

    async def find(self, wanted: str, *, broker: str | None = None) -> TimedMessage:
        """Return the pending message with that unique id or offset id.

        Raises NotFoundError if there is none, InvalidStateError if there are several with different
        handles.
        """
        gathered = await self._gathered(
            broker,
            _SAME_ID_MAX,
            lambda record: wanted in (record.property(properties.UNIQUE_KEY), _offset_id(record)),
        )
        found = [each for messages in gathered.found.values() for each in messages]
        found = [each for each in found if each.stored.msg_id == wanted] or found
        if len({each.recall_handle for each in found}) > 1:
            times = ", ".join(str(each.deliver_at_ms) for each in found)
            raise InvalidStateError(
                f"{len(found)} messages with the id {wanted} are pending, due at {times} ms: name"
                " one by its recall handle or offset_msg_id; see: orbitmq timer list -o json"
            )
        if found:
            return found[0]
        raise NotFoundError(
            f"no message {wanted} is pending: it was delivered or recalled, or the id is wrong;"
            " see: orbitmq timer list"
        )

    async def cancel(self, handle: str) -> RecallHandle:
        """Recall a message by its handle, and return what the handle encodes.

        Raises RequestRefusedError if it was delivered, or if recalls are disabled.
        """
        said = RecallHandle.parse(handle)
        places = await self._calls.masters(broker=said.broker_name)
        header = RecallMessageRequestHeader(
            topic=said.topic,
            recall_handle=handle,
            producer_group=_GROUP,
            target_broker=said.broker_name,
        )
        await self._calls.ask(places[said.broker_name], RequestCode.RECALL_MESSAGE, header)
        return said

    async def _gathered(
        self, broker: str | None, limit: int | None, is_wanted: _IsWanted
    ) -> GatheredReplies[list[TimedMessage]]:
        places = (
            await self._calls.readers()
            if broker is None
            else await self._calls.masters(broker=broker)
        )
        names = {address: name for name, address in places.items()}
        return await self._calls.gather(
            places, lambda address: self._waiting_at(names[address], address, limit, is_wanted)
        )

    async def _waiting_at(
        self, broker: str, address: str, limit: int | None, is_wanted: _IsWanted
    ) -> list[TimedMessage]:
        begin = await system_queues.first_offset(self._calls, address, TIMER_TOPIC)
        topic = TimerTopic(time.time_ns() // 1_000_000, limit, is_wanted)
        for _ in range(_READS_MAX):
            topic.restart()
            async for records in system_queues.read_records(
                self._calls, address, TIMER_TOPIC, begin
            ):
                topic.add(records)
            if topic.is_exact:
                break
        return [TimedMessage(broker, address, stored, due_ms) for stored, due_ms in topic.found()]


def is_handle(text: str) -> bool:
    """Return whether a text is a recall handle."""
    try:
        RecallHandle.parse(text)
    except InvalidMessageError:
        return False
    return True


def _offset_id(record: RecordCursor) -> str:
    return offset_id(record.store_host(), record.log_offset)
