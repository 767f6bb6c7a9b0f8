"""Statistics against lists: every window is the difference of what a list of all additions says at
its grid of moments.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.broker.observability.stats import Counter, StatName, Stats
from orbitmq.protocol.bodies.stats import StatsWindow

START_MS = 1_700_000_000_123
IDLE_MS = 1_800_000
MINUTE, HOUR, DAY = (
    (10_000, 7),
    (600_000, 7),
    (3_600_000, 25),
)  # milliseconds between samples, and how many of them
KEYS = [
    (StatName.GROUP_GET_NUMS, f"{topic}@{group}") for topic in ("T", "U") for group in ("g", "h")
]
KEYS.append((StatName.TOPIC_PUT_SIZE, "T"))
STEPS_MS = [1, 9_999, 10_000, 25_000, 600_000, 2_700_000, 7_200_000]


class Life:
    """What is known of a key since it was made or forgotten."""

    def __init__(self, born_ms: int) -> None:
        self.born_ms = born_ms
        self.added: list[tuple[int, int, int]] = []  # when, value, times

    def window(self, now_ms: int, interval_ms: int, samples_max: int) -> StatsWindow:
        first = (self.born_ms - START_MS) // interval_ms + 1
        last = (now_ms - START_MS) // interval_ms
        if last < first:
            return StatsWindow()
        moments = [START_MS + number * interval_ms for number in range(first - 1, last + 1)][
            -samples_max:
        ]

        def until(at_ms: int) -> tuple[int, int]:
            added = [(value, times) for when_ms, value, times in self.added if when_ms < at_ms]
            return sum(value for value, _ in added), sum(times for _, times in added)

        (low, low_times), (high, high_times) = until(moments[0]), until(moments[-1])
        total, times = high - low, high_times - low_times
        return StatsWindow(
            total, total * 1000.0 / (moments[-1] - moments[0]), total / times if times else 0.0
        )

    def is_idle(self, now_ms: int) -> bool:
        last_ms = max([self.born_ms, *(when_ms for when_ms, _, _ in self.added)])
        noticed_ms = START_MS + ((last_ms - START_MS) // MINUTE[0] + 1) * MINUTE[0]
        return noticed_ms < now_ms - IDLE_MS


class StatsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.stats = Stats(START_MS, idle_ms_max=IDLE_MS)
        self.held: dict[tuple[StatName, str], Counter] = {}
        self.lives: dict[tuple[StatName, str], Life] = {}

    @rule(key=st.sampled_from(KEYS))
    def ask(self, key: tuple[StatName, str]) -> None:
        self.held[key] = self.stats.counter(*key)
        self.lives.setdefault(key, Life(self.now_ms))

    @rule(key=st.sampled_from(KEYS), value=st.integers(1, 1_000_000), times=st.integers(0, 3))
    def add(self, key: tuple[StatName, str], value: int, times: int) -> None:
        if key not in self.held:
            self.ask(key)
        self.held[key].add(value, times)
        self.lives.setdefault(key, Life(self.now_ms)).added.append((self.now_ms, value, times))

    @rule(key=st.sampled_from(KEYS))
    def let_go(self, key: tuple[StatName, str]) -> None:
        self.held.pop(key, None)

    @rule(passed_ms=st.sampled_from(STEPS_MS))
    def time_passes(self, passed_ms: int) -> None:
        until_ms = self.now_ms + passed_ms
        while self.stats.next_ms <= until_ms:
            self.now_ms = self.stats.next_ms
            self.stats.tick(self.now_ms)
            if (self.now_ms - START_MS) % HOUR[0] == 0:
                self.lives = {
                    key: life for key, life in self.lives.items() if not life.is_idle(self.now_ms)
                }
        self.now_ms = until_ms

    @rule(
        key=st.sampled_from(KEYS),
        value=st.integers(1, 1_000),
        window=st.sampled_from([MINUTE, HOUR, DAY]),
    )
    def key_is_busy_for_longer_than_a_window(
        self, key: tuple[StatName, str], value: int, window: tuple[int, int]
    ) -> None:
        interval_ms, samples_max = window
        step_ms = min(interval_ms, IDLE_MS // 3)
        for _ in range((samples_max + 2) * interval_ms // step_ms):
            self.add(key, value, 1)
            self.time_passes(step_ms)

    @rule(topic=st.sampled_from("TU"))
    def topic_is_deleted(self, topic: str) -> None:
        self.stats.delete_topic(topic)
        self.lives = {
            key: life for key, life in self.lives.items() if key[1].split("@")[0] != topic
        }

    @rule(group=st.sampled_from("gh"))
    def group_is_deleted(self, group: str) -> None:
        self.stats.delete_group(group)
        self.lives = {
            key: life for key, life in self.lives.items() if not key[1].endswith("@" + group)
        }

    @invariant()
    def every_view_is_what_the_list_says(self) -> None:
        for key in KEYS:
            view = self.stats.view(*key)
            life = self.lives.get(key)
            assert (view is None) == (life is None), key
            if view is not None and life is not None:
                windows = [life.window(self.now_ms, *window) for window in (MINUTE, HOUR, DAY)]
                assert [view.minute, view.hour, view.day] == windows


TestStats = StatsMachine.TestCase
TestStats.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
