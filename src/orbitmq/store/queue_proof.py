"""What is kept of the consume queues at start: what their manifest proves. Everything else is rebuilt from the commit log.

For each queue, on disk or in the manifest:
- its topic does not exist any more: the files are removed;
- all files have the checksums of the manifest, and it is the same life of the topic: they are kept;
- some files, from the first, have them: those are kept, and the log is dispatched again from where they end;
- otherwise the queue begins empty, and gets the records that the log has of it.

The log is the truth, but it forgets: of a queue whose records are all expired it cannot tell the next offset. That is taken from the
manifest, or from the files before they are removed. Files of which no manifest knows (an Apache broker's) also tell where the life of
their topic begins, if the log confirms their first entry and nothing else tells: a topic that was deleted and created again just before
a crash, so that neither was saved, has files of the life that never was.

Light queues (`%LMQ%`) are not made by this store's dispatch: their files stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

from orbitmq.common.crc import crc32
from orbitmq.common.errors import StoreError
from orbitmq.common.mem import signed32, signed64
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.entry_queue import EntryQueue, QueueState
from orbitmq.store.queue_files import FilesState
from orbitmq.store.queue_manifest import LogTail, Manifest
from orbitmq.store.queues import QueueFolder, Queues
from orbitmq.store.topic_lives import TopicLives
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

_LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
_LOG_TAIL_SIZE: Final = 1024
_NO_LOG_OFFSET: Final = LogOffset((1 << 63) - 1)
Q = TypeVar("Q", bound=EntryQueue)
log = logging.getLogger(__name__)


def log_tail(commit_log: CommitLog, end: LogOffset) -> LogTail:
    """What tells this log from others, at that offset of it."""
    size = min(_LOG_TAIL_SIZE, (end - 1) % commit_log.files.file_size + 1) if end > commit_log.min_offset else 0
    content = commit_log.read(LogOffset(end - size), size) if size else None
    return LogTail(end) if content is None else LogTail(end, size, crc32(content))


class QueueProof:
    """One start: `run` settles every queue, then the log is dispatched from where it says, then `finish`."""

    def __init__(self, commit_log: CommitLog, queues: Queues, lives: TopicLives, manifest: Manifest | None) -> None:
        self._log = commit_log
        self._queues = queues
        self._lives = lives
        self._why_not = self._flaw(manifest)
        self.manifest = manifest if manifest is not None and self._why_not is None else None  # one that is true of this log
        self._begin = _NO_LOG_OFFSET
        self._next_offsets: dict[QueueKey, QueueOffset] = {}  # of queues of which the log may have no record
        self._rebuilt: list[EntryQueue] = []  # from nothing
        self.rebuilt = 0

    def run(self, log_end: LogOffset) -> LogOffset:
        """Keep what is proven, and make room for the rest; from where on the log has to be dispatched."""
        manifest = self.manifest
        if manifest is None:
            self._begin = self._log.min_offset
            if self._log.min_offset < log_end or any(True for _ in self._queues.plain):
                log.warning("queues_unproven reason=%s", self._why_not)
        else:
            self._begin = min(manifest.log_offset, log_end)
            self._look_at_topics(manifest)
        self._settle(self._queues.plain, {} if manifest is None else manifest.plain)
        self._settle(self._queues.batch, {} if manifest is None else manifest.batch)
        return LogOffset(max(self._begin, self._log.min_offset))

    def finish(self) -> None:
        """After dispatch: drop queues of topics that do not exist, and give queues without a record in the log their next offset."""
        plain = self._queues.plain
        for folder in (plain, self._queues.batch):
            for key in [key for key in folder if not self._lives.exists(key.topic)]:
                folder.drop(key)
        for queue in self._rebuilt:
            queue.remove_other_files()
        for key, offset in self._next_offsets.items():
            found = plain.find(*key)
            if found is not None and found.max_offset == 0:
                found.begin_at(offset)
                log.warning("queue_continued topic=%s queue=%d next_offset=%d reason=the log has no record of it any more", *key, offset)

    def _flaw(self, manifest: Manifest | None) -> str | None:
        """Why the manifest proves nothing about queues of this log."""
        if manifest is None:
            return "there is no usable manifest of the queues"
        if manifest.file_sizes[::2] != self._queues.file_sizes[::2] or 0 != manifest.file_sizes[1] != self._queues.file_sizes[1]:
            return f"the manifest is of files of {manifest.file_sizes} bytes, {self._queues.file_sizes} are configured"
        tail = manifest.log_tail
        if not tail.size:
            return None if tail.end <= self._log.min_offset else "the manifest does not say of which log it is"
        content = self._log.read(LogOffset(tail.end - tail.size), tail.size)
        if content is None or crc32(content) != tail.checksum:
            return f"the manifest is of a log with other bytes before {tail.end}"
        return None

    def _look_at_topics(self, manifest: Manifest) -> None:
        """Dispatch from the beginning of topics whose records were not, because they did not exist when the manifest was written."""
        if manifest.topics is None:
            return
        now = self._lives.beginnings()
        if now is None:
            if self._log.min_offset < self._log.end_offset:  # an empty log has nothing to check, as in a store without messages
                log.warning("queues_checked_from_log reason=it cannot be told which topics exist")
            self._begin = self._log.min_offset
            return
        for topic, begin in now.items():
            if topic not in manifest.topics:
                self._needs(begin)

    def _settle(self, folder: QueueFolder[Q], states: Mapping[QueueKey, QueueState]) -> None:
        for key in [*states, *(key for key in folder if key not in states)]:
            if key.topic.startswith(_LIGHT_QUEUE_PREFIX):
                continue
            if not self._lives.exists(key.topic):
                folder.make(key).remove_other_files()
                folder.drop(key)
                log.info("queue_removed topic=%s queue=%d reason=its topic was deleted", *key)
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
        return known == self._lives.begin_of(key.topic) and state.physical_end <= self._log.end_offset

    def _keep(self, folder: QueueFolder[Q], key: QueueKey, state: QueueState) -> None:
        """Keep the files that are proven; the queue is rebuilt from where they end."""
        begin = self._lives.begin_of(key.topic)
        count = folder.proven(key, state.entries)
        if count == len(state.entries.checksums) and (state.units is None or folder.make(key, begin).has_units(state.units)):
            folder.settle(key, state)
            return
        queue = folder.make(key, begin)
        first, file_size = state.entries.first, queue.files.file_size
        if count and state.units is None:
            kept = FilesState(first, first + count * file_size, state.entries.checksums[:count])
            queue.adopt(QueueState(kept, None, 0))
            folder.settle(key, queue)
            self._say(key, queue, f"the file from {kept.end} on is missing or damaged")
        else:
            self._rebuild(folder, key, state)

    def _rebuild(self, folder: QueueFolder[Q], key: QueueKey, state: QueueState | None) -> None:
        """Let the queue begin empty."""
        begin, next_offset = self._lives.begin_of(key.topic), QueueOffset(0)
        if state is None:
            found_begin, next_offset = self._evidence(folder, key)
            if not self._lives.knows_begin(key.topic):
                begin = max(begin, found_begin)
        elif begin < state.physical_end <= self._log.min_offset:
            next_offset = QueueOffset(state.entries.end // folder.make(key).ENTRY_SIZE)
        queue = folder.make(key, begin)
        queue.reuse_files()
        folder.settle(key, queue)
        self._rebuilt.append(queue)
        if next_offset:
            self._next_offsets[key] = next_offset
        self._say(key, queue, "its files are missing or damaged" if state is not None else "no manifest knows its files")

    def _say(self, key: QueueKey, queue: EntryQueue, reason: str) -> None:
        self.rebuilt += 1
        self._needs(queue.max_physical_offset)
        if self.manifest is not None:  # else one line says it for all
            log.warning("queue_rebuilt topic=%s queue=%d from=%d reason=%s", *key, queue.max_physical_offset, reason)

    def _needs(self, begin: int) -> None:
        """Have the log dispatched from there at the latest."""
        self._begin = LogOffset(min(self._begin, max(begin, self._log.min_offset)))

    def _evidence(self, folder: QueueFolder[Q], key: QueueKey) -> tuple[int, QueueOffset]:
        """What files tell of which no manifest knows: where the queue begins in the log, and its next offset if all records are expired."""
        queue = folder.make(key)
        try:
            queue.recover(self._log.end_offset)
        except (StoreError, OSError):
            return 0, QueueOffset(0)
        begin, next_offset = 0, QueueOffset(0)
        if queue.files.first == 0 and (entry := queue.files.read(0, queue.ENTRY_SIZE)):
            log_offset, size = LogOffset(signed64(entry, 0)), signed32(entry, 8)
            if queue.offset_of(0, entry) == 0 and log_offset >= self._log.min_offset and self._confirms(key, log_offset, size):
                begin = log_offset
        if 0 < queue.max_physical_offset <= self._log.min_offset:
            next_offset = queue.max_offset
        return begin, next_offset

    def _confirms(self, key: QueueKey, log_offset: LogOffset, size: int) -> bool:
        """Whether the log has that record, as the first of that queue."""
        content = self._log.read(log_offset, size)
        record = RecordCursor()  # one that is kept would keep the file from being unmapped
        return (
            content is not None
            and record.read(content, 0, size, False) == size
            and (record.queue_id, record.queue_offset) == (key.queue_id, 0)
            and record.topic() == key.topic.encode()
        )
