"""The commit log against a list: whatever is appended, fails, rolls, is cut, deleted, loaded again
or loses power, the log is the list.

Records have the checksum over all of their bytes: without it a sector that is lost with the end of
a topic may go unnoticed.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.common.errors import InvalidMessageError, WriteFailedError
from orbitmq.message.record_write import record_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles
from support.store.logs import HOST, NOW_MS, contents, message, new_log, place_of

FILE_SIZE = 1024
TOPICS = st.sampled_from([b"A", b"B"])
QUEUES = st.integers(0, 1)
PREPARED = 4


class Kept(NamedTuple):
    """A record as the model knows it."""

    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    store_time: int
    body: bytes


class CommitLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="orbitmq-log-"))
        self.lives = 0
        self.committed: list[Kept] = []
        self.open: list[Kept] = []
        self.places: Counter[QueueKey] = Counter()  # next offset by queue, the open batch included
        self.committed_places: Counter[QueueKey] = Counter()
        self.now_ms = self.store_time = NOW_MS
        self.first = self.end = self.batch_end = self.flushed = 0
        self.root.mkdir()
        self.start(FaultyDisk(ProcessFiles(), self.root))

    @property
    def root(self) -> Path:
        return self.folder / str(self.lives)

    def start(self, disk: FaultyDisk) -> None:
        """Begin, or begin again, on what is on disk."""
        self.disk = disk
        self.log: CommitLog = new_log(
            self.root, self.disk, commit_log_file_size=FILE_SIZE, record_crc=True
        )
        self.log.load()

    def teardown(self) -> None:
        self.log.files.close()
        shutil.rmtree(self.folder)

    def place(self, size: int) -> int:
        """Where the next `size` bytes go: behind the last, or in the next file."""
        left = FILE_SIZE - self.batch_end % FILE_SIZE
        return self.batch_end if size + 8 <= left else self.batch_end + left

    def expect(
        self, offset: int, topic: bytes, queue_id: int, body: bytes, *, prepared: bool = False
    ) -> Kept:
        queue_offset = 0
        if not prepared:
            queue_offset = self.places[QueueKey(topic.decode(), queue_id)]
            self.places[QueueKey(topic.decode(), queue_id)] += 1
        size = record_size(message(body, topic), HOST, True)
        self.store_time = max(self.store_time, self.now_ms)
        kept = Kept(offset, size, topic, queue_id, queue_offset, self.store_time, body)
        self.open.append(kept)
        self.batch_end = offset + size
        return kept

    @initialize()
    def empty(self) -> None:
        self.log.resume(LogOffset(0), StoreTimeMs(NOW_MS))

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        body=st.binary(max_size=400),
        prepared=st.booleans(),
        shift_ms=st.integers(-50, 50),
    )
    def append(
        self, topic: bytes, queue_id: int, body: bytes, prepared: bool, shift_ms: int
    ) -> None:
        self.now_ms += shift_ms
        one = message(body, topic, queue_id=queue_id, sys_flag=PREPARED if prepared else 0)
        kept = self.expect(
            self.place(record_size(one, HOST, True)), topic, queue_id, body, prepared=prepared
        )
        assert place_of(self.log.append(one, self.now_ms)) == (
            kept.offset,
            kept.size,
            kept.queue_offset,
            kept.store_time,
        )

    @rule(topic=TOPICS, bodies=st.lists(st.binary(max_size=150), min_size=1, max_size=3))
    def append_batch(self, topic: bytes, bodies: list[bytes]) -> None:
        messages = [message(body, topic) for body in bodies]
        offset = self.place(sum(record_size(each, HOST, True) for each in messages))
        for body, place in zip(bodies, self.log.append_batch(messages, self.now_ms), strict=True):
            kept = self.expect(offset, topic, 0, body)
            assert place_of(place) == (kept.offset, kept.size, kept.queue_offset, kept.store_time)
            offset = self.batch_end

    @rule()
    def append_what_no_file_holds(self) -> None:
        with pytest.raises(InvalidMessageError):
            self.log.append(message(bytes(FILE_SIZE)), self.now_ms)

    @rule()
    def commit(self) -> None:
        self.log.commit()
        if self.open:
            self.committed += self.open
            self.open.clear()
            self.end = self.batch_end
            self.committed_places = self.places.copy()

    @rule(
        kind=st.sampled_from(["pwrite", "pwrite", "open", "truncate", "clear"]),
        after=st.integers(0, 2),
        error=st.sampled_from([errno.ENOSPC, errno.EIO]),
        partial_bytes=st.integers(0, 600),
        times=st.integers(1, 2),
    )
    def commit_with_a_fault(
        self, kind: str, after: int, error: int, partial_bytes: int, times: int
    ) -> None:
        self.disk.fail(kind, error, after=after, times=times, partial_bytes=partial_bytes)
        try:
            self.commit()
        except WriteFailedError:
            self.open.clear()
            self.batch_end = self.end
            self.places = self.committed_places.copy()
            self.store_time = max(NOW_MS, self.log.last_store_time_ms)
        finally:
            self.disk.heal()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule()
    def prepare(self) -> None:
        self.log.files.prepare_next()

    @precondition(lambda self: not self.open)
    @rule()
    def delete_oldest(self) -> None:
        first_end = self.first - self.first % FILE_SIZE + FILE_SIZE
        expected = first_end <= min(self.flushed, self.end - 1)
        assert self.log.files.delete_oldest() == expected
        if expected:
            self.first = first_end
            self.committed = [kept for kept in self.committed if kept.offset >= first_end]

    @precondition(lambda self: not self.open and self.committed)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(1, len(self.committed)))
        self.keep_only(self.committed[:keep])
        self.log.resume(LogOffset(self.end), StoreTimeMs(self.store_time))
        self.flushed = self.end
        self.tell_places()

    @precondition(lambda self: not self.open)
    @rule(clean=st.booleans())
    def load_again(self, clean: bool) -> None:
        """Stop, or be killed: everything that was committed is there."""
        if clean:
            self.log.close()
        else:
            self.log.files.close()
        self.start(self.disk)  # the page cache, and what is not durable of it, outlives the process
        self.continue_where_the_log_ends()
        self.flushed = self.end

    @precondition(lambda self: not self.open)
    @rule(seed=st.integers(0, 1 << 30))
    def lose_power(self, seed: int) -> None:
        """Everything that was flushed is there, in order; of the rest a beginning may be."""
        must = [kept for kept in self.committed if kept.offset + kept.size <= self.flushed]
        self.log.files.close()
        self.lives += 1
        self.disk.power_cut(self.root, Random(seed))
        shutil.rmtree(self.folder / str(self.lives - 1))
        self.start(FaultyDisk(ProcessFiles(), self.root, seed=self.lives))
        scan, _ = contents(self.log, self.log.min_offset, check_record=True)
        found = sum(kept.offset + kept.size <= scan.offset for kept in self.committed)
        assert found >= len(must), "a flushed record is lost"
        self.keep_only(self.committed[:found])
        self.continue_where_the_log_ends()
        self.flushed = self.end

    def keep_only(self, committed: list[Kept]) -> None:
        """Cut the model."""
        self.committed = committed
        self.end = self.batch_end = (
            committed[-1].offset + committed[-1].size if committed else self.first
        )
        self.flushed = min(self.flushed, self.end)
        self.store_time = max([NOW_MS, *(kept.store_time for kept in committed)])
        self.places = Counter()
        for kept in committed:
            if kept.queue_offset or not self.is_prepared(kept):
                self.places[QueueKey(kept.topic.decode(), kept.queue_id)] = kept.queue_offset + 1
        self.committed_places = self.places.copy()

    def is_prepared(self, kept: Kept) -> bool:
        record = self.log.files.view(kept.offset, kept.size)
        return record is not None and bool(record[39] & PREPARED)

    def tell_places(self) -> None:
        self.log.offsets.clear()
        for queue, offset in self.places.items():
            self.log.offsets.restore(queue, QueueOffset(offset))

    def continue_where_the_log_ends(self) -> None:
        scan, store_time = contents(self.log, self.log.min_offset, check_record=True)
        assert scan.offset - self.end in (
            0,
            FILE_SIZE - self.end % FILE_SIZE,
        ), "a blank may stand behind the last record, nothing else"
        self.log.resume(LogOffset(self.end), StoreTimeMs(max(store_time, NOW_MS)))
        self.tell_places()

    @invariant()
    def the_log_is_the_list(self) -> None:
        assert (self.log.end_offset, self.log.flushed_offset) == (self.end, self.flushed)
        assert dict(self.log.offsets) == {
            queue: offset for queue, offset in self.places.items() if offset
        }
        scan = self.log.scan(self.log.min_offset)
        found = [
            Kept(
                each.log_offset,
                each.size,
                each.topic(),
                each.queue_id,
                each.queue_offset,
                each.store_time_ms,
                each.body(),
            )
            for each in scan
        ]
        assert found == self.committed
        assert scan.problem is None

    @invariant()
    def files_follow_each_other(self) -> None:
        files = self.log.files.files
        assert [file.start for file in files] == [
            self.first + FILE_SIZE * number for number in range(len(files))
        ]
        assert all(file.path.stat().st_size == FILE_SIZE for file in files)


TestCommitLog = CommitLogMachine.TestCase
TestCommitLog.settings = settings(deadline=None, max_examples=100, stateful_step_count=40)
