"""Delivery progress of the delay levels on disk: delayOffset.json, saved every few seconds, and a
journal of the changes since.

The journal has the format of the one of consumer offsets (`metadata.offset_journal`), with three
keys: `delivered` has the next message of each level, `log` the end of the last copy in the commit
log, `begin` where the next copies were about to be written: after a kill the log shows whether they
were (`delivery`). Earlier versions of this broker ignore `begin`. Thread rule: the loop thread.
Crash rule: progress survives a kill once `delivered` returned. A power cut may lose copies that
were written but not flushed; so afterwards progress counts only if the log still reaches the end of
the last copy, and the JSON never contains progress whose copies were not flushed at that time.
Therefore nothing is lost; deliveries since the last save of the JSON may be repeated.

A slave delivers nothing and takes over its master's progress, once its own log has the copies
(`take_over`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder
from orbitmq.common.clock import Clock
from orbitmq.protocol.bodies.delay import DelayOffsets
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.topics import next_version

_DELIVERED: Final = "delivered"
_LOG: Final = "log"
_BEGIN: Final = "begin"
_NOWHERE: Final = -1  # no write was intended

log = logging.getLogger(__name__)


class _Mark(NamedTuple):
    """The next message of a level, and where the copies before it end in the log."""

    offset: int
    log_end: int


class LevelProgress:
    """Tracks the levels' progress from `load` to `close`. `flushed_offset` returns the flushed end
    of the commit log; `version_step` may be changed.
    """

    def __init__(
        self,
        file: ConfigFile,
        journal: OffsetJournal,
        clock: Clock,
        flushed_offset: Callable[[], int],
        *,
        version_step: int,
    ) -> None:
        self._file = file
        self._journal = journal
        self._clock = clock
        self._flushed_offset = flushed_offset
        self.version_step = version_step
        self.changes = 1  # number of the last change, for slaves
        self._version = DataVersion(timestamp=clock.now_ms())
        self._deliveries = 0
        self._safe: dict[int, int] = {}  # what the JSON may contain
        self._last: dict[int, _Mark] = {}
        self._next_safe: dict[
            int, _Mark
        ] = {}  # what it may contain once the log is flushed that far
        self._is_changed = False
        self.begun: dict[
            int, int
        ] = {}  # by level, where a batch of unknown outcome was about to be written

    def load(self, log_end: int) -> Mapping[int, int]:
        """Return the next message of each level; the log was recovered up to `log_end`."""
        loaded, digest = self._file.open(DelayOffsets.decode, self._snapshot, self._journal)
        if loaded is not None:
            self._safe = dict(loaded.offsets)
            self._version = loaded.version or self._version
        changes = self._journal.replay(digest)
        known: dict[int, _Mark] = {}
        for (key, level), offset in changes.items.items():
            if key == _DELIVERED and level is not None:
                known[level] = _Mark(offset, changes.items.get((_LOG, level), 0))
        lost = {level: mark for level, mark in known.items() if mark.log_end > log_end}
        if lost:
            log.warning(
                "delay_progress_unsafe levels=%s: their copies are no longer in the log and are"
                " delivered again",
                sorted(lost),
            )
        self._last = {level: mark for level, mark in known.items() if level not in lost}
        self._safe.update(
            {level: mark.offset for level, mark in self._last.items()}
        )  # recovery flushed the log
        for level in lost:
            for key in (_DELIVERED, _LOG):
                del changes.items[key, level]
        for (key, level), log_begin in changes.items.items():
            if (
                key == _BEGIN
                and level is not None
                and log_begin != _NOWHERE
                and (level not in known or known[level].log_end <= log_begin)
            ):
                self.begun[level] = log_begin
        self._journal.start(digest, changes)
        self._is_changed = bool(changes.items)
        return dict(self._safe)

    def intends(self, level: int, log_begin: int) -> None:
        """Note that copies of a level's next messages are about to be written at `log_begin`."""
        self._journal.put(_BEGIN, level, log_begin)
        self._journal.flush()

    def delivered(self, level: int, offset: int, log_end: int) -> None:
        """Note that the copies of a level's messages before `offset` are in the log, and end at
        `log_end`.
        """
        self._deliveries += 1
        self.changes += 1
        if self._deliveries % self.version_step == 0:
            self._version = next_version(self._version, self._clock.now_ms(), 0)
        mark = self._last[level] = _Mark(offset, log_end)
        self._next_safe.setdefault(level, mark)
        self._note(level, mark)
        self._journal.flush()
        self._is_changed = True

    def moved(self, level: int, offset: int) -> None:
        """Note that a level continues at `offset` without a delivery: its queue begins later, or
        ends before.
        """
        if self._safe.get(level) != offset:
            self._journal.put(_BEGIN, level, _NOWHERE)
            self.delivered(level, offset, 0)

    def take_over(
        self, offsets: Mapping[int, int], version: DataVersion | None, log_end: int
    ) -> None:
        """Replace the progress by a master's, with its version if it has one. The copies of its
        deliveries end before `log_end`, which the log has reached.
        """
        if version is not None and version != self._version:
            self._version, self._is_changed = version, True
        gone = (self._safe.keys() | self._last.keys()) - offsets.keys()
        changed = {
            level: _Mark(offset, log_end)
            for level, offset in offsets.items()
            if level not in self._last or self._last[level].offset != offset
        }
        if not gone and not changed:
            return
        self.begun = {}
        self._last |= changed
        if gone:
            for marks in (self._safe, self._last, self._next_safe):
                for level in gone & marks.keys():
                    del marks[level]
            self._journal.drop(_DELIVERED, _LOG, _BEGIN)
        for level, mark in (self._last if gone else changed).items():
            self._journal.put(_BEGIN, level, _NOWHERE)
            self._note(level, mark)
        for level, mark in changed.items():
            self._next_safe.setdefault(level, mark)
        self._journal.flush()
        self.changes += 1
        self._is_changed = True

    def save_soon(self) -> None:
        """Have the file written if anything changed."""
        if self._is_changed:
            self._file.changed()

    def close(self) -> None:
        """Save everything, blocking, and close the journal. Raises if the file cannot be saved."""
        try:
            self.save_soon()
            self._file.save_now()
        finally:
            self._journal.close()

    def abandon(self) -> None:
        """Close the journal without saving."""
        self._file.abandon()
        self._journal.close()

    def content(self, offsets: Mapping[int, int]) -> DelayOffsets:
        """Return these offsets with the version of the progress, for slaves."""
        return DelayOffsets(offsets, self._version)

    def _snapshot(self) -> Encoder:
        """Return the durable part of the progress; the rest stays in the journal."""
        flushed = self._flushed_offset()
        for level, mark in list(self._next_safe.items()):
            if mark.log_end <= flushed:
                newest = self._last[level]
                self._safe[level] = newest.offset if newest.log_end <= flushed else mark.offset
                del self._next_safe[level]
                if newest.log_end > flushed:
                    self._next_safe[level] = newest
        self._journal.snapshot_taken()
        for level in self._next_safe:
            self._note(level, self._last[level])
        self._journal.flush()
        self._is_changed = bool(self._next_safe)
        return partial(DelayOffsets(dict(self._safe), self._version).encode, pretty=True)

    def _note(self, level: int, mark: _Mark) -> None:
        self._journal.put(_DELIVERED, level, mark.offset)
        self._journal.put(_LOG, level, mark.log_end)
