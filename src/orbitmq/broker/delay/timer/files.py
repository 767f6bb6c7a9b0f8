"""The timer's files together: log, wheel, check point, metrics and journal; how they are loaded and
saved.

Order of a save: the commit log up to what the check point will refer to (the store flushes it),
timer log, wheel, check point. So a check point never refers to anything that is not on disk,
whenever the power fails: slots before its time were delivered, and their copies are durable;
entries before its log end are durable, and so are the messages that they point at. A start
truncates the timer log there, rewinds the wheel to it, and the timer reads the timer topic again
from the check point's offset. If wheel or log are corrupt, they are rebuilt from what is left, in
the end from the timer topic alone.

A check point from before the clock was set back is recognized by its offset: the journal has a past
that reaches beyond it. Then the journal says where to continue, and the wheel forgets the entries
in that past.

A slave's files have the times of its master's check point and the content of its own wheel: which
messages the master had taken in is a number of its own (`take_over`), and settles what a later
start takes in again.

Thread rule: the loop thread; one save at a time runs in a worker, on copies.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer import check as timer_check
from orbitmq.broker.delay.timer import wheel
from orbitmq.broker.delay.timer.check import TimerCheck
from orbitmq.broker.delay.timer.journal import TimerJournal
from orbitmq.broker.delay.timer.log import TimerLog
from orbitmq.broker.delay.timer.metrics import TimerMetrics
from orbitmq.broker.delay.timer.place import Intent, Past, Place
from orbitmq.broker.delay.timer.wheel import Slot, TimerWheel
from orbitmq.common import atomic_file
from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import FlushJob

IDLE_SAVE_MS: Final = 10_000  # how old a check point may be if nothing changed
Worker = Callable[[Callable[[], None]], "Future[None]"]

log = logging.getLogger(__name__)


class _Save(NamedTuple):
    """The content of one save, written once the commit log is flushed up to `commit_log_end`."""

    check: TimerCheck
    slots: dict[int, Slot]
    stale: tuple[range, ...]  # times whose slots must be erased from the file
    metrics: bytes
    commit_log_end: int


class _Running(NamedTuple):
    """A save that runs in a worker."""

    future: Future[None]
    save: _Save
    job: FlushJob | None


class TimerFiles:
    """Loads and saves the timer's files. `flushed_offset` returns the flushed end of the commit
    log; `worker` runs blocking jobs.
    """

    def __init__(
        self,
        layer: FileLayer,
        root: Path,
        *,
        log_file_size: int,
        precision_ms: int,
        flushed_offset: Callable[[], int],
        worker: Worker,
    ) -> None:
        self._layer = layer
        self._wheel_path, self._check_path = root / "timerwheel", root / "config" / "timercheck"
        self.log = TimerLog(layer, root / "timerlog", log_file_size)
        self.wheel = TimerWheel(precision_ms)
        self.metrics = TimerMetrics(root / "config" / "timermetrics")
        self.journal = TimerJournal(root / "config" / "timer.journal", layer)
        self.check = TimerCheck()  # the last one that was taken
        self._is_masters = False  # whether its times and its version are those of a master
        self._flushed_offset = flushed_offset
        self._worker = worker
        self._waiting: _Save | None = None  # a save that waits for the commit log
        self._running: _Running | None = None
        self._saved = TimerCheck()  # the last one that is on disk
        self._saved_metrics = b""
        self._stale: tuple[
            range, ...
        ] = ()  # times of slots that are done, and that the file may still contain
        self._fails = False

    # -- start

    def load(
        self,
        commit_log_end: int,
        queue_begin: int,
        queue_end: int,
        written_of: Callable[[Intent], Iterable[int]],
    ) -> Place:
        """Load everything; return where the timer continues. Raises StoreError if the files do not
        fit the configuration.

        `written_of` returns which messages of a batch have their copies in the commit log.
        """
        found = timer_check.load(self._layer, self._check_path)
        self.log.load()
        self.metrics.load()
        check = found or TimerCheck(queue_offset=queue_begin)
        settled = _settled(check)
        place, unsaved = self._place(check, commit_log_end, queue_end, written_of)
        if not self._load_wheel(check, place.pasts):
            check = check._replace(log_end=0, queue_offset=queue_begin)
        self.wheel.remove_before(place.read_time_ms)
        for past in unsaved:
            for time_ms in self.wheel.times(past.begin_ms, past.end_ms):
                self.wheel.remove(time_ms)
        self._stale = tuple(range(past.begin_ms, past.end_ms) for past in unsaved)
        queue_offset = min(max(check.queue_offset, queue_begin), queue_end)
        self.check = check._replace(
            queue_offset=queue_offset,
            master_queue_offset=min(max(settled, queue_begin), queue_end),
        )
        try:
            self.journal.start(place)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                log.warning("timer_journal_not_begun reason=%r, it is retried", error)
                self.journal.start_later(place)
                return place
            raise StoreError(
                f"the timer's journal cannot be written: {error}; free or repair its disk, then"
                " restart"
            ) from error
        log.info(
            "timer_loaded from_ms=%d queue_offset=%d slots=%d",
            place.read_time_ms,
            queue_offset,
            len(self.wheel),
        )
        return place

    def _place(
        self,
        check: TimerCheck,
        commit_log_end: int,
        queue_end: int,
        written_of: Callable[[Intent], Iterable[int]],
    ) -> tuple[Place, list[Past]]:
        """Return the timer's place by check point and journal, and the pasts that the check point's
        files do not know.
        """
        place = Place(check.read_time_ms, min(_settled(check), queue_end))
        replay = self.journal.replay(commit_log_end)
        if replay is None:
            return place, []
        journaled, intent = replay
        unsaved = [past for past in journaled.pasts if check.queue_offset <= past.queue_offset]
        if journaled.read_time_ms < place.read_time_ms and not unsaved:
            return (
                place._replace(pasts=journaled.pasts).at_slot(
                    place.read_time_ms, place.queue_offset
                ),
                [],
            )
        delivered = (
            journaled.delivered if intent is None else journaled.delivered.union(written_of(intent))
        )
        return (
            journaled._replace(
                queue_offset=min(journaled.queue_offset, queue_end), delivered=delivered
            ),
            unsaved,
        )

    def _load_wheel(self, check: TimerCheck, pasts: Sequence[Past]) -> bool:
        """Restore log and wheel as of the check point. Returns False if both had to be emptied."""
        if self.log.has(check.log_end):
            loaded = self.wheel.load(self._layer, self._wheel_path, check.read_time_ms)
            if not loaded or not self.wheel.rewind(check.log_end, self.log.read):
                if check.log_end > self.log.first:
                    log.warning(
                        "timer_wheel_made_anew from=%d to=%d", self.log.first, check.log_end
                    )
                loaded = self._rebuild(check, pasts)
            if loaded:
                self.log.cut(check.log_end)
                return True
        log.warning(
            "timer_log_made_anew check_end=%d first=%d end=%d",
            check.log_end,
            self.log.first,
            self.log.end,
        )
        self.wheel.clear()
        self.log.clear()
        return False

    def _rebuild(self, check: TimerCheck, pasts: Sequence[Past]) -> bool:
        """Rebuild the wheel from the log, without the entries in a past. Returns False if the log
        is corrupt too.
        """
        self.wheel.clear()
        end = self.log.first
        for position, entry in self.log.scan(self.log.first, check.log_end):
            slot_ms = self.wheel.time_of(entry.slot_ms)
            if slot_ms >= check.read_time_ms and not any(
                past.covers_entry(slot_ms, entry.log_offset) for past in pasts
            ):
                self.wheel.add(entry, position)
            end = self.log.behind(position)
        return end >= check.log_end

    # -- at run time

    def went_back(self, pasts: Sequence[Past], read_time_ms: int, queue_offset: int) -> None:
        """Note that the clock was set back: these pasts are done, and the timer continues at that
        time.
        """
        self.journal.went_back(pasts, read_time_ms, queue_offset)
        for past in pasts:
            for time_ms in self.wheel.times(past.begin_ms, past.end_ms):
                self.wheel.remove(time_ms)
        self._stale += tuple(range(max(past.begin_ms, read_time_ms), past.end_ms) for past in pasts)

    def take_over(self, master: TimerCheck, log_end: int, *, is_wheel_kept: bool) -> None:
        """Follow a master's check point, whose copies end before `log_end`. Slots before its time
        are done; `is_wheel_kept`: the wheel has nothing that the master did not take in, else it is
        emptied.
        """
        if is_wheel_kept:
            self.wheel.remove_before(master.read_time_ms)
        elif times_ms := self.wheel.times(0):
            self._stale += (range(times_ms[0], times_ms[-1] + 1),)
            self.wheel.clear()
        self.check = self.check._replace(
            read_time_ms=master.read_time_ms,
            master_queue_offset=master.master_queue_offset,
            state_version=master.state_version,
            version_time_ms=master.version_time_ms,
            version_counter=master.version_counter,
        )
        self._is_masters = True
        self.journal.delivered(log_end, ())  # what follows does not count without those copies
        self.journal.slot(master.read_time_ms, master.master_queue_offset)

    def lead(self) -> None:
        """Take check points of this broker's own again: its timer delivers."""
        self._is_masters = False

    def save_soon(
        self, read_time_ms: int, queue_offset: int, commit_log_end: int, now_ms: int
    ) -> None:
        """Take a check point, and have it saved once the commit log is flushed; does nothing while
        a save is under way.
        """
        self.settle()
        if self._running is not None:
            return
        if self._waiting is None and self._is_due(read_time_ms, queue_offset):
            try:
                self._waiting = self._taken(read_time_ms, queue_offset, commit_log_end, now_ms)
            except OSError as error:
                self._log_failure(error)
                return
        if self._waiting is not None and self._waiting.commit_log_end <= self._flushed_offset():
            save, self._waiting = self._waiting, None
            job = self.log.begin_sync()
            self._running = _Running(self._worker(partial(self._write, save, job)), save, job)

    def settle(self) -> None:
        """Take note of a save that a worker finished."""
        if self._running is not None and self._running.future.done():
            (future, save, job), self._running = self._running, None
            self._settled(save, job, future.exception())

    def save_now(
        self, read_time_ms: int, queue_offset: int, commit_log_end: int, now_ms: int
    ) -> None:
        """Save everything before this returns; blocks. The commit log is flushed already."""
        self._finish()
        if self._waiting is not None:
            self._not_saved(self._waiting)
            self._waiting = None
        save, job = (
            self._taken(read_time_ms, queue_offset, commit_log_end, now_ms),
            self.log.begin_sync(),
        )
        try:
            self._write(save, job)
        except OSError as error:
            self._settled(save, job, error)
            raise
        self._settled(save, job, None)

    def close(self) -> None:
        """Close the files as they are, after the last write."""
        self._finish()
        self.journal.close()
        self.log.close()

    def _is_due(self, read_time_ms: int, queue_offset: int) -> bool:
        saved = self._saved
        moved = (
            self.log.end != saved.log_end
            or queue_offset != saved.queue_offset
            or self.metrics.encode() != self._saved_metrics
        )
        return moved or bool(self._stale) or abs(read_time_ms - saved.read_time_ms) >= IDLE_SAVE_MS

    def _taken(
        self, read_time_ms: int, queue_offset: int, commit_log_end: int, now_ms: int
    ) -> _Save:
        self.log.write()
        self.check = (
            self.check._replace(log_end=self.log.end, queue_offset=queue_offset)
            if self._is_masters
            else TimerCheck(
                read_time_ms,
                self.log.end,
                queue_offset,
                queue_offset,
                self.check.state_version,
                now_ms,
                self.check.version_counter + 1,
            )
        )
        stale, self._stale = self._stale, ()
        return _Save(
            self.check, dict(self.wheel.changes()), stale, self.metrics.encode(), commit_log_end
        )

    def _write(self, save: _Save, job: FlushJob | None) -> None:
        """Write a save to disk, in order. Runs in a worker."""
        for descriptor in job.descriptors if job is not None else ():
            self._layer.fdatasync(descriptor)
        wheel.write(self._layer, self._wheel_path, self.wheel.precision_ms, save.slots, save.stale)
        timer_check.write(self._layer, self._check_path, save.check)
        if save.metrics != self._saved_metrics:
            atomic_file.write(self.metrics.path, save.metrics)

    def _settled(self, save: _Save, job: FlushJob | None, error: BaseException | None) -> None:
        if job is not None:
            self.log.end_sync(job, error)
        if error is None:
            self._saved, self._saved_metrics = save.check, save.metrics
        else:
            self._not_saved(save)
            self._log_failure(error)
            return
        self._fails = False

    def _not_saved(self, save: _Save) -> None:
        """Keep the content of a failed save for the next one."""
        self.wheel.changes_lost(save.slots)
        self._stale = save.stale + self._stale

    def _log_failure(self, error: BaseException) -> None:
        if not self._fails:
            log.error("timer_not_saved reason=%r: it is retried", error)
        self._fails = True

    def _finish(self) -> None:
        """Wait for the save that is under way."""
        if self._running is not None:
            self._running.future.exception()
            self.settle()


def _settled(check: TimerCheck) -> int:
    """Return which messages a check point's time is about: those before that queue offset."""
    return check.master_queue_offset or check.queue_offset
