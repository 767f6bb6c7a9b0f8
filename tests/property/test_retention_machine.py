"""The retention against a model of plain lists: messages put, files rolled, rounds, restarts; what
can be read is what the model says.

Times are multiples of ten seconds and reserved times are not, so nothing expires in the middle of a
round.
"""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.message.record_read import RecordCursor
from orbitmq.store.retention import FIRST_ROUND_MS, MANUAL_ROUNDS
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset
from support.store.retention import HOUR_MS, LOG_FILE_SIZE, NEVER, SmallStore

QUEUES = [QueueKey("a", 0), QueueKey("a", 1), QueueKey("b", 0), QueueKey("rmq_sys_c", 0)]
STEP_MS = 10_000
ALWAYS = tuple(range(24))
RESERVED_MS = HOUR_MS // 4 + STEP_MS // 2
BATCH_MAX = 3
bodies = st.builds(
    lambda byte, size: bytes([byte]) * size, st.integers(0, 255), st.sampled_from([0, 200, 300])
)
times = st.integers(1, 7).map(lambda number: number * HOUR_MS // 20 + STEP_MS // 2)


class Put(NamedTuple):
    log_offset: int
    size: int
    time_ms: int
    body: bytes
    key: str


class RetentionMachine(RuleBasedStateMachine):
    """Three messages or more in a file of the log, four in one of a queue; a round deletes three
    files at most.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-retention-")
        self.messages: dict[QueueKey, list[Put]] = {queue: [] for queue in QUEUES}
        self.minima = dict.fromkeys(QUEUES, 0)
        self.written_ms: dict[int, int] = {}  # by the number of the file, all that the log has
        self.leftover: int | None = None  # the number of a file that could not be unlinked
        self.manual_rounds = 0

    @initialize(
        at_all_hours=st.booleans(),
        forcibly=st.booleans(),
        protect=st.booleans(),
        reserve=st.dictionaries(st.sampled_from(["a", "b", "rmq_sys_c"]), times),
        wanted=st.sets(st.sampled_from(QUEUES)),
    )
    def open(
        self,
        at_all_hours: bool,
        forcibly: bool,
        protect: bool,
        reserve: dict[str, int],
        wanted: set[QueueKey],
    ) -> None:
        self.store = SmallStore(
            Path(self.folder.name),
            reserved_ms=RESERVED_MS,
            delete_hours=ALWAYS if at_all_hours else NEVER,
            clean_forcibly=forcibly,
            protect_unconsumed=protect,
            delete_files_max=BATCH_MAX,
        )
        self.store.reserve = reserve
        self.store.consumed = dict.fromkeys(wanted, 0)
        self.store.tick()

    @rule(queue=st.sampled_from(QUEUES), body=bodies, count=st.integers(1, 6))
    def put(self, queue: QueueKey, body: bytes, count: int) -> None:
        for _ in range(count):
            key = f"key{self.store.log.end_offset}"
            appended = self.store.put(*queue, body)
            assert appended.queue_offset == len(self.messages[queue])
            self.messages[queue].append(
                Put(appended.offset, appended.size, self.store.clock.now_ms(), body, key)
            )
            self.written_ms[appended.offset // LOG_FILE_SIZE] = self.store.clock.now_ms()

    @rule(steps=st.integers(1, 200))
    def wait(self, steps: int) -> None:
        self.store.clock.advance_ms(steps * STEP_MS)

    @rule(queue=st.sampled_from(QUEUES), data=st.data())
    def consume(self, queue: QueueKey, data: st.DataObject) -> None:
        before = self.store.consumed.get(
            queue, self.minima[queue]
        )  # a new group begins with what is there
        self.store.consumed[queue] = data.draw(
            st.integers(before, max(before, len(self.messages[queue])))
        )

    @rule()
    def ask_for_deletion(self) -> None:
        self.store.retention.delete_expired_now()
        self.manual_rounds = MANUAL_ROUNDS

    @rule(
        ratio=st.sampled_from([0.5, 0.8, 0.87, 0.95]),
        unlink_fails=st.booleans(),
        clean_unused=st.booleans(),
    )
    def round(self, ratio: float, unlink_fails: bool, clean_unused: bool) -> None:
        self.store.fill_disk(ratio)
        self.store.clock.advance_ms(FIRST_ROUND_MS)
        if clean_unused:
            self._clean_unused_queues()
        if (
            unlink_fails
            and not clean_unused
            and (self.leftover is not None or self._may_delete_next(ratio))
        ):
            self.store.disk.fail("unlink", errno.EIO)
            if self.leftover is None:
                self.leftover = self._delete_next()
        else:
            self.leftover = None
            for _ in range(BATCH_MAX):
                if not self._may_delete_next(ratio):
                    break
                self._delete_next()
        self.manual_rounds = max(self.manual_rounds - (self._has_reason(ratio)), 0)
        self._raise_minima()
        self.store.run(STEP_MS // 2)
        self.store.clock.advance_ms(STEP_MS - STEP_MS // 2)
        assert (self.store.retention.write_refusal is not None) == (ratio > 0.90)

    @precondition(lambda self: self.leftover is None)  # it would be in the log again
    @rule()
    def restart(self) -> None:
        self.store.fill_disk(0.5)  # on a full disk the first round is at once
        self.store.restart()
        self.manual_rounds = 0
        self._raise_minima()
        self.store.run(STEP_MS // 2)  # what the first tick begins may take a few
        self.store.clock.advance_ms(STEP_MS - STEP_MS // 2)

    @invariant()
    def what_can_be_read_is_what_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        log, record = self.store.log, RecordCursor()
        assert log.min_offset == self._log_min()
        assert self.store.names() == sorted(
            {*self.written_ms, *([] if self.leftover is None else [self.leftover])}
        )
        for key, messages in self.messages.items():
            queue = self.store.queues.plain.find(*key)
            assert (queue is None) == (not messages)
            if queue is None:
                continue
            assert (queue.min_offset, queue.max_offset) == (self.minima[key], len(messages))
            for offset, put in enumerate(messages):
                entry = queue.get(QueueOffset(offset))
                content = log.read(LogOffset(put.log_offset), put.size)
                assert (content is None) == (put.log_offset < self._log_min())
                if offset < self.minima[key]:
                    assert entry is None
                else:
                    assert entry is not None
                    assert content is not None
                    assert (entry.log_offset, entry.size) == (put.log_offset, put.size)
                    assert record.read(content, 0, put.size) == put.size
                    assert (record.body(), record.queue_offset) == (put.body, offset)
                    assert (
                        put.log_offset
                        in self.store.index.query(key.topic, put.key, 100, 0, 1 << 62).offsets
                    )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.queues.close()
            self.store.index.close()
            self.store.log.files.close()
        self.folder.cleanup()

    # -- the model

    def _log_min(self) -> int:
        return min(self.written_ms, default=0) * LOG_FILE_SIZE

    def _has_reason(self, ratio: float) -> bool:
        return ratio > 0.75 or self.store.config.delete_hours == ALWAYS or self.manual_rounds > 0

    def _may_delete_next(self, ratio: float) -> bool:
        """Whether the oldest file of the log may go, now and with a disk that full."""
        if len(self.written_ms) < 2 or not self._has_reason(ratio):
            return False
        number, written_ms = min(self.written_ms.items())
        config = self.store.config
        if (
            not (ratio > 0.85 and config.clean_forcibly)
            and self.store.clock.now_ms() < written_ms + RESERVED_MS
        ):
            return False
        if not config.protect_unconsumed or ratio > 0.85:
            return True
        return not any(
            put.log_offset // LOG_FILE_SIZE == number
            and offset >= max(self.store.consumed[queue], self.minima[queue])
            for queue, messages in self.messages.items()
            if queue in self.store.consumed
            for offset, put in enumerate(messages)
        )

    def _clean_unused_queues(self) -> None:
        """Ask for it; it comes before the round, for jobs wait for each other."""
        self.store.retention.clean_unused_queues()
        for queue, messages in self.messages.items():
            if (
                messages
                and not queue.topic.startswith("rmq_sys_")
                and messages[-1].log_offset < self._log_min()
            ):
                self.messages[queue], self.minima[queue] = [], 0
                self.store.consumed.pop(queue, None)

    def _delete_next(self) -> int:
        number = min(self.written_ms)
        del self.written_ms[number]
        return number

    def _raise_minima(self) -> None:
        """Every queue begins with its first message that the log has and that its topic still
        keeps; never before where it began.
        """
        now_ms, config = self.store.clock.now_ms(), self.store.config
        for queue, messages in self.messages.items():
            reserved_ms = RESERVED_MS
            if not queue.topic.startswith("rmq_sys_"):
                reserved_ms = self.store.reserve.get(queue.topic, RESERVED_MS)
            while (first := self.minima[queue]) < len(messages):
                expired = (
                    reserved_ms < RESERVED_MS and now_ms >= messages[first].time_ms + reserved_ms
                )
                if expired and config.protect_unconsumed:
                    expired = first < self.store.consumed.get(queue, len(messages))
                if not expired and messages[first].log_offset >= self._log_min():
                    break
                self.minima[queue] += 1


TestRetentionMachine = RetentionMachine.TestCase
TestRetentionMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
