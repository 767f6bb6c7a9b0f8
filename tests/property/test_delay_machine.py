"""Levels and timer against plain models, on a store whose process is killed, or whose power goes,
between any two calls to the disk,

while the wall clock is set forward and back. Nothing here runs in a thread of its own: what the
disk has when the power goes follows from the steps alone.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.store.config import DELAY_LEVELS_MS, FlushMode
from support.broker.delay import DelayRoom, timer_settings
from support.broker.manual_worker import Killed
from support.store.stores import InlineFlusher

FAR_MS = 120_000
DAY_MS = 86_400_000
JUMPS_MS = [-30 * DAY_MS, -20_000, -3_000, -400, 400, 3_000, 20_000, 30 * DAY_MS]


class Sent(NamedTuple):
    """A message of the model: when it is due, by the wall clock and the monotonic one, where its
    record ends, and its level.
    """

    due_ms: int
    due_monotonic_ms: int
    end: int
    level: int = 0


class DelayMachine(RuleBasedStateMachine):
    """`sent` is what was stored; `recalls` where the records end that take messages back."""

    @initialize(flush_mode=st.sampled_from(FlushMode))
    def begin(self, flush_mode: FlushMode) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orbitmq-delay-"))
        sizes = timer_settings(timer_roll_window_slot=4, mapped_file_size_timer_log=600)
        self.room = DelayRoom(self.folder, sizes, flush_mode=flush_mode, make_flusher=InlineFlusher)
        self.sent: dict[bytes, Sent] = {}
        self.recalls: dict[bytes, int] = {}
        self.came: set[bytes] = set()  # what was seen to be delivered, and was not early
        self.latest_ms = self.room.clock.now_ms()  # since then
        self.number = 0
        self.power_cuts = 0

    def _body(self) -> bytes:
        self.number += 1
        return b"%04d" % self.number

    # -- messages

    @rule(level=st.integers(1, 3), count=st.integers(1, 3))
    def send_level(self, level: int, count: int) -> None:
        for _ in range(count):
            body = self._body()
            end = self.room.send(body, DELAY=str(level))
            self.sent[body] = self._sent(
                self.room.clock.now_ms() + DELAY_LEVELS_MS[level - 1], end, level
            )

    @rule(
        delay_ms=st.sampled_from(
            [1, 2, 400, 999, 1_000, 1_001, 3_500, 4_000, 6_700, 13_000, 29_999]
        ),
        count=st.integers(1, 3),
    )
    def send_timed(self, delay_ms: int, count: int) -> None:
        for number in range(count):
            body, due_ms = self._body(), self.room.clock.now_ms() + delay_ms
            names = ({"TIMER_DELAY_MS": str(delay_ms)}, {"TIMER_DELIVER_MS": str(due_ms)})[
                number % 2
            ]
            self.sent[body] = self._sent(due_ms, self.room.send(body, **names))

    def _sent(self, due_ms: int, end: int, level: int = 0) -> Sent:
        return Sent(
            due_ms, self.room.clock.monotonic_ms() + due_ms - self.room.clock.now_ms(), end, level
        )

    @rule(number=st.integers(0, 30))
    def recall(self, number: int) -> None:
        first_ms = self.room.clock.now_ms()
        begins = {
            body: (sent.due_ms - 1) // 1000 * 1000
            for body, sent in self.sent.items()
            if not sent.level
        }
        open_ = [
            body for body, begin_ms in begins.items() if first_ms <= begin_ms < first_ms + DAY_MS
        ]
        body = open_[number % len(open_)] if open_ else None
        if body is not None and body not in self.recalls and body not in self.room.counts():
            at_ms = (self.sent[body].due_ms - 1) // 1000 * 1000 + 1
            self.recalls[body] = self.room.send(
                body, TIMER_DELIVER_MS=str(at_ms), TIMER_DEL_UNIQKEY=body.decode()
            )

    # -- time

    @rule(elapsed_ms=st.sampled_from([1, 10, 499, 1_000, 1_500, 4_000, 11_000]))
    def let_time_pass(self, elapsed_ms: int) -> None:
        self.room.pass_ms(elapsed_ms, 499)

    @rule(by_ms=st.sampled_from(JUMPS_MS))
    def set_the_clock(self, by_ms: int) -> None:
        if self.room.store.config.flush_mode is FlushMode.SYNC:
            # what came so far is seen when the disk has it: before the clock says that it was early
            self.room.store.flush()
            self.nothing_comes_early_or_from_nowhere()
        self.room.clock.set_wall_ms(self.room.clock.now_ms() + by_ms)

    @rule(elapsed_ms=st.sampled_from([1, 700, 6_000]))
    def stand_still(self, elapsed_ms: int) -> None:
        self.room.clock.advance_ms(elapsed_ms)

    @rule(rounds=st.integers(1, 3))
    def work(self, rounds: int) -> None:
        self.room.run(rounds)

    # -- disks and deaths

    @rule()
    def flush(self) -> None:
        self.room.store.flush()

    @rule()
    def save(self) -> None:
        self.room.save()

    @rule()
    def restart(self) -> None:
        self.room.stop()
        self.room.start()

    @rule(window_slots=st.sampled_from([4, 9, 25]), loses_wheel=st.booleans())
    def restart_with_another_window(self, window_slots: int, loses_wheel: bool) -> None:
        self.room.stop()
        if loses_wheel:
            (self.folder / "store/timerwheel").unlink()
            shutil.rmtree(self.folder / "store/timerlog", ignore_errors=True)
        self.room.settings.timer_roll_window_slot = window_slots
        self.room.start()

    @rule(forgets=st.booleans())
    def kill(self, forgets: bool) -> None:
        self.room.kill(forgets=forgets)
        self._begin_again(forgets)

    @rule(
        changes=st.integers(0, 12),
        elapsed_ms=st.sampled_from([0, 1_000, 5_000]),
        forgets=st.booleans(),
    )
    def die_at_work(self, changes: int, elapsed_ms: int, forgets: bool) -> None:
        self.room.clock.advance_ms(elapsed_ms)
        self.room.disk.changes_left = changes
        try:
            self.room.run(5)
            self.room.save()
        except Killed:
            pass
        self.room.kill(forgets=forgets)
        self._begin_again(forgets)

    def _begin_again(self, forgot: bool) -> None:
        """What the log lost was never sent."""
        self.room.start()
        self.power_cuts += forgot
        end = self.room.store.log.end_offset
        self.sent = {body: sent for body, sent in self.sent.items() if sent.end <= end}
        self.recalls = {body: at for body, at in self.recalls.items() if at <= end}

    # -- what must hold

    @invariant()
    @precondition(lambda self: hasattr(self, "room"))
    def nothing_comes_early_or_from_nowhere(self) -> None:
        clock = self.room.clock
        self.latest_ms = max(self.latest_ms, clock.now_ms())
        for body in self.room.counts().keys() - self.came:
            assert body in self.sent, f"{body!r} was not sent"
            sent = self.sent[body]
            is_over = (
                bool(sent.level) and clock.monotonic_ms() >= sent.due_monotonic_ms
            )  # a level is a delay, not a time
            assert self.latest_ms >= sent.due_ms or is_over, (
                f"{body!r} is early at {self.latest_ms}: {sent}"
            )
            self.came.add(body)
        self.latest_ms = clock.now_ms()

    def teardown(self) -> None:
        if hasattr(self, "room"):
            try:
                self._see_the_end()
            finally:
                self.room.stop()
                shutil.rmtree(self.folder)

    def _see_the_end(self) -> None:
        last_ms = max((sent.due_ms for sent in self.sent.values()), default=0)
        self.room.pass_ms(FAR_MS, 997)
        if self.room.clock.now_ms() < last_ms:  # a message of a future that was taken back
            self.room.clock.set_wall_ms(last_ms)
            self.room.pass_ms(FAR_MS, 997)
        self.nothing_comes_early_or_from_nowhere()
        counts = self.room.counts()
        for body in self.sent:
            assert counts[body] >= 1 or body in self.recalls, f"{body!r} is lost: {self.sent[body]}"
            assert not (counts[body] and body in self.recalls), (
                f"{body!r} came although it was taken back"
            )
        if not self.power_cuts:
            assert counts.total() == len(counts), (
                f"these came twice: {[body for body, count in counts.items() if count > 1]}"
            )
        for level in (1, 2, 3):
            first = list(
                dict.fromkeys(
                    each.body
                    for each in self.room.delivered()
                    if self.sent[each.body].level == level
                )
            )
            assert first == sorted(first), f"level {level} is out of order"
        assert self.room.timer.behind == 0
        assert self.room.later.timed is not None
        assert len(self.room.later.timed.files.wheel) == 0


TestDelay = DelayMachine.TestCase
TestDelay.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
