"""A slave that followed its master's delivery progress becomes the master: no delayed message is
lost, whenever the old master died; and if the progress was the last, none is delivered twice, but
for those of the timer's slot that was due then.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset
from support.broker.delay import DelayRoom

HOUR_MS = 3_600_000
DELAYS_MS = st.integers(1, 20_000)
LEVELS = st.integers(1, 3)


class Pair:
    """A master and a slave that has its log, each with levels and timer."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orbitmq-delay-failover-"))
        self.master = DelayRoom(self.folder / "m")
        self.slave = DelayRoom(self.folder / "s")
        self.sent: set[bytes] = set()

    def send(self, number: int, delay_ms: int, level: int) -> None:
        """Send a timed and a delayed message."""
        timed, delayed = b"timed%d" % number, b"delayed%d" % number
        self.master.send(timed, TIMER_DELIVER_MS=str(self.master.clock.now_ms() + delay_ms))
        self.master.send(delayed, DELAY=str(level))
        self.sent |= {timed, delayed}

    def pass_ms(self, elapsed_ms: int) -> None:
        self.master.pass_ms(elapsed_ms)
        self.slave.clock.advance_ms(elapsed_ms)

    def follow(self, *, is_slave_flushed: bool = True) -> None:
        """Let the slave have the log and the progress, as replication and sync do."""
        self.master.store.flush()  # a check point waits for it
        self.master.save()
        copy_log(self.master.store, self.slave.store)
        log_end = self.master.store.log.end_offset
        master, slave = self.master.later, self.slave.later
        assert master.timed is not None
        assert slave.timed is not None
        slave.levels.take_over(master.levels.content(), log_end)
        slave.timed.timer.take_over(master.timed.files.check, log_end)
        if is_slave_flushed:
            self.slave.store.flush()
        self.slave.save()

    def fail_over(self, *, restarts: bool) -> None:
        """Let the slave deliver everything, after a restart or without."""
        self.slave.store.log.offsets.clear()  # they may be of its own time as a master
        if restarts:
            self.slave.stop()
            self.slave.start()
        self.slave.pass_ms(60_000)

    def check_delivered(self, *, is_progress_last: bool) -> None:
        """Look at what the new master has."""
        counts, master = self.slave.counts(), self.master.later.timed
        assert set(counts) == self.sent
        if not is_progress_last:
            return
        assert master is not None
        due_ms = master.files.check.read_time_ms
        in_due_slot = {body for body, time_ms in self.master.delivered() if time_ms >= due_ms}
        twice = {body for body, count in counts.items() if count > 1}
        assert max(counts.values()) <= 2
        assert twice <= {body for body in in_due_slot if body.startswith(b"timed")}

    def close(self) -> None:
        for room in (self.master, self.slave):
            room.stop()
        shutil.rmtree(self.folder)


def copy_log(master: MessageStore, slave: MessageStore) -> None:
    while slave.log.end_offset < master.log.end_offset:
        begin = slave.log.end_offset
        file = master.log.files.find(begin)
        assert file is not None
        end = min(file.end, master.log.end_offset)
        data = bytes(file.view()[begin - file.start : end - file.start])
        slave.receive(LogOffset(begin), data)


@settings(max_examples=25, deadline=None)
@given(
    messages=st.lists(st.tuples(DELAYS_MS, LEVELS), min_size=1, max_size=6),
    before_ms=st.integers(0, 15_000),
    after_ms=st.sampled_from([0, 0, 500, 4_000]),
    is_log_copied=st.booleans(),
    restarts=st.booleans(),
)
def test_no_delayed_message_is_lost_by_a_failover(
    messages: list[tuple[int, int]],
    before_ms: int,
    after_ms: int,
    is_log_copied: bool,
    restarts: bool,
) -> None:
    pair = Pair()
    for number, message in enumerate(messages):
        pair.send(number, *message)
        pair.follow()
        pair.pass_ms(before_ms // len(messages))
    pair.follow()
    pair.pass_ms(after_ms)
    if is_log_copied:
        copy_log(pair.master.store, pair.slave.store)
    pair.fail_over(restarts=restarts)
    pair.check_delivered(is_progress_last=after_ms == 0)
    pair.close()


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_master_that_was_demoted_and_promoted_again_loses_nothing(data: Any) -> None:
    """Both have been masters: what the one took in beyond the other's progress is taken in again."""
    pair = Pair()
    for number in range(data.draw(st.integers(1, 3))):
        pair.send(number, data.draw(DELAYS_MS), data.draw(LEVELS))
    pair.pass_ms(data.draw(st.integers(0, 10_000)))
    pair.follow()
    pair.master, pair.slave = pair.slave, pair.master  # the old slave delivers now
    pair.master.store.log.offsets.clear()
    pair.master.run()
    for number in range(10, 10 + data.draw(st.integers(0, 2))):
        pair.send(number, data.draw(DELAYS_MS), data.draw(LEVELS))
    pair.pass_ms(data.draw(st.integers(0, 10_000)))
    pair.follow()
    pair.fail_over(restarts=data.draw(st.booleans()))
    counts = pair.slave.counts()
    assert set(counts) == pair.sent
    assert {counts[body] for body in counts if body.startswith(b"delayed")} == {1}
    assert max(counts.values()) <= 3  # once more with each failover, in the slot that is due
    pair.close()


def test_progress_beyond_the_recovered_log_does_not_count() -> None:
    """The power fails before the copies are flushed: they are delivered again."""
    pair = Pair()
    pair.send(1, 1_000, 1)
    pair.follow()
    pair.pass_ms(5_000)
    pair.follow(is_slave_flushed=False)
    pair.slave.kill(forgets=True)
    pair.slave.start()
    pair.slave.pass_ms(60_000)
    assert set(pair.slave.counts()) == pair.sent
    pair.close()
