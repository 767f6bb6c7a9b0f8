"""Statistics: windows against a recorded RocketMQ 5.5.0 broker, removal of keys, limits."""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker.observability import stats as stats_module
from orbitmq.broker.observability.stats import OTHER_KEY, Counter, StatName, Stats, stat_key
from orbitmq.protocol.bodies.stats import StatsView, StatsWindow

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def run(stats: Stats, until_ms: int) -> None:
    """Tick whenever a sample is due, as the broker does."""
    while stats.next_ms <= until_ms:
        stats.tick(stats.next_ms)


def test_a_statistic_without_samples_has_zeros() -> None:
    stats = Stats(0)
    stats.counter(StatName.TOPIC_PUT_NUMS, "st").add(10)
    view = stats.view("TOPIC_PUT_NUMS", "st")
    assert view is not None
    zero = b'{"avgpt":0.0,"sum":0,"tps":0.0}'
    assert view.encode() == b'{"statsDay":%s,"statsHour":%s,"statsMinute":%s}' % (zero, zero, zero)


def test_unknown_names_and_keys_have_no_view() -> None:
    stats = Stats(0)
    stats.counter(StatName.TOPIC_PUT_NUMS, "st")
    assert stats.view("TOPIC_PUT_NUMS", "other") is None
    assert stats.view("NO_SUCH_NAME", "st") is None
    assert stats.tps(StatName.TOPIC_PUT_SIZE, "st") == 0.0


def test_windows_match_a_recorded_broker() -> None:
    """Ten puts of 297 bytes, later five of 247, against the replies of Apache RocketMQ at the same
    times.
    """
    stats = Stats(0)
    nums, size = (
        stats.counter(StatName.TOPIC_PUT_NUMS, "st"),
        stats.counter(StatName.TOPIC_PUT_SIZE, "st"),
    )
    whole = stats.counter(StatName.BROKER_PUT_NUMS, "DefaultCluster")
    for _ in range(10):
        nums.add(1)
        size.add(297)
        whole.add(1, 0)
    run(stats, 12 * SECOND)
    assert stats.view("TOPIC_PUT_SIZE", "st") == StatsView(
        minute=StatsWindow(2970, 297.0, 297.0), hour=StatsWindow(), day=StatsWindow()
    )
    for _ in range(5):
        nums.add(1)
        size.add(247)
        whole.add(1, 0)
    run(stats, 33 * SECOND)
    view = stats.view("TOPIC_PUT_SIZE", "st")
    assert view is not None
    assert view.encode().endswith(
        b'"statsMinute":{"avgpt":280.3333333333333,"sum":4205,"tps":140.16666666666666}}'
    )
    assert stats.view("TOPIC_PUT_NUMS", "st") == StatsView(
        minute=StatsWindow(15, 0.5, 1.0), hour=StatsWindow(), day=StatsWindow()
    )
    run(stats, 12 * MINUTE)
    view = stats.view("TOPIC_PUT_SIZE", "st")
    assert view is not None
    assert (
        view.encode()
        == b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":280.3333333333333,"sum":4205,"tps":7.008333333333334},'
        b'"statsMinute":{"avgpt":0.0,"sum":0,"tps":0.0}}'
    )
    assert StatsView.decode(view.encode()) == view
    broker = stats.view("BROKER_PUT_NUMS", "DefaultCluster")
    assert broker is not None
    assert broker.hour == StatsWindow(15, 0.025, 0.0)


def test_a_minute_has_six_intervals() -> None:
    stats = Stats(0)
    counter = stats.counter(StatName.GROUP_GET_NUMS, stat_key("T", "g"))
    run(stats, 60 * SECOND)
    counter.add(10)
    run(stats, 70 * SECOND)
    assert counter.window(stats_module.MINUTE) == StatsWindow(10, 10 / 60, 10.0)
    assert stats.tps(StatName.GROUP_GET_NUMS, "T@g") == 0.16666666666666666
    run(stats, 120 * SECOND)
    assert stats.tps(StatName.GROUP_GET_NUMS, "T@g") == 10 / 60
    run(stats, 130 * SECOND)
    assert stats.tps(StatName.GROUP_GET_NUMS, "T@g") == 0.0


