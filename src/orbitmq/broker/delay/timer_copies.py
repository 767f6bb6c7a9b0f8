"""What becomes of timed messages that are due: they go where they belong, once more into the timer topic, or nowhere.

Knows nothing of when. Crash rule: the journal says which copies are about to be written, and where, and afterwards that they are; a kill in
between leaves the question to `written`, which looks into the log. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from orbitmq.broker.delay import copies
from orbitmq.broker.delay.due_slot import DueMessage, DueSlot
from orbitmq.broker.delay.timer_files import TimerFiles
from orbitmq.broker.delay.timer_place import Intent
from orbitmq.broker.delay.timer_rules import exact_time, is_taken_back
from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.common.errors import MessageIllegal
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage

log = logging.getLogger(__name__)


class DeliveryListener(Protocol):
    """Hears what comes out of the wheel."""

    def timed_delivered(self, topic: str) -> None: ...


class _Copy(NamedTuple):
    """What is stored of a message, which is for that topic."""

    due: DueMessage
    topic: str
    message: Message


class TimerCopies:
    """Makes and stores them."""

    def __init__(self, files: TimerFiles, precision_ms: int, reads: PluggableReads, own: OwnMessages, listener: DeliveryListener) -> None:
        self._files = files
        self._precision_ms = precision_ms
        self._reads = reads
        self._own = own
        self._listener = listener

    def release(self, slot: DueSlot, due: Sequence[DueMessage], now_ms: int) -> int:
        """Store the copies of due messages in one write, and note it; how many. StoreError when the store takes no more."""
        made = [copy for each in due if (copy := self._copy(slot, each, now_ms)) is not None]
        if made:
            self._files.journal.intends(self._own.log_end, [copy.due.log_offset for copy in made])
        left, done = made, 0
        for count, log_end, _, _ in copies.put(self._own, [copy.message for copy in made]):
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
        """Which messages of a batch have their copies in the commit log, by log offset."""
        return copies.written(self._own, self._reads, intent.log_begin, intent.log_offsets, self._is_copy)

    def _is_copy(self, written: StoredMessage, log_offset: int) -> bool:
        stored = copies.message_at(self._reads, log_offset)
        if stored is None or stored.topic != TIMER_TOPIC:
            return False
        due, found = DueMessage(log_offset, 0, rolls=written.topic == TIMER_TOPIC), stored.properties()
        try:
            copy = self._moved(due, stored, found, 0) if due.rolls else copies.fired(stored, found, 0, 0)
        except MessageIllegal:
            return False
        return copies.is_written_as(written, copy)

    def message(self, log_offset: int) -> StoredMessage | None:
        """A message of the timer topic; None, with a word in the log, when it is not there any more."""
        stored = copies.message_at(self._reads, log_offset)
        if stored is None or stored.topic != TIMER_TOPIC:
            log.error("timed_message_dropped log_offset=%d reason=its record is damaged, or was deleted", log_offset)
            return None
        return stored

    def _copy(self, slot: DueSlot, due: DueMessage, now_ms: int) -> _Copy | None:
        stored = self.message(due.log_offset)
        if stored is None:
            return None
        found = stored.properties()
        try:
            message = self._made(slot, due, stored, found, now_ms)
        except MessageIllegal as error:
            log.error("timed_message_dropped offset=%d reason=%s", stored.queue_offset, error)
            return None
        return None if message is None else _Copy(due, found.get(properties.REAL_TOPIC, ""), message)

    def _made(self, slot: DueSlot, due: DueMessage, stored: StoredMessage, found: Mapping[str, str], now_ms: int) -> Message | None:
        """What is stored of a message that is due; None when nothing is."""
        if due.rolls:
            return self._moved(due, stored, found, now_ms)
        if properties.TIMER_DEL_UNIQUE_KEY in found or is_taken_back(found, slot.takes_back):
            return None
        return copies.fired(stored, found, due.enqueued_ms, now_ms)

    def _moved(self, due: DueMessage, stored: StoredMessage, found: Mapping[str, str], now_ms: int) -> Message:
        """The copy for the timer topic of a message that is to be rolled."""
        deliver_ms = exact_time(stored.store_time_ms, found.get, int(found[properties.TIMER_OUT_MS]), self._precision_ms)
        return copies.rolled(stored, found, due.enqueued_ms, now_ms, deliver_ms)
