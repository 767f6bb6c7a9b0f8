"""Store statistics against the recorded texts of a RocketMQ 5.5.0 broker for the same puts and
gets.
"""

from __future__ import annotations

from itertools import pairwise

from orbitmq.broker.observability.store_stats import StoreStats, Totals, local_midnight_after

BOOT_MS = 1_794_810_053_303
DAY_MS = 86_400_000


def put(stats: StoreStats, messages: int, size: int, latency_ms: int, calls: int = 1) -> None:
    """Count `calls` puts of this latency with messages and bytes in total."""
    stats.put(messages, size)
    stats.put_took(latency_ms, calls)


def store_stats(totals: Totals | None = None) -> StoreStats:
    return StoreStats(
        BOOT_MS, lambda: totals or Totals(0, 0), midnight_after=lambda now_ms: now_ms + DAY_MS
    )


def run(stats: StoreStats, seconds: int) -> int:
    """Tick once a second; return the time of the last tick."""
    now_ms = stats.next_ms
    for _ in range(seconds):
        now_ms = stats.next_ms
        stats.tick(now_ms)
    return now_ms


def test_the_entries_of_an_idle_broker_match_apache_rocketmq() -> None:
    none = "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 "
    assert store_stats().runtime_info(BOOT_MS) == {
        "bootTimestamp": "1794810053303",
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "putMessageEntireTimeMax": "0",
        "putMessageTimesTotal": "1",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": "0",
        "putMessageDistributeTime": (
            none + "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
        ),
        "putMessageAverageSize": "0.0",
        "dispatchMaxBuffer": "0",
        "getMessageEntireTimeMax": "0",
        "putTps": "  ",
        "getFoundTps": "  ",
        "getMissTps": "  ",
        "getTotalTps": "0.0 0.0 0.0",
        "getTransferredTps": "  ",
        "getTransferedTps": "  ",
        "putLatency99": "0.00",
        "putLatency999": "0.00",
        "msgPutTotalYesterdayMorning": "0",
        "msgPutTotalTodayMorning": "0",
        "msgPutTotalTodayNow": "0",
        "msgGetTotalYesterdayMorning": "0",
        "msgGetTotalTodayMorning": "0",
        "msgGetTotalTodayNow": "0",
    }


def rates(elapsed_ms: int) -> dict[str, str]:
    """Return the entries after 61 samples, the last ten intervals taking 10,008 ms: 15 messages
    put, 2 gets with 4 messages, 2,414 gets without.
    """
    stats = store_stats()
    put(stats, 14, 12_726, 96, calls=14)
    moments = [BOOT_MS + 1_000 + 1_002 * number for number in range(50)]
    moments.append(moments[0] + elapsed_ms - 10_008)
    moments += [moments[-1] + 1_000 * number for number in range(1, 10)]
    moments.append(moments[0] + elapsed_ms)
    assert len(moments) == 61
    assert all(later - earlier >= 1_000 for earlier, later in pairwise(moments))
    stats.tick(moments[0])
    put(stats, 15, 3_705, 1, calls=15)
    stats.get(1, 0, 2, 35)
    stats.get(1, 0, 2, 1)
    for at, moment in enumerate(moments[1:], 1):
        for _ in range({10: 2_414 - 440, 55: 440}.get(at, 0)):
            stats.get(0, 1, 0, 0)
        stats.tick(moment)
    return stats.runtime_info(moments[-1])


def test_rates_match_a_recorded_broker() -> None:
    assert rates(60_138)["putTps"] == "0.0 0.24942631946522995 "
    info = rates(60_139)  # Apache RocketMQ reads the clock for each entry
    assert info["getTransferredTps"] == "0.0 0.06651257919153959 "
    assert info["getFoundTps"] == "0.0 0.033256289595769796 "
    assert info["getMissTps"] == "43.96482813749001 40.14034154209415 "
    assert info["getTotalTps"] == "43.96482813749001 40.17359783168992 0.0"
    assert info["getMessageEntireTimeMax"] == "35"
    assert info["putMessageEntireTimeMax"] == "96"


def test_put_latencies_are_those_of_the_last_complete_minute() -> None:
    """Against a recorded broker: eight puts under a millisecond, six of one, one of eight."""
    stats = store_stats()
    for latency_ms in [0] * 8 + [1] * 6 + [8]:
        put(stats, 1, 100, latency_ms)
    assert stats.runtime_info(run(stats, 60))["putMessageDistributeTime"].startswith(
        "[<=0ms]:0 [0~10ms]:0 "
    )
    info = stats.runtime_info(run(stats, 1))
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:8 [0~10ms]:7 [10~50ms]:0 ")
    assert info["putLatency99"] == "1.00"
    assert info["putLatency999"] == "1.00"
    info = stats.runtime_info(run(stats, 61))
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:0 ")
    assert info["putMessageEntireTimeMax"] == "8"