def test_the_day_has_twenty_four_hours() -> None:
    stats = Stats(0)
    counter = stats.counter(StatName.TOPIC_PUT_NUMS, "T")
    for _ in range(30):
        counter.add(100)
        run(stats, stats.next_ms + HOUR - 10 * SECOND)
    assert counter.window(stats_module.DAY) == StatsWindow(2400, 2400 * 1000.0 / DAY, 100.0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (StatName.TOPIC_PUT_NUMS, "T"),
        (StatName.TOPIC_PUT_LATENCY, "3@T"),
        (StatName.QUEUE_PUT_SIZE, "T@3"),
        (StatName.QUEUE_GET_NUMS, "T@3@g"),
        (StatName.GROUP_GET_SIZE, "T@g"),
        (StatName.GROUP_GET_LATENCY, "3@T@g"),
        (StatName.GROUP_GET_LATENCY, "T@g"),
        (StatName.GROUP_GET_FALL_TIME, "3@T@g"),
        (StatName.SNDBCK_PUT_NUMS, "T@g"),
    ],
)
def test_deleting_a_topic_or_group_removes_its_counters(name: StatName, key: str) -> None:
    stats = Stats(0)
    others = key.replace("T", "T2").replace("g", "g2"), key.replace("T", "aT").replace("g", "ag")
    for each in (key, *others):
        stats.counter(name, each)
    stats.delete_group("3")
    stats.delete_topic("3")
    stats.delete_group("T")
    stats.delete_topic("g")
    assert len(stats) == 3
    stats.delete_topic("T")
    assert [left for left, _ in stats.all_of(name)] == [*others]
    stats.counter(name, key)
    stats.delete_group("g")
    assert len(stats) == (2 if "g" in key else 3)


def test_a_held_counter_of_a_deleted_topic_starts_over_when_it_counts_again() -> None:
    stats = Stats(0)
    held = stats.counter(StatName.TOPIC_PUT_NUMS, "T")
    held.add(1_000)
    run(stats, 20 * SECOND)
    stats.delete_topic("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    run(stats, 30 * SECOND)
    assert len(stats) == 0
    held.add(7)
    run(stats, 40 * SECOND)
    assert len(stats) == 1
    assert stats.counter(StatName.TOPIC_PUT_NUMS, "T") is held
    assert stats.view("TOPIC_PUT_NUMS", "T") == StatsView(
        minute=StatsWindow(7, 0.7, 7.0), hour=StatsWindow(), day=StatsWindow()
    )


def test_a_counter_removed_during_a_pass_starts_without_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "COUNTERS_PER_TICK_MAX", 1)
    stats = Stats(0)
    stats.counter(StatName.TOPIC_PUT_NUMS, "A")
    held = stats.counter(StatName.TOPIC_PUT_NUMS, "B")
    held.add(5)
    stats.tick(10 * SECOND)
    stats.delete_topic("B")
    held.add(2)
    run(stats, 20 * SECOND)
    assert held.window(stats_module.MINUTE) == StatsWindow(2, 0.2, 2.0)


def test_a_key_that_is_idle_for_a_day_is_removed_but_totals_are_not() -> None:
    stats = Stats(0)
    stats.counter(StatName.TOPIC_PUT_NUMS, "idle").add(1)
    busy = stats.counter(StatName.TOPIC_PUT_NUMS, "busy")
    stats.counter(StatName.BROKER_PUT_NUMS, "c").add(1, 0)
    run(stats, DAY)
    assert len(stats) == 3
    busy.add(1)
    run(stats, DAY + 10 * MINUTE)
    assert stats.view("TOPIC_PUT_NUMS", "idle") is None
    assert stats.view("TOPIC_PUT_NUMS", "busy") is not None
    assert stats.view("BROKER_PUT_NUMS", "c") is not None


def test_a_count_during_the_pass_keeps_an_idle_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "COUNTERS_PER_TICK_MAX", 1)
    stats = Stats(0, idle_ms_max=HOUR)
    counter = stats.counter(StatName.TOPIC_PUT_NUMS, "T")
    run(stats, HOUR + 10 * MINUTE - 1)
    # Samples the minute; the hour, which removes idle keys, is still to come.
    stats.tick(HOUR + 10 * MINUTE)
    counter.add(4)
    run(stats, HOUR + 10 * MINUTE)
    assert counter.value == 4
    assert stats.view("TOPIC_PUT_NUMS", "T") is not None


