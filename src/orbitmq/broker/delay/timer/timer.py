"""The timer: takes messages of the timer topic into its wheel, and delivers those of the due slot,
each at its millisecond.

Time is the wall clock, which may be set: a message is delivered as soon as its time has come by the
clock of that moment. If the clock is set forward, everything due by then is delivered, in order. If
it is set back, the timer goes back with it (`clock_back`), and what was delivered stays delivered.

One slot is due at a time: the first one with messages, from its begin until it is over and empty.
Its messages are delivered in small batches; those that are still far away are rolled, that is,
copied to the timer topic again. A message that enters the wheel for a slot that is already done
joins the due slot. Before a slot is begun, everything stored until then is taken in, so that an
acknowledged recall is always effective.

On a slave nothing is delivered: `take_over` follows the master's check point, and once deliveries
begin, the timer topic is taken in again, except for what the master had settled.

Crash rule: a copy is in the log before the journal says so, and the position of the next copies is
in the journal before they are written: after a kill nothing is delivered twice, and nothing is lost
(`files`, `journal`). A message that was delivered, or whose slot is done, is recognized after a
start although it is read again: slot and time follow from its record and the window of its arrival
(`rules`, `windows`). Thread rule: the loop thread. If the store refuses writes, the timer stays
where it is.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from orbitmq.broker.delay.timer.check import TimerCheck
from orbitmq.broker.delay.timer.clock_back import ClockBack
from orbitmq.broker.delay.timer.delivery import DeliveryListener, TimerDelivery
from orbitmq.broker.delay.timer.due_slot import DueMessage, DueSlot
from orbitmq.broker.delay.timer.files import TimerFiles
from orbitmq.broker.delay.timer.log import DELETE, NO_POSITION, ROLL, TimerEntry
from orbitmq.broker.delay.timer.place import Place
from orbitmq.broker.delay.timer.rules import Timing, exact_time, recall_key_of, timing_of
from orbitmq.broker.delay.timer.windows import RollWindows
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.common.errors import StoreError
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.tags import java_hash
from orbitmq.store.consume_queue import ENTRY
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import QueueKey, QueueOffset

QUEUE: Final = QueueKey(TIMER_TOPIC, 0)
BATCH: Final = 64  # messages per write
TURN_MAX: Final = 128  # messages per call, before the loop serves others
ENTRIES_MAX: Final = 2048  # entries of a slot that are read per call
RETRY_MS: Final = 500  # after the store refused a write
_SYNC_WAIT_MS: Final = 5  # until what was stored before a slot begins may be flushed
_INT_MAX: Final = (1 << 31) - 1

log = logging.getLogger(__name__)


class TimerSwitches(Protocol):
    """The settings that may change while the timer runs."""

    @property
    def timer_stop_enqueue(self) -> bool: ...
    @property
    def timer_stop_dequeue(self) -> bool: ...


class TimerListener(DeliveryListener, Protocol):
    """Is notified of messages that enter and leave the wheel."""

    def timed_taken_in(self, topic: str, delay_s: int) -> None: ...


class Timer:
    """Delivers timed messages: `load` first, then each `run` does what is due."""

    def __init__(
        self,
        switches: TimerSwitches,
        windows: RollWindows,
        files: TimerFiles,
        store: MessageStore,
        reads: PluggableReads,
        own: InternalMessageWriter,
        listener: TimerListener,
    ) -> None:
        self._switches = switches
        self._windows = windows
        self._precision_ms = windows.precision_ms
        self._files = files
        self._store = store
        self._reads = reads
        self._listener = listener
        self._copies = TimerDelivery(files, windows.precision_ms, reads, own, listener)
        self._record = RecordCursor()
        self._done = Place(0, 0)  # the progress found at start
        self._slot: DueSlot | None = None
        self._chain = NO_POSITION  # the next entry to load into the slot
        self._came: list[
            tuple[DueMessage, int]
        ] = []  # messages that joined the slot while it was loading
        self._back: ClockBack | None = (
            None  # set while messages are moved because the clock was set back
        )
        self._is_checked = False  # for slots that are too far away, since the start
        self._has_late = False  # whether the slot of `read_time_ms` holds messages of earlier ones
        self._reached = 0  # the queue offset when `read_time_ms` was reached
        self._known_end = 0  # messages before that may have been taken in before the start
        self._wanted_log_offset: int | None = (
            None  # log end to be dispatched before the next slot is begun
        )
        self._fails = False
        self.queue_offset = 0
        self.read_time_ms = 0
        self.taken_in = self.delivered = 0  # number of messages since the start

    def load(self) -> None:
        """Continue where the files say; the store was recovered."""
        begin, end = self._store.queues.min_offset(*QUEUE), self._store.queues.max_offset(*QUEUE)
        self._windows.load(begin, end)
        self._done = self._files.load(self._store.log.end_offset, begin, end, self._copies.written)
        self.queue_offset, self.read_time_ms = (
            self._files.check.queue_offset,
            self._done.read_time_ms,
        )
        self._reached, self._known_end = self._done.queue_offset, end

    def take_over(self, master: TimerCheck, log_end: int) -> None:
        """Follow a master's check point, only while nothing is delivered here; the log has reached
        `log_end`, and with it the copies. What this broker took in beyond the master's progress is
        taken in again.
        """
        read_time_ms = self._files.wheel.time_of(master.read_time_ms)
        settled = master.master_queue_offset
        is_kept = self.queue_offset <= settled and self.read_time_ms <= read_time_ms
        self._files.take_over(
            master._replace(read_time_ms=read_time_ms), log_end, is_wheel_kept=is_kept
        )
        if not is_kept:
            self.queue_offset = self._store.queues.min_offset(*QUEUE)
        self._done = self._done.at_slot(read_time_ms, settled)
        self.read_time_ms, self._reached, self._has_late = read_time_ms, settled, False
        self._known_end = max(self._known_end, settled)
        self._slot, self._chain, self._came, self._back = None, NO_POSITION, [], None
        self._is_checked = False  # everything is taken in before the first delivery

    @property
    def behind(self) -> int:
        """Return how many messages of the timer topic are not taken in yet."""
        return max(self._store.queues.max_offset(*QUEUE) - self.queue_offset, 0)

    def behind_ms(self, now_ms: int) -> int:
        """Return how long the first message that is not taken in has been waiting."""
        stored_ms = (
            self._store.reads.store_time_of(QUEUE, QueueOffset(self.queue_offset))
            if self.behind
            else -1
        )
        return max(now_ms - stored_ms, 0) if stored_ms > 0 else 0

    def run(self, now_ms: int) -> int | None:
        """Take in and deliver messages, up to a limit; return when to call again, None if nothing
        is pending.
        """
        try:
            self._files.log.write()
            is_behind = self._back is None and self._take_in(now_ms)
            next_ms = (
                None if self._switches.timer_stop_dequeue else self._deliver(now_ms, is_behind)
            )
        except (StoreError, OSError) as error:
            if not self._fails:
                log.error("timer_failed retry_ms=%d reason=%s", RETRY_MS, error)
            self._fails = True
            return now_ms + RETRY_MS
        if self._fails:
            log.info("timer_goes_on")
        self._fails = False
        return now_ms if is_behind else next_ms

    # -- into the wheel

    def _take_in(self, now_ms: int) -> bool:
        """Take messages of the timer topic into the wheel; return whether there are more."""
        if self._switches.timer_stop_enqueue:
            return False
        left = TURN_MAX
        while left > 0 and self.queue_offset < self._store.queues.max_offset(*QUEUE):
            result = self._reads.get(QUEUE, QueueOffset(self.queue_offset), count_max=BATCH)
            record, at = self._record, 0
            while (
                at < len(result.records)
                and (size := record.read(result.records, at, len(result.records), False)) > 0
            ):
                if record.queue_offset >= self._known_end:
                    self._windows.see_lead(
                        record.queue_offset, max(record.store_time_ms - now_ms, 0)
                    )
                self._enqueue(record, now_ms)
                self.queue_offset = record.queue_offset + 1
                at += size
            if result.status is not GetStatus.FOUND:
                log.warning(
                    "timer_offset_moved from=%d to=%d reason=%s",
                    self.queue_offset,
                    result.next_offset,
                    result.status.value,
                )
            if result.next_offset <= self.queue_offset and result.status is not GetStatus.FOUND:
                raise StoreError(
                    f"the timer topic cannot be read at {self.queue_offset}: {result.status.value}"
                )
            self.queue_offset = max(self.queue_offset, result.next_offset)
            left -= max(result.record_count, 1)
        self._files.log.write()
        return self.behind > 0

    def _enqueue(self, record: RecordCursor, now_ms: int) -> None:
        timing = timing_of(
            record.store_time_ms, record.property, self._windows.of(record.queue_offset)
        )
        if timing is None:
            log.error(
                "timed_message_dropped offset=%d reason=it has no due time (TIMER_OUT_MS)",
                record.queue_offset,
            )
            return
        wheel = self._files.wheel
        slot_ms = wheel.time_of(timing.slot_ms)
        if record.queue_offset < self._known_end and self._done.covers(
            slot_ms, record.queue_offset
        ):
            return  # it was settled before the start
        if slot_ms < self.read_time_ms:
            slot_ms, self._has_late = self.read_time_ms, True
        stored_ms = wheel.time_of(record.store_time_ms)
        enqueued_ms = stored_ms if abs(slot_ms - stored_ms) <= _INT_MAX else slot_ms
        topic = record.property(properties.REAL_TOPIC) or ""
        entry = TimerEntry(
            wheel.slot(slot_ms).last,
            timing.magic,
            enqueued_ms,
            slot_ms - enqueued_ms,
            record.log_offset,
            record.size,
            java_hash(topic),
            timing.deliver_ms,
        )
        wheel.add(entry, self._files.log.append(entry))
        self._files.metrics.add(topic, -1 if timing.magic & DELETE else 1, now_ms)
        self._listener.timed_taken_in(
            topic, max(timing.deliver_ms - record.born_time_ms, 0) // 1000
        )
        self.taken_in += 1
        if self._slot is not None and slot_ms == self._slot.time_ms:
            self._join(self._slot, entry, record, timing)

    def _join(self, slot: DueSlot, entry: TimerEntry, record: RecordCursor, timing: Timing) -> None:
        """Add a message to the slot that is already due."""
        if entry.is_recall:
            slot.recall_keys.add(recall_key_of(record.property))
            return
        came = (
            DueMessage(entry.log_offset, entry.enqueued_ms, bool(entry.magic & ROLL)),
            timing.deliver_ms,
        )
        if self._chain == NO_POSITION:
            slot.add(*came)
        else:
            self._came.append(came)

    # -- out of the wheel

    def _deliver(self, now_ms: int, is_behind: bool) -> int | None:
        """Deliver what is due; return when there is more to do."""
        self._files.lead()
        if not self._follow_clock(now_ms, is_behind):
            return now_ms + (_SYNC_WAIT_MS if self._back is None else 0)
        left = TURN_MAX
        while True:
            slot = self._slot
            if slot is None:
                wait_ms = self._next_slot(now_ms, is_behind)
                if self._slot is None:
                    return wait_ms
            elif self._chain != NO_POSITION:
                if not self._load_slot(slot):
                    return now_ms
            elif left <= 0:
                return now_ms
            elif due := slot.due(now_ms, min(BATCH, left)):
                self.delivered += self._copies.release(slot, due, now_ms)
                left -= len(due)
            elif (next_ms := slot.next_ms()) is not None:
                return next_ms
            elif now_ms < slot.time_ms + self._precision_ms:
                return slot.time_ms + self._precision_ms
            else:
                self._end_slot(slot)

    def _next_slot(self, now_ms: int, is_behind: bool) -> int | None:
        """Begin the next slot if it is due; else return when it may begin, None if there is
        none.
        """
        wheel, first_ms = self._files.wheel, self._files.wheel.first_time()
        if first_ms is None or first_ms >= now_ms:
            self._reach(max(self.read_time_ms, wheel.time_of(now_ms - 1)))
            self._wanted_log_offset = None
            return None if first_ms is None else first_ms + 1
        if not self._has_all(is_behind):
            return now_ms + _SYNC_WAIT_MS
        self._reach(first_ms)
        self._slot, self._chain = (
            DueSlot(first_ms, self._delivered_of(first_ms)),
            wheel.slot(first_ms).last,
        )
        self._files.journal.slot(first_ms, self._reached)
        return now_ms

    def _has_all(self, is_behind: bool) -> bool:
        """Return whether everything is taken in that was stored at the first of these calls; the
        call after that starts over.
        """
        if self._wanted_log_offset is None:
            self._wanted_log_offset = self._store.log.end_offset
        if is_behind or self._store.dispatcher.offset < self._wanted_log_offset:
            return False
        if self.behind and not self._switches.timer_stop_enqueue:  # it was dispatched just now
            return False
        self._wanted_log_offset = None
        return True

    def _reach(self, read_time_ms: int) -> None:
        """Note that slots before that time are done for all messages taken in by now."""
        if read_time_ms != self.read_time_ms:
            self.read_time_ms, self._reached, self._has_late = (
                read_time_ms,
                self.queue_offset,
                False,
            )

    def _delivered_of(self, time_ms: int) -> frozenset[int]:
        """Return the messages of a slot that were delivered before the start."""
        return self._done.delivered if time_ms == self._done.read_time_ms else frozenset()

    # -- the clock

    def _follow_clock(self, now_ms: int, is_behind: bool) -> bool:
        """Go back if the clock was set back; return whether the timer agrees with the clock."""
        if self._back is None:
            slot_ms = self._files.wheel.time_of(now_ms - 1)
            if slot_ms >= self.read_time_ms and self._is_checked:
                return True
            if not self._has_all(is_behind):
                return False
            self._back = self._way_back(min(slot_ms, self.read_time_ms), now_ms)
        if not self._back.step(now_ms):
            return False
        back, self._back, self._is_checked = self._back, None, True
        if back.read_time_ms < self.read_time_ms:
            self.read_time_ms, self._reached, self._has_late = (
                back.read_time_ms,
                back.queue_offset,
                False,
            )
        return True

    def _way_back(self, read_time_ms: int, now_ms: int) -> ClockBack:
        """Return the move that lets the timer continue at `read_time_ms`."""
        wheel, here_ms, is_begun = self._files.wheel, self.read_time_ms, False
        taken_in, replay = self.queue_offset, self._files.journal.replay(self._store.log.end_offset)
        back = ClockBack(
            self._files,
            self._copies,
            read_time_ms,
            queue_offset=taken_in if read_time_ms < here_ms else self._reached,
            taken_in=taken_in,
            log_offset=self._log_offset_behind(taken_in),
            delivered=frozenset() if replay is None else replay.place.delivered,
        )
        if read_time_ms < here_ms:
            is_begun = self._slot is not None or self._has_late or bool(self._delivered_of(here_ms))
            back.leave(0, here_ms + is_begun * self._precision_ms, [here_ms] * is_begun)
            self._slot, self._chain, self._came = None, NO_POSITION, []
        far_ms = (
            now_ms + self._windows.longest_ms * 5 // 4 + self._precision_ms
        )  # a lead is noted to a quarter of a window
        if times_ms := wheel.times(max(far_ms, here_ms + is_begun * self._precision_ms)):
            back.leave(times_ms[0], times_ms[-1] + self._precision_ms, times_ms)
        return back

    def _log_offset_behind(self, queue_offset: int) -> int:
        """Return where the messages of the timer topic before a queue offset end in the commit log;
        0 if there are none.
        """
        queue = self._store.queues.plain.find(*QUEUE)
        entry = (
            b""
            if queue is None or queue_offset <= queue.min_offset
            else bytes(queue.entries(QueueOffset(queue_offset - 1), 1))
        )
        return sum(ENTRY.unpack(entry)[:2]) if entry else 0

    # -- the due slot

    def _load_slot(self, slot: DueSlot) -> bool:
        """Follow the chain of a slot's entries; return whether it is loaded completely."""
        for _ in range(ENTRIES_MAX):
            entry = self._files.log.read(self._chain)
            if entry is None:
                log.error(
                    "timer_log_damaged position=%d slot=%d: earlier entries of that slot are lost",
                    self._chain,
                    slot.time_ms,
                )
                self._chain = NO_POSITION
            else:
                self._add(slot, entry)
                self._chain = entry.previous
            if self._chain == NO_POSITION:
                slot.sort()
                for came in self._came:
                    slot.add(*came)
                self._came = []
                return True
        return False

    def _add(self, slot: DueSlot, entry: TimerEntry) -> None:
        rolls = bool(entry.magic & ROLL)
        deliver_ms = 0 if rolls else entry.deliver_ms
        if entry.is_recall or (deliver_ms == 0 and not rolls):
            stored = self._copies.message(entry.log_offset)
            if stored is None:
                return
            found = stored.properties()
            if entry.is_recall:
                slot.recall_keys.add(recall_key_of(found.get))
                return
            deliver_ms = exact_time(
                stored.store_time_ms, found.get, slot.time_ms, self._precision_ms
            )
        slot.add(DueMessage(entry.log_offset, entry.enqueued_ms, rolls), deliver_ms)

    def _end_slot(self, slot: DueSlot) -> None:
        self._files.wheel.remove(slot.time_ms)
        self._slot = None
        self._reach(slot.time_ms + self._precision_ms)
        self._files.journal.slot(self.read_time_ms, self._reached)

    # -- files

    def save_soon(self, now_ms: int) -> None:
        """Have the files saved, if anything changed."""
        self._files.save_soon(
            self.read_time_ms, self.queue_offset, self._store.log.end_offset, now_ms
        )

    def save_now(self, now_ms: int) -> None:
        """Save the files on shutdown; blocks. The commit log is flushed already.

        An empty slot counts as done then, although its time is not over: otherwise Apache RocketMQ
        would deliver it again.
        """
        if self._slot is not None and self._chain == NO_POSITION and not len(self._slot):
            self._end_slot(self._slot)
        self._files.save_now(
            self.read_time_ms, self.queue_offset, self._store.log.end_offset, now_ms
        )
