"""Messages that wait for their time: found in the timer topic of each broker, and taken back.

What waits is read off the messages themselves, so that brokers of the original tell as much as ours: those that are due later and that no
recall behind them takes back. Nothing is changed but by the request that producers send.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orbitmq.admin import own_queues
from orbitmq.admin.calls import Calls, Gathered
from orbitmq.broker.delay.timer_rules import Taker, exact_time, is_taken_back, taker_of
from orbitmq.common.errors import MessageIllegal, NotFound
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers.send import RecallMessageRequestHeader

_PRECISION_MS: Final = 1000
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

    async def waiting(self, *, broker: str | None = None, topic: str | None = None) -> Gathered[list[TimedMessage]]:
        """The messages that wait at each broker, or at one; the next to come first."""
        places = await self._calls.readers() if broker is None else await self._calls.masters(broker=broker)
        names = {address: name for name, address in places.items()}
        return await self._calls.gather(places, lambda address: self._waiting_at(names[address], address, topic))

    async def find(self, wanted: str, *, broker: str | None = None) -> TimedMessage:
        """The message of that unique id, or offset id; NotFound when none such waits."""
        found = (await self.waiting(broker=broker)).found
        for each in (each for messages in found.values() for each in messages):
            if wanted in (each.unique_key, each.stored.msg_id):
                return each
        raise NotFound(f"no message {wanted} waits for its time: it has come, was taken back, or its id is another; see: orbitmq timer ls")

    async def cancel(self, handle: str) -> RecallHandle:
        """Take a message back, by its handle; RequestRefused when it has come, or recalls are not allowed. What the handle says."""
        said = RecallHandle.parse(handle)
        places = await self._calls.masters(broker=said.broker_name)
        header = RecallMessageRequestHeader(topic=said.topic, recall_handle=handle, producer_group=_GROUP, target_broker=said.broker_name)
        await self._calls.ask(places[said.broker_name], RequestCode.RECALL_MESSAGE, header)
        return said

    async def _waiting_at(self, broker: str, address: str, topic: str | None) -> list[TimedMessage]:
        begin, now_ms = await own_queues.begin(self._calls, address, TIMER_TOPIC), time.time_ns() // 1_000_000
        stored = [each async for each in own_queues.read(self._calls, address, TIMER_TOPIC, begin) if _may_wait(each, topic, now_ms)]
        waiting = [TimedMessage(broker, address, each, due_ms) for each, due_ms in _waiting(stored) if due_ms > now_ms]
        return sorted(waiting, key=lambda each: each.deliver_at_ms)


def is_handle(text: str) -> bool:
    """Whether a text is a recall handle."""
    try:
        RecallHandle.parse(text)
    except MessageIllegal:
        return False
    return True


def _may_wait(stored: StoredMessage, topic: str | None, now_ms: int) -> bool:
    found = stored.properties()
    out_text = found.get(properties.TIMER_OUT_MS, "")
    return topic in (None, found.get(properties.REAL_TOPIC)) and out_text.isdecimal() and int(out_text) + _PRECISION_MS > now_ms


def _waiting(stored: Iterable[StoredMessage]) -> Iterable[tuple[StoredMessage, int]]:
    """Those that no other of their slot takes back, with their times; of one that was rolled the last."""
    last: dict[tuple[int, str, str], StoredMessage] = {}
    takers: defaultdict[int, set[Taker]] = defaultdict(set)
    for each in stored:
        found = each.properties()
        slot_ms = int(found[properties.TIMER_OUT_MS])
        if properties.TIMER_DEL_UNIQUE_KEY in found:
            takers[slot_ms].add(taker_of(found.get))
        else:
            last[slot_ms, found.get(properties.REAL_TOPIC, ""), found.get(properties.UNIQUE_KEY) or each.msg_id] = each
    for (slot_ms, *_), each in last.items():
        found = each.properties()
        if not is_taken_back(found, takers[slot_ms]):
            yield each, exact_time(each.store_time_ms, found.get, slot_ms, _PRECISION_MS)
