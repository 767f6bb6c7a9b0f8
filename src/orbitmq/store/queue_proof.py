"""Decides at start what is kept of the consume queues: what their manifest proves. Everything else
is rebuilt from the commit log.

For each queue, on disk or in the manifest:
- its topic no longer exists: the files are removed;
- all files have the checksums of the manifest, and it is the same life of the topic: they are kept;
- some files, from the first, have them: those are kept, and the log is dispatched again from where
  they end;
- otherwise the queue begins empty, and gets its records from the log.

The log is the truth, but records expire: if all records of a queue are expired, it does not have
the next offset. That is taken from the manifest, or from the files before they are removed.

Where the life of a topic begins is stated by its owner and by the manifest: the later one counts
(`TopicLives.learn`). Files unknown to the manifest state it too, if the log confirms their first
entry as message 0 of the queue: no record before that one is of the same life.

Light queues (`%LMQ%`) are not built by this store's dispatch: their files stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

from orbitmq.common.crc import crc32
from orbitmq.common.errors import StoreError
from orbitmq.common.mem import signed32, signed64
from orbitmq.message.properties import decode_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.entry_queue import EntryQueue, QueueState
from orbitmq.store.queue_files import FilesState
from orbitmq.store.queue_manifest import LogTail, Manifest
from orbitmq.store.queues import QueueFolder, Queues
from orbitmq.store.topic_lives import LivesProof, TopicLives
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

_LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
_LOG_TAIL_SIZE: Final = 1024
_NO_LOG_OFFSET: Final = LogOffset((1 << 63) - 1)
Q = TypeVar("Q", bound=EntryQueue)
log = logging.getLogger(__name__)


def log_tail(commit_log: CommitLog, end: LogOffset) -> LogTail:
    """Return what identifies this log at that offset."""
    size = (
        min(_LOG_TAIL_SIZE, (end - 1) % commit_log.files.file_size + 1)
        if end > commit_log.min_offset
        else 0
    )
    content = commit_log.read(LogOffset(end - size), size) if size else None
    return LogTail(end) if content is None else LogTail(end, size, crc32(content))


class QueueProof:
    """The proof of one start: `run` settles every queue, then the log is dispatched from the
    returned offset, then `finish`.
    """

    def __init__(
        self, commit_log: CommitLog, queues: Queues, lives: TopicLives, manifest: Manifest | None
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._lives = lives
        self._why_not = self._flaw(manifest)
        self._manifest_of_log = manifest if self._is_of_this_log(manifest) else None
        # Set if it is true of this log, and of files of the configured sizes.
        self.manifest = manifest if manifest is not None and self._why_not is None else None
        self._begin = _NO_LOG_OFFSET
        # Of queues that may have no record in the log.
        self._next_offsets: dict[tuple[QueueKey, EntryQueue], QueueOffset] = {}
        self._rebuilt: list[EntryQueue] = []  # from nothing
        self.rebuilt = 0

    def run(self, log_end: LogOffset, *, clean: bool) -> LogOffset:
        """Keep what is proven, and prepare the rest for a rebuild; return where dispatch must
        begin.
        """
        self._lives.learn(self._lives_proof(log_end, clean=clean), log_end)
        manifest = self.manifest
        if manifest is None:
            self._begin = self._log.min_offset
            if self._log.min_offset < log_end or any(True for _ in self._queues.plain):
                log.warning("queues_unproven reason=%s", self._why_not)
        else:
            self._begin = min(manifest.log_offset, log_end)
            self._check_topics(manifest)
        if not clean:
            self._find_new_lives()
        self._settle(self._queues.plain, {} if manifest is None else manifest.plain)
        self._settle(self._queues.batch, {} if manifest is None else manifest.batch)
        return LogOffset(max(self._begin, self._log.min_offset))

    def finish(self) -> None:
        """After dispatch: give queues without a record in the log their next offset, and drop those
        of topics that do not exist, or that only earlier lives of a topic had.
        """
        for folder in (self._queues.plain, self._queues.batch):
            for key in [key for key in folder if not self._lives.exists(key.topic)]:
                folder.drop(key)
            for opened in folder.opened():
                self._check_first(opened)
        for rebuilt in self._rebuilt:
            rebuilt.remove_other_files()
        for (key, queue), offset in self._next_offsets.items():
            if queue.max_offset == 0 and self._queues.max_offset(*key) < offset:
                queue.begin_at(offset)
                log.warning(
                    "queue_continued topic=%s queue=%d next_offset=%d reason=the log no longer"
                    " has a record of it",
                    *key,
                    offset,
                )
        for folder in (self._queues.plain, self._queues.batch):
            folder.drop_empty()

    def _check_first(self, queue: EntryQueue) -> None:
        """Log that a queue does not begin with message 0 although the log has the whole life of its
        topic: the stated beginning is wrong, or records are corrupt.
        """
        if queue.begin_offset > self._log.min_offset and 0 < queue.min_offset < queue.max_offset:
            log.warning(
                "queue_begins_late folder=%s first_offset=%d begin=%d reason=its topic is said to"
                " live since that log offset: records before it are in no queue",
                queue.files.folder,
                queue.min_offset,
                queue.begin_offset,
            )

    def _flaw(self, manifest: Manifest | None) -> str | None:
        """Return why the manifest proves nothing about queues of this log, or None."""
        if manifest is None:
            return "there is no usable manifest of the queues"
        tail = manifest.log_tail
        if not self._is_of_this_log(manifest):
            return (
                f"the manifest is of a log with other bytes before {tail.end}"
                if tail.size
                else "the manifest does not identify its log"
            )
        if (
            manifest.file_sizes[::2] != self._queues.file_sizes[::2]
            or 0 != manifest.file_sizes[1] != self._queues.file_sizes[1]
        ):
            return (
                f"the manifest is of files of {manifest.file_sizes} bytes,"
                f" {self._queues.file_sizes} are configured"
            )
        return None

    def _is_of_this_log(self, manifest: Manifest | None) -> bool:
        """Whether the log has the bytes that the manifest ends with."""
        if manifest is None:
            return False
        tail = manifest.log_tail
        if not tail.size:
            return tail.end <= self._log.min_offset
        content = self._log.read(LogOffset(tail.end - tail.size), tail.size)
        return content is not None and crc32(content) == tail.checksum

    def _lives_proof(self, log_end: LogOffset, *, clean: bool) -> LivesProof:
        """Return what the manifest states about topics, if it belongs to this log."""
        manifest = self._manifest_of_log
        if manifest is None or manifest.topics is None:
            return LivesProof()
        # A queue whose topic is not listed: it was created while states were collected, or its
        # topic needs no entry there.
        beginnings = dict.fromkeys((key.topic for key in (*manifest.plain, *manifest.batch)), 0)
        beginnings.update(manifest.topics)
        return LivesProof(
            beginnings, manifest.log_offset, is_last=clean and manifest.log_offset == log_end
        )

    def _check_topics(self, manifest: Manifest) -> None:
        """Dispatch from the beginning of topics that did not exist when the manifest was
        written.
        """
        if manifest.topics is None:
            return
        now = self._lives.beginnings()
        if now is None:
            if self._log.min_offset < self._log.end_offset:  # else nothing to check
                log.warning("queues_checked_from_log reason=the existing topics are unknown")
            self._begin = self._log.min_offset
            return
        for topic, begin in now.items():
            if topic not in manifest.topics:
                self._needs(begin)

    def _find_new_lives(self) -> None:
        """Let topics begin again that were deleted and created anew, if their owner did not save
        that: for all their queues, or some would show the one life and some the other.

        Files of a new life are a hint; the proof is a second message 0 of a queue in the log. No
        message of the new life was acknowledged unless the owner's file is an older copy.
        """
        manifest, hints = self.manifest, dict[QueueKey, int]()
        known = {} if manifest is None else {**manifest.plain, **manifest.batch}
        hints |= self._hints(self._queues.plain, known)
        hints |= self._hints(self._queues.batch, known)
        if not hints:
            return
        begins = {key.topic: self._lives.begin_of(key.topic) for key in hints}
        begin = min(begins.values())
        if manifest is not None:  # before it ended, no queue that it lacks had a message
            begin = max(begin, manifest.log_offset)
        firsts: dict[QueueKey, list[int]] = {
            key: [begin]
            for key, state in known.items()
            if state.next_offset > 0 and self._is_of_present_life(key, state)
        }
        for record in self._log.scan(
            LogOffset(max(begin, self._log.min_offset)),
            LogOffset(max(hints.values()) + 1),
            check_body=False,
        ):
            if record.queue_offset == 0:
                key = QueueKey(decode_text(record.topic()), record.queue_id)
                if begins.get(key.topic, record.log_offset + 1) <= record.log_offset:
                    firsts.setdefault(key, []).append(record.log_offset)
        for topic in begins:
            of_topic = {key: found for key, found in firsts.items() if key.topic == topic}
            ended = max((found[-2] for found in of_topic.values() if len(found) > 1), default=None)
            if ended is not None:
                self._lives.begin_again(
                    topic,
                    min(
                        found[-1]
                        for key, found in of_topic.items()
                        if found[-1] > ended and (len(found) > 1 or hints.get(key) == found[-1])
                    ),
                )

    def _hints(
        self, folder: QueueFolder[Q], known: Mapping[QueueKey, QueueState]
    ) -> dict[QueueKey, int]:
        """Return where queues that the manifest lacks begin by their files, if that is later than
        their topics do.
        """
        return {
            key: begin
            for key in folder
            if key not in known
            and not key.topic.startswith(_LIGHT_QUEUE_PREFIX)
            and self._lives.exists(key.topic)
            and (begin := self._evidence(folder, key)[0]) > self._lives.begin_of(key.topic)
        }

    def _settle(self, folder: QueueFolder[Q], states: Mapping[QueueKey, QueueState]) -> None:
        for key in [*states, *(key for key in folder if key not in states)]:
            if key.topic.startswith(_LIGHT_QUEUE_PREFIX):
                continue
            if not self._lives.exists(key.topic):
                folder.make(key).remove_other_files()
                folder.drop(key)
                log.warning("queue_removed topic=%s queue=%d reason=its topic was deleted", *key)
                continue
            state = states.get(key)
            if state is not None and self._is_of_present_life(key, state):
                self._keep(folder, key, state)
            else:
                self._rebuild(folder, key, None)

    def _is_of_present_life(self, key: QueueKey, state: QueueState) -> bool:
        manifest = self.manifest
        assert manifest is not None
        known = 0 if manifest.topics is None else manifest.topics.get(key.topic, 0)
        return (
            known == self._lives.begin_of(key.topic) and state.physical_end <= self._log.end_offset
        )

    def _keep(self, folder: QueueFolder[Q], key: QueueKey, state: QueueState) -> None:
        """Keep the proven files; the queue is rebuilt from where they end."""
        begin = self._lives.begin_of(key.topic)
        count = folder.proven(key, state.entries)
        if count == len(state.entries.checksums) and (
            state.units is None or folder.make(key, begin).has_units(state.units)
        ):
            folder.settle(key, state)
            return
        queue = folder.make(key, begin)
        first, file_size = state.entries.first, queue.files.file_size
        if count and state.units is None and state.physical_end > self._log.min_offset:
            kept = FilesState(first, first + count * file_size, state.entries.checksums[:count])
            queue.adopt(QueueState(kept, None, 0))
            folder.settle(key, queue)
            self._log_rebuilt(key, queue, f"the file from {kept.end} on is missing or corrupt")
        else:
            self._rebuild(folder, key, state)

    def _rebuild(self, folder: QueueFolder[Q], key: QueueKey, state: QueueState | None) -> None:
        """Make the queue begin empty."""
        begin, next_offset = self._lives.begin_of(key.topic), QueueOffset(0)
        if state is None:
            found_begin, next_offset = self._evidence(folder, key)
            begin = max(begin, found_begin)
        elif begin < state.physical_end <= self._log.min_offset:
            next_offset = state.next_offset
        queue = folder.make(key, begin)
        queue.reuse_files()
        folder.settle(key, queue)
        self._rebuilt.append(queue)
        if next_offset:
            self._next_offsets[key, queue] = next_offset
        self._log_rebuilt(
            key,
            queue,
            (
                "its files are missing or corrupt"
                if state is not None
                else "its files are in no manifest"
            ),
        )

    def _log_rebuilt(self, key: QueueKey, queue: EntryQueue, reason: str) -> None:
        self.rebuilt += 1
        self._needs(queue.max_physical_offset)
        if self.manifest is not None:  # else one line covers all
            log.warning(
                "queue_rebuilt topic=%s queue=%d from=%d reason=%s",
                *key,
                queue.max_physical_offset,
                reason,
            )

    def _needs(self, begin: int) -> None:
        """Dispatch the log from there at the latest."""
        self._begin = LogOffset(min(self._begin, max(begin, self._log.min_offset)))

    def _evidence(self, folder: QueueFolder[Q], key: QueueKey) -> tuple[int, QueueOffset]:
        """Return what files without a manifest show: where the queue begins in the log, and its
        next offset if all records are expired.
        """
        queue = folder.make(key)
        try:
            queue.recover(self._log.end_offset)
        except (StoreError, OSError):
            return 0, QueueOffset(0)
        begin, next_offset = 0, QueueOffset(0)
        if queue.files.first == 0 and (entry := queue.files.read(0, queue.ENTRY_SIZE)):
            log_offset, size = LogOffset(signed64(entry, 0)), signed32(entry, 8)
            if (
                queue.offset_of(0, entry) == 0
                and log_offset >= self._log.min_offset
                and self._confirms(key, log_offset, size)
            ):
                begin = log_offset
        if 0 < queue.max_physical_offset <= self._log.min_offset:
            next_offset = queue.max_offset
        return begin, next_offset

    def _confirms(self, key: QueueKey, log_offset: LogOffset, size: int) -> bool:
        """Whether the log has that record, as the first of that queue."""
        content = self._log.read(log_offset, size)
        record = RecordCursor()  # not kept: it would keep the file mapped
        return (
            content is not None
            and record.read(content, 0, size, False) == size
            and (record.queue_id, record.queue_offset) == (key.queue_id, 0)
            and record.topic() == key.topic.encode()
        )