def test_no_key_is_removed_without_an_idle_limit() -> None:
    stats = Stats(0, idle_ms_max=None)
    stats.counter(StatName.TOPIC_PUT_NUMS, "T")
    run(stats, 2 * DAY)
    assert len(stats) == 1


def test_keys_beyond_the_limit_share_a_counter_which_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stats = Stats(0, counters_max=2)
    with caplog.at_level(logging.WARNING):
        kept = [stats.counter(StatName.TOPIC_PUT_NUMS, topic) for topic in ("A", "B")]
        rest = [stats.counter(StatName.TOPIC_PUT_NUMS, topic) for topic in ("C", "D")]
    assert rest[0] is rest[1]
    assert rest[0].key == OTHER_KEY
    assert kept == [stats.counter(StatName.TOPIC_PUT_NUMS, topic) for topic in ("A", "B")]
    assert len(caplog.records) == 1
    assert stats.counter(StatName.BROKER_PUT_NUMS, "cluster").key == "cluster"


def test_the_shared_counter_stays_when_a_topic_of_a_similar_name_is_deleted() -> None:
    stats = Stats(0, counters_max=0)
    rest = stats.counter(StatName.GROUP_GET_NUMS, "T@g")
    for part in ("o", "other", OTHER_KEY):
        stats.delete_topic(part)
        stats.delete_group(part)
    assert stats.all_of(StatName.GROUP_GET_NUMS) == [(OTHER_KEY, rest)]


def test_deleting_topics_makes_room_for_others() -> None:
    stats = Stats(0, counters_max=2)
    for topic in ("A", "B", "C"):
        stats.counter(StatName.TOPIC_PUT_NUMS, topic)
    stats.delete_topic("A")
    stats.delete_topic("B")
    assert stats.counter(StatName.TOPIC_PUT_NUMS, "C").key == "C"


def test_a_held_counter_of_a_deleted_topic_counts_towards_the_limit() -> None:
    stats = Stats(0, counters_max=1)
    held = stats.counter(StatName.TOPIC_PUT_NUMS, "A")
    stats.delete_topic("A")
    assert stats.counter(StatName.TOPIC_PUT_NUMS, "B").key == OTHER_KEY
    assert stats.counter(StatName.TOPIC_PUT_NUMS, "A") is held


def test_a_tick_takes_a_bounded_number_of_samples_and_the_next_is_due_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "COUNTERS_PER_TICK_MAX", 4)
    stats = Stats(0)
    counters = [stats.counter(StatName.TOPIC_PUT_NUMS, str(number)) for number in range(10)]
    for counter in counters:
        counter.add(1)

    def sampled() -> int:
        return sum(counter.window(stats_module.MINUTE).sum for counter in counters)

    assert stats.next_ms == 10_000
    seen = []
    for now_ms in (10_000, 10_001, 10_002):
        assert stats.next_ms <= now_ms
        stats.tick(now_ms)
        seen.append(sampled())
    assert seen == [4, 8, 10]
    assert stats.next_ms == 20_000


def test_a_late_tick_samples_once_and_a_clock_set_back_does_not_stop_sampling() -> None:
    stats = Stats(0)
    counter = stats.counter(StatName.TOPIC_PUT_NUMS, "T")
    counter.add(60)
    stats.tick(35_000)
    assert counter.window(stats_module.MINUTE) == StatsWindow(60, 6.0, 60.0)
    assert stats.next_ms == 45_000
    stats.tick(5_000)
    assert counter.window(stats_module.MINUTE).tps == 0.0
    assert stats.next_ms == 15_000


def test_latest_values_are_kept_but_have_no_view() -> None:
    stats = Stats(0)
    latest = stats.counter(StatName.GROUP_GET_FALL_SIZE, stat_key(0, "T", "g"))
    latest.set(500)
    latest.set(300)
    assert [
        (key, counter.value) for key, counter in stats.all_of(StatName.GROUP_GET_FALL_SIZE)
    ] == [("0@T@g", 300)]
    assert stats.view("GROUP_GET_FALL_SIZE", "0@T@g") is None


def test_windows_keep_a_bounded_number_of_samples() -> None:
    counter = Counter(StatName.TOPIC_PUT_NUMS, "T", 0)
    for hour in range(100):
        for window in (stats_module.MINUTE, stats_module.HOUR, stats_module.DAY):
            counter.sample(window, hour * HOUR)
    assert [len(samples) for samples in counter.samples] == [7 * 3, 7 * 3, 25 * 3]
