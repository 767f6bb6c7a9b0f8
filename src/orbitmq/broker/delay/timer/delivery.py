"""Delivery of due timed messages: to their destination, back to the timer topic, or nowhere if they
were recalled.

Knows nothing of due times. Crash rule: the journal says which copies are about to be written, and
where, and afterwards that they are; after a kill in between, `written` finds the answer in the log.
Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from orbitmq.broker.delay import redelivery
from orbitmq.broker.delay.timer.due_slot import DueMessage, DueSlot
from orbitmq.broker.delay.timer.files import TimerFiles
from orbitmq.broker.delay.timer.place import Intent
from orbitmq.broker.delay.timer.rules import exact_time, is_recalled
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.common.errors import InvalidMessageError
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage

log = logging.getLogger(__name__)


class DeliveryListener(Protocol):
    """Is notified of messages that leave the wheel."""

    def timed_delivered(self, topic: str) -> None: ...


class _Copy(NamedTuple):
    """The copy of a message, and its destination topic."""

    due: DueMessage
    topic: str
    message: MessageRecord


class TimerDelivery:
    """Makes and stores the copies of due timed messages."""

    def __init__(
        self,
        files: TimerFiles,
        precision_ms: int,
        reads: PluggableReads,
        own: InternalMessageWriter,
        listener: DeliveryListener,
    ) -> None:
        self._files = files
        self._precision_ms = precision_ms
        self._reads = reads
        self._own = own
        self._listener = listener

    def release(self, slot: DueSlot, due: Sequence[DueMessage], now_ms: int) -> int:
        """Store the copies of due messages in one write, and note it; return how many. Raises
        StoreError if the store accepts no more.
        """
        made = [copy for each in due if (copy := self._copy(slot, each, now_ms)) is not None]
        if made:
            self._files.journal.intends(self._own.log_end, [copy.due.log_offset for copy in made])
        left, done = made, 0
        for count, log_end, _, _ in redelivery.put(self._own, [copy.message for copy in made]):
            stored, left = left[:count], left[count:]
            self._files.journal.delivered(log_end, [copy.due.log_offset for copy in stored])
            behind = due.index(stored[-1].due) + 1
            slot.done(behind - done)
            done = behind
            for copy in stored:
                self._files.metrics.add(copy.topic, -1, now_ms)
                self._listener.timed_delivered(copy.topic)
        slot.done(len(due) - done)
        return len(made)

    def written(self, intent: Intent) -> list[int]:
        """Return which messages of a batch have their copies in the commit log, by log offset."""
        return redelivery.written(
            self._own, self._reads, intent.log_begin, intent.log_offsets, self._is_copy
        )

    def _is_copy(self, written: StoredMessage, log_offset: int) -> bool:
        stored = redelivery.message_at(self._reads, log_offset)
        if stored is None or stored.topic != TIMER_TOPIC:
            return False
        due, found = (
            DueMessage(log_offset, 0, rolls=written.topic == TIMER_TOPIC),
            stored.properties(),
        )
        try:
            copy = (
                self._moved(due, stored, found, 0)
                if due.rolls
                else redelivery.fired(stored, found, 0, 0)
            )
        except InvalidMessageError:
            return False
        return redelivery.is_written_as(written, copy)

    def message(self, log_offset: int) -> StoredMessage | None:
        """Return a message of the timer topic; None, with an error in the log, if it is gone."""
        stored = redelivery.message_at(self._reads, log_offset)
        if stored is None or stored.topic != TIMER_TOPIC:
            log.error(
                "timed_message_dropped log_offset=%d reason=its record is corrupt or was deleted",
                log_offset,
            )
            return None
        return stored

    def _copy(self, slot: DueSlot, due: DueMessage, now_ms: int) -> _Copy | None:
        stored = self.message(due.log_offset)
        if stored is None:
            return None
        found = stored.properties()
        try:
            message = self._made(slot, due, stored, found, now_ms)
        except InvalidMessageError as error:
            log.error("timed_message_dropped offset=%d reason=%s", stored.queue_offset, error)
            return None
        return (
            None if message is None else _Copy(due, found.get(properties.REAL_TOPIC, ""), message)
        )

    def _made(
        self,
        slot: DueSlot,
        due: DueMessage,
        stored: StoredMessage,
        found: Mapping[str, str],
        now_ms: int,
    ) -> MessageRecord | None:
        """Return the copy of a due message; None if nothing is to be stored."""
        if due.rolls:
            return self._moved(due, stored, found, now_ms)
        if properties.TIMER_DEL_UNIQUE_KEY in found or is_recalled(found, slot.recall_keys):
            return None
        return redelivery.fired(stored, found, due.enqueued_ms, now_ms)

    def _moved(
        self, due: DueMessage, stored: StoredMessage, found: Mapping[str, str], now_ms: int
    ) -> MessageRecord:
        """Return the copy for the timer topic of a message that is to be rolled."""
        deliver_ms = exact_time(
            stored.store_time_ms, found.get, int(found[properties.TIMER_OUT_MS]), self._precision_ms
        )
        return redelivery.rolled(stored, found, due.enqueued_ms, now_ms, deliver_ms)
