"""Retention: deletes what the store need not keep any more, and says when the disk is too full to take more.

Time comes in with `tick`; what is deleted when is said by `retention_rules`. One round at each interval, in this order: files of the
commit log; the beginnings of queues whose topic keeps messages for less time (`queue_retention`); then, if the log begins later than
before, files of queues and index that only knew of what is gone. The log goes before what points into it, so a crash at any moment leaves
queues that know too much, and the next round finds them.

A round is a generator that goes on from tick to tick, so that neither the pauses between files nor many queues hold the loop. A file leaves
the log on the loop thread, and is unlinked by `worker`; who still reads it keeps the mapping, and with it the bytes. Files go one at a
time, the oldest first, and the next not before the name of the last is durably gone: there is no gap in the log, whatever fails. A file
that cannot be unlinked is tried again in each round, and the log loses no other before it went.

Invariants: the log's minimum only grows; the file that takes messages stays, and so does what is not flushed or still needed
(`needed_from`). Thread rule: the loop thread, while no batch of the log is open; the worker gets unlinks and nothing else.

Against the original: it deletes up to ten files without looking whether the first made enough space; here the disk is looked at before
each. The disk is looked at from the first tick on, not only after a minute. It takes the topic attribute `reserve.time` only with tiered
storage, where it is in hours.
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
from orbitmq.store.queue_retention import STEP_PAUSE_MS, ConsumedOffset, QueueRetention, TopicReserve, Unconsumed
from orbitmq.store.queues import Queues
from orbitmq.store.retention_rules import DiskLevel, DiskUse
from orbitmq.store.types import LogOffset

Worker = Callable[[Callable[[], None]], object]  # has a call made, at once or soon, in any thread

FIRST_ROUND_MS = 60_000
MANUAL_ROUNDS = 20
log = logging.getLogger(__name__)


class _Unlinking:
    """One file on its way out."""

    __slots__ = ("_layer", "_path", "error", "is_done")

    def __init__(self, layer: FileLayer, path: Path) -> None:
        self._layer = layer
        self._path = path
        self.error: OSError | None = None
        self.is_done = False

    def __call__(self) -> None:
        """Remove the file durably; one that somebody removed already is as good."""
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
    """Deletes by time and by space. `config` may be replaced; `queues` has what the broker says of topics and groups."""

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
        is_system_topic: Callable[[str], bool] = lambda _topic: False,
        topic_reserve: TopicReserve = dict,
        consumed_offset: ConsumedOffset = lambda _key: None,
        needed_from: Callable[[], LogOffset] | None = None,
    ) -> None:
        self.config = config
        self.queues = QueueRetention(
            commit_log, queues, is_system_topic=is_system_topic, topic_reserve=topic_reserve, consumed_offset=consumed_offset
        )
        self.write_refusal: str | None = None  # why puts are refused, and what to do about it
        self.disk_ratio = 0.0  # of the disk that decides, when it was looked at last
        self._layer = layer
        self._log = commit_log
        self._index = index
        self._quarantine = quarantine
        self._worker = worker or (lambda unlink: unlink())
        self._needed_from = needed_from or (lambda: commit_log.end_offset)
        self._level = DiskLevel.OK
        self._now_ms = 0
        self._measure_ms = 0  # monotonic: when the disk is looked at next
        self._round_ms: int | None = None  # monotonic; None before the first tick
        self._resume_ms = 0  # monotonic: when the first job goes on
        self._jobs: deque[Generator[int, None, object]] = deque()  # each step says how many ms to wait before the next
        self._manual_rounds = 0
        self._gone_log: deque[Path] = deque()  # not in the log any more, and maybe still on disk
        self._gone_index: deque[Path] = deque()
        self._cleaned_to = LogOffset(0)  # queues and index know of nothing before
        self._held_back: Unconsumed | None = None  # what kept the oldest file from going
        self._consumed_to = LogOffset(0)  # in this round, all queues were found to be consumed up to here
        self._told: tuple[object, ...] = ()  # what was said last about files that stay

    @property
    def next_ms(self) -> int:
        """When to tick next, monotonic; 0 for at once."""
        if self._round_ms is None:
            return 0
        return min(self._measure_ms, self._resume_ms if self._jobs else self._round_ms)

    def tick(self, now_ms: int, monotonic_ms: int) -> None:
        """Look at the disk, begin a round and go on with it, as far as it is time for that."""
        self._now_ms = now_ms
        if self._round_ms is None:
            self._measure_ms, self._round_ms = monotonic_ms, monotonic_ms + FIRST_ROUND_MS
            self._jobs.append(self.queues.shorten(self.config, now_ms))
        if monotonic_ms >= self._measure_ms:
            self._measure_ms = monotonic_ms + self.config.clean_interval_ms
            self._measure()
        if monotonic_ms >= self._round_ms and not self._jobs:
            self._round_ms = monotonic_ms + self.config.clean_interval_ms
            self._jobs.append(self._round())
        self._go_on(monotonic_ms)

    def delete_expired_now(self) -> None:
        """Delete what is expired in each of the next rounds, whatever the hour: DELETE_EXPIRED_COMMITLOG."""
        self._manual_rounds = MANUAL_ROUNDS
        log.info("deletion_asked_for rounds=%d", MANUAL_ROUNDS)

    def clean_unused_queues(self) -> None:
        """Delete, from the next tick on, queues that point at nothing in the log any more: CLEAN_EXPIRED_CONSUMEQUEUE."""
        self._jobs.append(self.queues.delete_unused())

    def _go_on(self, monotonic_ms: int) -> None:
        """Take as many steps of the jobs as one tick may, unless the first of them waits."""
        for _ in range(self.config.clean_queues_max):
            if not self._jobs or monotonic_ms < self._resume_ms:
                return
            try:
                self._resume_ms = monotonic_ms + next(self._jobs[0])
            except StopIteration:
                self._jobs.popleft()
            except (OSError, StoreError) as error:
                log.error("retention_failed error=%s next_try_ms=%d", error, self.config.clean_interval_ms)
                self._jobs.popleft()
        self._resume_ms = max(self._resume_ms, monotonic_ms + STEP_PAUSE_MS)

    def _round(self) -> Generator[int, None, None]:
        reason = rules.reason_to_delete(self.config, self._measure(), self._now_ms, manual=self._manual_rounds > 0)
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
        """Look at the disk, and take or refuse puts by that; a disk that cannot be looked at leaves things as they are."""
        config = self.config
        logs = [use for folder in config.log_folders() if (use := self._use_of(folder)) is not None]
        use = rules.deciding_use(logs, self._use_of(config.root / "consumequeue"))
        if use is None:
            return self._level
        before, self._level = self._level, rules.disk_level(config, use.ratio)
        self.disk_ratio = use.ratio
        self.write_refusal = rules.refusal(config, use)
        if self._level != before:
            tell = log.warning if self._level > max(before, DiskLevel.DELETE_EXPIRED) else log.info
            tell(
                "disk_level level=%s before=%s folder=%s ratio=%.3f puts_refused_above=%.2f",
                self._level.name, before.name, use.folder, use.ratio, rules.warning_ratio(config),
            )  # fmt: skip
        return self._level

    def _use_of(self, folder: Path) -> DiskUse | None:
        """How much of the disk is used where the folder is, or will be; None when the disk does not tell."""
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
        """Delete files of the log as long as they may go, with pauses; stop at the first that may not, or cannot."""
        self._consumed_to = LogOffset(0)
        for _ in range(self.config.delete_files_max):
            file = self._log.files.oldest()
            level = self._measure()
            if file is None or file.end > self._needed_from():
                self._tell_if_full(level)
                return
            if not (rules.is_forced(self.config, level) or self._is_expired(file)):
                return
            if self.config.protect_unconsumed and level < DiskLevel.DELETE_FORCIBLY and (yield from self._is_held_back(file)):
                return
            if self._log.files.oldest() is not file:  # the log was cut while queues were looked at
                return
            self._log.files.detach_oldest()
            file.close()
            self._gone_log.append(file.path)
            self._quarantine.forget_before(self._log.min_offset)
            log.info(
                "log_file_deleted file=%s reason=%s disk_ratio=%.3f log_min=%d", file.path, reason, self.disk_ratio, self._log.min_offset
            )
            if not (yield from self._unlinked(self._gone_log)):
                return
            yield self.config.delete_pause_ms

    def _clean_index(self, log_min: LogOffset) -> Generator[int, None, bool]:
        """Delete the files of the index that only know of records before `log_min`; whether all of them went."""
        while (yield from self._unlinked(self._gone_index)):
            path = None if self._index is None else self._index.detach_before(log_min)
            if path is None:
                return True
            self._gone_index.append(path)
        return False

    def _unlinked(self, gone: deque[Path]) -> Generator[int, None, bool]:
        """Have the worker unlink these files, one after the other; whether all of them went."""
        while gone:
            unlinking = _Unlinking(self._layer, gone[0])
            self._worker(unlinking)
            while not unlinking.is_done:
                yield STEP_PAUSE_MS
            if unlinking.error is not None:
                log.error("file_not_deleted file=%s error=%s next_try_ms=%d", gone[0], unlinking.error, self.config.clean_interval_ms)
                return False
            gone.popleft()
        return True

    def _is_expired(self, file: MappedFile) -> bool:
        try:
            return rules.is_expired(file.modified_ms, self.config.reserved_ms, self._now_ms)
        except FileNotFoundError:  # an operator made space by hand
            return True

    def _is_held_back(self, file: MappedFile) -> Generator[int, None, bool]:
        """Whether a group has yet to consume a record of the file; told once for each file."""
        if file.end <= self._consumed_to:
            return False
        found, self._held_back = self._held_back, None
        if found is not None:  # the same queue as last time, most likely: that spares a look at all others
            found = self.queues.unconsumed(found.folder, found.key)
        if found is None or found.log_offset >= file.end:
            end = self._log.end_offset
            found = yield from self.queues.first_unconsumed(LogOffset(file.end))
            self._consumed_to = end if found is None else found.log_offset
        if found is None or found.log_offset >= file.end:
            return False
        self._held_back = found
        if self._is_news("held back", file.start, found.key):
            log.warning("expired_file_kept file=%s unconsumed_topic=%s queue=%d log_offset=%d", file.path, *found.key, found.log_offset)
        return True

    def _tell_if_full(self, level: DiskLevel) -> None:
        """Say, once while the disk is as full, that there is no file left to delete."""
        if level >= DiskLevel.DELETE_FORCIBLY and self._is_news("full", level):
            log.warning(
                "nothing_left_to_delete disk_ratio=%.3f log_files=%d: the file that takes messages stays, and others until they are "
                "flushed and dispatched; free space by other means",
                self.disk_ratio, len(self._log.files.files),
            )  # fmt: skip

    def _is_news(self, *what: object) -> bool:
        """Whether something else was said last."""
        before, self._told = self._told, what
        return what != before
