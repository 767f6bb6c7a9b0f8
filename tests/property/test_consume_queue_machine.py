"""A consume queue under any order of puts, commits, cuts, cleanings and restarts is the list that
it should be.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.store.consume_queue import ENTRY, ENTRY_SIZE, ConsumeQueue
from orbitmq.store.consume_queue_ext import ConsumeQueueExt, ExtUnit
from orbitmq.store.entry_queue import QueueState
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.types import QueueOffset
from support.store.indexes import UnsyncedLayer

PER_FILE = 4


class ConsumeQueueMachine(RuleBasedStateMachine):
    """The model: a list of entries, where the first file begins, and how many entries are
    written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-queue-")
        self.files = OpenFiles(UnsyncedLayer(), open_files_max=2)
        self.log_end = 0
        self.log_min = 0
        self.start = 0  # the offset of entries[0]
        self.entries: list[tuple[int, int, int, bytes]] = []  # log offset, size, tags code, bits
        self.written = 0
        self.first_file = 0
        self.has_files = False
        self.queue = self.open()

    def open(self, state: QueueState | None = None) -> ConsumeQueue:
        root = Path(self.folder.name)
        ext = ConsumeQueueExt(QueueFiles(self.files, str(root / "ext"), 64))
        queue = ConsumeQueue(
            QueueFiles(self.files, str(root / "queue"), PER_FILE * ENTRY_SIZE), ext
        )
        if state is None:
            queue.recover(self.log_end)
        else:
            assert queue.files.proven(state.entries) == len(state.entries.checksums)
            assert state.units is None or queue.has_units(state.units)
            queue.adopt(state)
        queue.correct_min(self.log_min)
        return queue

    @initialize(start=st.sampled_from([0, 0, 1, 4, 7]))
    def begin(self, start: int) -> None:
        self.start = start
        self.first_file = start - start % PER_FILE

    @rule(
        count=st.integers(1, 6),
        gap=st.integers(0, 50),
        size=st.integers(1, 100),
        bits=st.binary(max_size=10),
    )
    def put(self, count: int, gap: int, size: int, bits: bytes) -> None:
        for _ in range(count):
            entry = (self.log_end + gap, size, -len(self.entries), bits)
            self.queue.put(*entry[:3], self.start + len(self.entries), 7, bits)
            self.entries.append(entry)
            self.log_end += gap + size

    @rule()
    def commit(self) -> None:
        self.queue.commit()
        self.written = len(self.entries)

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def dispatch_again(self, data: st.DataObject) -> None:
        begin = data.draw(st.integers(0, len(self.entries) - 1))
        for number in range(begin, len(self.entries)):
            offset, size, code, bits = self.entries[number]
            self.queue.put(offset, size, code, self.start + number, 7, bits)

    @rule(proven=st.sampled_from([True, True, True, False]))
    def crash(self, proven: bool) -> None:
        self.entries = self.entries[: self.written]
        self.files.close()
        self.queue = self.open(self.queue.state if proven else None)

    @rule()
    def fail_to_write(self) -> None:
        self.entries = self.entries[: self.written]
        self.queue.forget_pending()

    @rule(data=st.data())
    def lose_the_end_of_the_log(self, data: st.DataObject) -> None:
        ends = {
            self.log_min,
            self.log_end,
            *(offset + more for offset, *_ in self.entries for more in (0, 1)),
        }
        self.log_end = data.draw(
            st.sampled_from(sorted(end for end in ends if end >= self.log_min))
        )
        self.queue.truncate_physical(self.log_end)
        self.entries = [entry for entry in self.entries[: self.written] if entry[0] < self.log_end]
        self.written = len(self.entries)
        if self.entries:
            self.log_end = max(self.log_end, self.entries[-1][0] + self.entries[-1][1])
        if (
            self.has_files and self.start + self.written < self.first_file
        ):  # offsets never go back behind a file that was there
            self.start, self.entries, self.written = self.first_file, [], 0

    @rule(data=st.data(), delete=st.booleans())
    def lose_the_beginning_of_the_log(self, data: st.DataObject, delete: bool) -> None:
        self.commit()
        self.log_min = data.draw(st.integers(self.log_min, self.log_end))
        if delete:
            self.queue.delete_before(self.log_min)
            while (
                self.end - self.first_file > PER_FILE
                and self.log_offset(self.first_file + PER_FILE - 1) < self.log_min
            ):
                self.first_file += PER_FILE
        else:
            self.queue.correct_min(self.log_min)

    @property
    def end(self) -> int:
        """The offset behind the last written entry; that of a queue that never had one is 0."""
        return self.start + self.written if self.has_files else 0

    def log_offset(self, offset: int) -> int:
        return self.entries[offset - self.start][0] if offset >= self.start else -1

    @invariant()
    def is_the_list(self) -> None:
        self.has_files = self.has_files or self.written > 0
        queue = self.queue
        assert queue.max_offset == self.end
        numbers = range(max(0, self.first_file - self.start), self.written)
        known = [number for number in numbers if self.entries[number][0] >= self.log_min]
        if self.written:
            assert queue.min_offset <= (self.start + known[0] if known else self.end)
        span = queue.entries(queue.min_offset, 1000)
        found = list(ENTRY.iter_unpack(span))
        assert len(found) == queue.max_offset - queue.min_offset
        for number, (log_offset, size, address) in enumerate(found, queue.min_offset - self.start):
            assert number >= 0
            expected = self.entries[number]
            assert (log_offset, size) == expected[:2]
            assert queue.ext_unit(address) == ExtUnit(expected[2], 7, expected[3])
            entry = queue.get(QueueOffset(self.start + number))
            assert entry == (log_offset, size, address)
        assert self.files.open_count <= 2

    @invariant()
    def has_the_checksums_of_its_files(self) -> None:
        state = self.queue.state
        if state is not None:
            assert self.queue.files.proven(state.entries) == len(state.entries.checksums)

    @invariant()
    def has_the_minimum_of_the_log(self) -> None:
        if self.written and self.queue.max_offset > self.queue.min_offset:
            entry = self.queue.get(self.queue.min_offset)
            assert entry is not None
            assert (
                self.queue.min_offset == self.start
                or entry.log_offset >= self.log_min
                or self.queue.min_offset == self.first_file
            )

    def teardown(self) -> None:
        self.files.close()
        self.folder.cleanup()


TestConsumeQueueMachine = ConsumeQueueMachine.TestCase
TestConsumeQueueMachine.settings = settings(max_examples=60, stateful_step_count=30)