def test_each_put_counts_in_one_span() -> None:
    stats = store_stats()
    for latency_ms in (
        -1,
        0,
        1,
        9,
        10,
        49,
        50,
        99,
        100,
        199,
        200,
        499,
        500,
        999,
        1000,
        1999,
        2000,
        3000,
        4000,
        5000,
        9999,
        10000,
        99999,
    ):
        put(stats, 1, 1, latency_ms)
    shown = stats.runtime_info(run(stats, 61))["putMessageDistributeTime"]
    assert [int(part.rpartition(":")[2]) for part in shown.split()] == [
        2,
        2,
        2,
        2,
        2,
        2,
        2,
        2,
        1,
        1,
        1,
        2,
        2,
    ]


def test_percentiles_are_interpolated_between_bounds() -> None:
    stats = store_stats()
    put(stats, 1000, 1000, 0, calls=900)
    put(stats, 100, 100, 22, calls=100)  # between 20 and 22
    info = stats.runtime_info(run(stats, 61))
    assert info["putLatency99"] == "21.80"  # the 990th: 90 of the 100
    assert info["putLatency999"] == "21.98"


def test_percentiles_are_rounded_half_up_and_end_at_ten_seconds() -> None:
    stats = store_stats()
    put(stats, 8, 8, 1, calls=8)  # the 7th of 8: 0.875
    assert stats.runtime_info(run(stats, 61))["putLatency99"] == "0.88"
    put(stats, 1, 1, 60_000, calls=10)
    assert stats.runtime_info(run(stats, 61))["putLatency99"] == "10000.00"


def test_averages_failures_and_large_numbers_are_formatted_as_in_java() -> None:
    stats = store_stats()
    put(stats, 29, 16_931, 3)
    stats.put_failed(7)
    info = stats.runtime_info(BOOT_MS + 3 * DAY_MS + 7_384_000)
    assert info["putMessageAverageSize"] == "583.8275862068965"
    assert info["putMessageFailedTimes"] == "1"
    assert info["putMessageTimesTotal"] == "29"
    assert info["putMessageEntireTimeMax"] == "7"
    assert info["runtime"] == "[ 3 days, 2 hours, 3 minutes, 4 seconds ]"
    put(stats, 0, 10**10, 0)
    assert stats.runtime_info(BOOT_MS)["putMessageAverageSize"] == "3.448281700344828E8"
    assert stats.runtime_info(BOOT_MS + 1234 * DAY_MS)["runtime"].startswith("[ 1,234 days, ")


def test_totals_are_noted_at_midnight() -> None:
    totals = Totals(0, 0)
    stats = StoreStats(
        0, lambda: totals, midnight_after=lambda now_ms: (now_ms // DAY_MS + 1) * DAY_MS
    )
    totals = Totals(100, 10)
    stats.tick(DAY_MS - 1)
    assert stats.runtime_info(0)["msgPutTotalTodayMorning"] == "0"
    stats.tick(DAY_MS + 999)
    totals = Totals(250, 40)
    stats.tick(2 * DAY_MS)
    totals = Totals(300, 50)
    info = stats.runtime_info(2 * DAY_MS + 5)
    assert [
        info[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
    ] == ["100", "250", "300"]
    assert [
        info[f"msgGetTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
    ] == ["10", "40", "50"]


def test_totals_are_noted_at_the_next_midnight_after_the_clock_was_days_ahead() -> None:
    totals = Totals(0, 0)
    stats = StoreStats(
        0, lambda: totals, midnight_after=lambda now_ms: (now_ms // DAY_MS + 1) * DAY_MS
    )
    stats.tick(10 * DAY_MS)
    stats.tick(DAY_MS // 2)
    totals = Totals(100, 10)
    stats.tick(DAY_MS - 1)
    assert stats.runtime_info(0)["msgPutTotalTodayMorning"] == "0"
    stats.tick(DAY_MS + 999)
    assert stats.runtime_info(0)["msgPutTotalTodayMorning"] == "100"


def test_the_next_day_begins_within_a_day_and_an_hour() -> None:
    for now_ms in range(BOOT_MS, BOOT_MS + 400 * DAY_MS, DAY_MS // 3):
        assert now_ms < local_midnight_after(now_ms) <= now_ms + 25 * 3_600_000
    midnight_ms = local_midnight_after(BOOT_MS)
    assert local_midnight_after(midnight_ms - 1) == midnight_ms < local_midnight_after(midnight_ms)


def test_samples_are_taken_once_a_second_and_a_clock_set_back_does_not_stop_them() -> None:
    stats = store_stats()
    assert stats.next_ms == BOOT_MS + 1_000
    for _ in range(11):
        put(stats, 1, 1, 0)
        stats.tick(BOOT_MS + 500)
    assert stats.runtime_info(BOOT_MS)["putTps"] == "  "
    stats.tick(BOOT_MS - 50_000)
    assert stats.next_ms == BOOT_MS - 49_000
    run(stats, 10)
    assert stats.runtime_info(BOOT_MS)["putTps"] == "0.0  "
