"""Messages that wait for their time: found in the timer topic of each broker, and taken back.

What waits is read off the messages themselves, so that brokers of the original tell as much as ours: those that are due later and that no
recall behind them takes back. Nothing is changed but by the request that producers send.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from orbitmq.admin import own_queues
from orbitmq.admin.calls import Calls, Gathered
from orbitmq.admin.timer_topic import TimerTopic
from orbitmq.common.errors import MessageIllegal, NotFound, WrongCall
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers.send import RecallMessageRequestHeader

_IsWanted: TypeAlias = Callable[[RecordCursor], bool]
_READS_MAX: Final = 3  # of a queue: the second knows already what does not come, unless more came meanwhile
_SAME_ID_MAX: Final = 100
_GROUP: Final = "orbitmq-timer"  # who takes a message back, as the broker notes it


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """A message that waits for its time, as one broker keeps it."""

    broker: str
    address: str
    stored: StoredMessage
    deliver_at_ms: int

    @property
    def topic(self) -> str:
        """Where it will come to."""
        return self.stored.properties().get(properties.REAL_TOPIC, "")

    @property
    def unique_key(self) -> str:
        """The id that its producer knows it by."""
        return self.stored.properties().get(properties.UNIQUE_KEY, "")

    @property
    def recall_handle(self) -> str:
        """By which it is taken back."""
        out_ms = int(self.stored.properties()[properties.TIMER_OUT_MS])
        return RecallHandle(self.topic, self.broker, out_ms + 1, self.unique_key).text()


class TimerOperations:
    """See above."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def waiting(
        self, *, broker: str | None = None, topic: str | None = None, limit: int | None = None
    ) -> Gathered[list[TimedMessage]]:
        """The messages that wait at each broker, or at one, up to so many at each; the next to come first."""
        is_wanted = (lambda record: record.property(properties.REAL_TOPIC) == topic) if topic is not None else (lambda record: True)
        return await self._gathered(broker, limit, is_wanted)

    async def find(self, wanted: str, *, broker: str | None = None) -> TimedMessage:
        """The message of that unique id, or offset id; NotFound when none such waits, WrongCall when several do that come apart."""
        gathered = await self._gathered(
            broker, _SAME_ID_MAX, lambda record: wanted in (record.property(properties.UNIQUE_KEY), _offset_id(record))
        )
        found = [each for messages in gathered.found.values() for each in messages]
        found = [each for each in found if each.stored.msg_id == wanted] or found
        if len({each.recall_handle for each in found}) > 1:
            times = ", ".join(str(each.deliver_at_ms) for each in found)
            raise WrongCall(
                f"{len(found)} messages with the id {wanted} wait, due at {times} ms: name one by its recall handle, or its offset_msg_id; "
                "see: orbitmq timer ls -o json"
            )
        if found:
            return found[0]
        raise NotFound(f"no message {wanted} waits for its time: it has come, was taken back, or its id is another; see: orbitmq timer ls")

    async def cancel(self, handle: str) -> RecallHandle:
        """Take a message back, by its handle; RequestRefused when it has come, or recalls are not allowed. What the handle says."""
        said = RecallHandle.parse(handle)
        places = await self._calls.masters(broker=said.broker_name)
        header = RecallMessageRequestHeader(topic=said.topic, recall_handle=handle, producer_group=_GROUP, target_broker=said.broker_name)
        await self._calls.ask(places[said.broker_name], RequestCode.RECALL_MESSAGE, header)
        return said

    async def _gathered(self, broker: str | None, limit: int | None, is_wanted: _IsWanted) -> Gathered[list[TimedMessage]]:
        places = await self._calls.readers() if broker is None else await self._calls.masters(broker=broker)
        names = {address: name for name, address in places.items()}
        return await self._calls.gather(places, lambda address: self._waiting_at(names[address], address, limit, is_wanted))

    async def _waiting_at(self, broker: str, address: str, limit: int | None, is_wanted: _IsWanted) -> list[TimedMessage]:
        begin = await own_queues.begin(self._calls, address, TIMER_TOPIC)
        topic = TimerTopic(time.time_ns() // 1_000_000, limit, is_wanted)
        for _ in range(_READS_MAX):
            topic.again()
            async for records in own_queues.portions(self._calls, address, TIMER_TOPIC, begin):
                topic.take(records)
            if topic.is_exact:
                break
        return [TimedMessage(broker, address, stored, due_ms) for stored, due_ms in topic.found()]


def is_handle(text: str) -> bool:
    """Whether a text is a recall handle."""
    try:
        RecallHandle.parse(text)
    except MessageIllegal:
        return False
    return True


def _offset_id(record: RecordCursor) -> str:
    return offset_id(record.store_host(), record.log_offset)
