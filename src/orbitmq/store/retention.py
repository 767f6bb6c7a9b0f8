"""Retention: deletes what the store need not keep any longer, and refuses writes while the disk is
too full.

`tick` brings the time; `retention_rules` decides what is deleted when. One round per interval, in
this order: files of the commit log; the beginnings of queues whose topic has a shorter retention
(`queue_retention`); then, if the log begins later than before, files of queues and index that only
refer to deleted records. The log goes before what points into it, so a crash at any moment leaves
queues with too many entries, and the next round finds them.

A round is a generator that continues from tick to tick, so that neither the pauses between files
nor many queues block the loop. A file leaves the log on the loop thread, and `worker` unlinks it; a
reader keeps the mapping, and with it the bytes. Files are deleted one at a time, the oldest first,
and the next only after the last unlink is durable: there is no gap in the log, whatever fails. A
file that cannot be unlinked is retried in each round, and the log loses no other before it.

Invariants: the log's minimum only grows; the active file stays, and so does what is not flushed or
still needed (`needed_from`). Thread rule: the loop thread, while no batch of the log is open; the
worker gets unlinks and nothing else.

Differences from Apache: it deletes up to ten files without checking whether the first made enough
space; here the disk is measured before each. The disk is measured from the first tick on, not only
after a minute. Apache uses the topic attribute `reserve.time` only with tiered storage, where it is
in hours.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path

from orbitmq.common.errors import StoreError
from orbitmq.store import retention_rules as rules
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index import Index
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_retention import (
    STEP_PAUSE_MS,
    QueueRetention,
    RetentionRules,
    Unconsumed,
)
from orbitmq.store.queues import Queues
from orbitmq.store.retention_rules import DiskLevel, DiskUse
from orbitmq.store.types import LogOffset

Worker = Callable[[Callable[[], None]], object]  # runs a call, now or soon, in any thread

FIRST_ROUND_MS = 60_000
MANUAL_ROUNDS = 20
log = logging.getLogger(__name__)


class _Unlinking:
    """One file being unlinked."""

    __slots__ = ("_layer", "_path", "error", "is_done")

    def __init__(self, layer: FileLayer, path: Path) -> None:
        self._layer = layer
        self._path = path
        self.error: OSError | None = None
        self.is_done = False

    def __call__(self) -> None:
        """Remove the file durably; one that is gone already counts as removed."""
        try:
            try:
                self._layer.unlink(self._path)
            except FileNotFoundError:
                log.warning("file_was_gone file=%s", self._path)
            self._layer.sync_dir(self._path.parent)
        except OSError as error:
            self.error = error
        self.is_done = True


class Retention:
    """Deletes by time and by space. `config` may be replaced; `queues` has the broker's view of
    topics and groups.
    """

    def __init__(
        self,
        layer: FileLayer,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        quarantine: Quarantine,
        *,
        worker: Worker | None = None,
        rules: RetentionRules,
        needed_from: Callable[[], LogOffset] | None = None,
    ) -> None:
        self.config = config
        self.queues = QueueRetention(commit_log, queues, rules)
        self.write_refusal: str | None = None  # why puts are refused, and the remedy
        self.disk_ratio = 0.0  # of the deciding disk, as last measured
        self._layer = layer
        self._log = commit_log
        self._index = index
        self._quarantine = quarantine
        self._worker = worker or (lambda unlink: unlink())
        self._needed_from = needed_from or (lambda: commit_log.end_offset)
        self._level = DiskLevel.OK
        self._now_ms = 0
        self._measure_ms = 0  # monotonic: when the disk is measured next
        self._round_ms: int | None = None  # monotonic; None before the first tick
        self._resume_ms = 0  # monotonic: when the first job continues
        # Each step yields the ms to wait before the next.
        self._jobs: deque[Generator[int, None, object]] = deque()
        self._manual_rounds = 0
        self._gone_log: deque[Path] = deque()  # no longer in the log, maybe still on disk
        self._gone_index: deque[Path] = deque()
        self._cleaned_to = LogOffset(0)  # queues and index have nothing before
        self._held_back: Unconsumed | None = None  # what kept the oldest file
        self._consumed_to = LogOffset(0)  # in this round, all queues are consumed up to here
        self._last_warning: tuple[object, ...] = ()  # about files that stay

    @property
    def next_ms(self) -> int:
        """When to tick next, monotonic; 0 for at once."""
        if self._round_ms is None:
            return 0
        return min(self._measure_ms, self._resume_ms if self._jobs else self._round_ms)

    def tick(self, now_ms: int, monotonic_ms: int) -> None:
        """Measure the disk, begin a round and continue it, as far as they are due."""
        self._now_ms = now_ms
        is_first = self._round_ms is None
        if self._round_ms is None:
            self._measure_ms, self._round_ms = monotonic_ms, monotonic_ms + FIRST_ROUND_MS
            self._jobs.append(self.queues.shorten(self.config, now_ms))
        if monotonic_ms >= self._measure_ms:
            self._measure_ms = monotonic_ms + self.config.clean_interval_ms
            self._measure()
            if is_first and self.write_refusal is not None:  # the disk was full at the start
                self._round_ms = monotonic_ms
        if monotonic_ms >= self._round_ms and not self._jobs:
            self._round_ms = monotonic_ms + self.config.clean_interval_ms
            self._jobs.append(self._round())
        self._run_jobs(monotonic_ms)

    def delete_expired_now(self) -> None:
        """Delete expired files in each of the next rounds, at any hour:
        DELETE_EXPIRED_COMMITLOG.
        """
        self._manual_rounds = MANUAL_ROUNDS
        log.info("deletion_asked_for rounds=%d", MANUAL_ROUNDS)

    def clean_unused_queues(self) -> None:
        """Delete, from the next tick on, queues without a record in the log:
        CLEAN_EXPIRED_CONSUMEQUEUE.
        """
        self._jobs.append(self.queues.delete_unused())

    def _run_jobs(self, monotonic_ms: int) -> None:
        """Take as many steps of the jobs as one tick may, unless the first of them is paused."""
        for _ in range(self.config.clean_queues_max):
            if not self._jobs or monotonic_ms < self._resume_ms:
                return
            try:
                self._resume_ms = monotonic_ms + next(self._jobs[0])
            except StopIteration:
                self._jobs.popleft()
            except (OSError, StoreError) as error:
                log.error(
                    "retention_failed error=%s next_try_ms=%d", error, self.config.clean_interval_ms
                )
                self._jobs.popleft()
        self._resume_ms = max(self._resume_ms, monotonic_ms + STEP_PAUSE_MS)

    def _round(self) -> Generator[int, None, None]:
        reason = rules.reason_to_delete(
            self.config, self._measure(), self._now_ms, manual=self._manual_rounds > 0
        )
        all_gone = yield from self._unlinked(self._gone_log)
        if reason is not None:
            self._manual_rounds = max(self._manual_rounds - 1, 0)
            if all_gone:
                yield from self._delete_log_files(reason)
        yield from self.queues.shorten(self.config, self._now_ms)
        log_min = self._log.min_offset
        if log_min > self._cleaned_to:
            all_cleaned = yield from self.queues.clean()
            if (yield from self._clean_index(log_min)) and all_cleaned:
                self._cleaned_to = log_min
                log.info("queues_cleaned log_min=%d", log_min)

    # -- the disk

    def _measure(self) -> DiskLevel:
        """Measure the disk, and accept or refuse puts accordingly; a disk that cannot be measured
        changes nothing.
        """
        config = self.config
        logs = [use for folder in config.log_folders() if (use := self._use_of(folder)) is not None]
        use = rules.deciding_use(logs, self._use_of(config.root / "consumequeue"))
        if use is None:
            return self._level
        before, self._level = self._level, rules.disk_level(config, use.ratio)
        self.disk_ratio = use.ratio
        self.write_refusal = rules.refusal(config, use)
        if self._level != before:
            write = log.warning if self._level > max(before, DiskLevel.DELETE_EXPIRED) else log.info
            write(
                "disk_level level=%s before=%s folder=%s ratio=%.3f puts_refused_above=%.2f",
                self._level.name, before.name, use.folder, use.ratio, rules.warning_ratio(config),
            )  # fmt: skip
        return self._level

    def _use_of(self, folder: Path) -> DiskUse | None:
        """Return how much of the disk is used where the folder is, or will be; None if unknown."""
        for place in (folder, *folder.parents):
            try:
                return DiskUse(self._layer.disk_ratio(place), folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.error("disk_use_unknown folder=%s error=%s", folder, error)
                break
        return None

    # -- files of the log and the index

    def _delete_log_files(self, reason: str) -> Generator[int, None, None]:
        """Delete files of the log as long as allowed, with pauses; stop at the first that must
        stay, or cannot be deleted.
        """
        self._consumed_to = LogOffset(0)
        for _ in range(self.config.delete_files_max):
            file = self._log.files.oldest()
            level = self._measure()
            if file is None or file.end > self._needed_from():
                self._warn_if_full(level)
                return
            if not (rules.is_forced(self.config, level) or self._is_expired(file)):
                return
            if (
                self.config.protect_unconsumed
                and level < DiskLevel.DELETE_FORCIBLY
                and (yield from self._is_held_back(file))
            ):
                return
            if self._log.files.oldest() is not file:  # the log was truncated meanwhile
                return
            self._log.files.detach_oldest()
            file.close()
            self._gone_log.append(file.path)
            self._quarantine.forget_before(self._log.min_offset)
            log.info(
                "log_file_deleted file=%s reason=%s disk_ratio=%.3f log_min=%d",
                file.path,
                reason,
                self.disk_ratio,
                self._log.min_offset,
            )
            if not (yield from self._unlinked(self._gone_log)):
                return
            yield self.config.delete_pause_ms

    def _clean_index(self, log_min: LogOffset) -> Generator[int, None, bool]:
        """Delete the files of the index whose records are all before `log_min`; return whether none
        failed.
        """
        while (yield from self._unlinked(self._gone_index)):
            path = None if self._index is None else self._index.detach_before(log_min)
            if path is None:
                return True
            self._gone_index.append(path)
        return False

    def _unlinked(self, gone: deque[Path]) -> Generator[int, None, bool]:
        """Unlink these files on the worker, one after the other; return whether none failed."""
        while gone:
            unlinking = _Unlinking(self._layer, gone[0])
            self._worker(unlinking)
            while not unlinking.is_done:
                yield STEP_PAUSE_MS
            if unlinking.error is not None:
                log.error(
                    "file_not_deleted file=%s error=%s next_try_ms=%d",
                    gone[0],
                    unlinking.error,
                    self.config.clean_interval_ms,
                )
                return False
            gone.popleft()
        return True

    def _is_expired(self, file: MappedFile) -> bool:
        try:
            return rules.is_expired(file.modified_ms, self.config.reserved_ms, self._now_ms)
        except FileNotFoundError:  # an operator deleted it
            return True

    def _is_held_back(self, file: MappedFile) -> Generator[int, None, bool]:
        """Whether a group has yet to consume a record of the file; logged once per file."""
        if file.end <= self._consumed_to:
            return False
        found, self._held_back = self._held_back, None
        if found is not None:  # most likely the same queue as last time: check it before all others
            found = self.queues.unconsumed(found.folder, found.key)
        if found is None or found.log_offset >= file.end:
            end = self._log.end_offset
            found = yield from self.queues.first_unconsumed(LogOffset(file.end))
            self._consumed_to = end if found is None else found.log_offset
        if found is None or found.log_offset >= file.end:
            return False
        self._held_back = found
        if self._is_news("held back", file.start, found.key):
            log.warning(
                "expired_file_kept file=%s unconsumed_topic=%s queue=%d log_offset=%d",
                file.path,
                *found.key,
                found.log_offset,
            )
        return True

    def _warn_if_full(self, level: DiskLevel) -> None:
        """Log, once per disk level, that there is no file left to delete."""
        if level >= DiskLevel.DELETE_FORCIBLY and self._is_news("full", level):
            log.warning(
                "nothing_left_to_delete disk_ratio=%.3f log_files=%d: the active file stays, and "
                "others until they are flushed and dispatched; free space by other means",
                self.disk_ratio,
                len(self._log.files.files),
            )

    def _is_news(self, *what: object) -> bool:
        """Whether this differs from the last warning."""
        before, self._last_warning = self._last_warning, what
        return what != before
