"""Goals of transactions, scheduled delivery, filters and access control: ahead of Apache's in every
row, and cheap in absolute terms.
"""

from __future__ import annotations

from collections.abc import Iterator

from _broker_goals import AT_LEAST, AT_MOST, Goal

LATE_P99_US_MAX = 50_000.0
ANON_MB_MAX = 100.0  # not file-backed, of a broker with a million pending timer messages
GUARDED = ("send 64x1", "send 1x64", "transactions 1x64")
KEPT_MIN = 0.75  # ratio of the rate with access control on


def _ahead(*workloads: str) -> Iterator[Goal]:
    for workload in workloads:
        yield Goal(workload=workload, measure="messages_per_s", relation=AT_LEAST, limit=1.0)
        yield Goal(workload=workload, measure="server_us_per_message", relation=AT_MOST, limit=1.0)


def _on_time(*workloads: str) -> Iterator[Goal]:
    for workload in workloads:
        yield Goal(workload=workload, measure="off_p99_us", relation=AT_MOST, limit=1.0)
        yield Goal(
            workload=workload,
            measure="p99_us",
            relation=AT_MOST,
            limit=LATE_P99_US_MAX,
            is_ratio=False,
        )
        yield Goal(workload=workload, measure="early", relation=AT_MOST, limit=0.0, is_ratio=False)
        yield Goal(workload=workload, measure="server_us_per_message", relation=AT_MOST, limit=1.0)


GOALS = (
    *_ahead("transactions 64x1", "transactions 1x64"),
    *_ahead("timed sends 64x1", "timed sends 1x64", "level sends 1x64"),
    *_on_time("timed 1000/s", "level 1000/s"),
    Goal(workload="fill", measure="anon_mb", relation=AT_MOST, limit=ANON_MB_MAX, is_ratio=False),
    Goal(workload="restart", measure="start_s", relation=AT_MOST, limit=1.0),
    Goal(
        workload="restart", measure="anon_mb", relation=AT_MOST, limit=ANON_MB_MAX, is_ratio=False
    ),
    Goal(workload="restart", measure="idle_rss_mb", relation=AT_MOST, limit=1.0),
    *_ahead("SQL92 of one term 8x1", "SQL92 of three terms 8x1"),
    *(
        goal
        for asked in GUARDED
        for goal in _ahead(f"access off: {asked}", f"access by users: {asked}")
    ),
    *(
        Goal(
            workload=f"access by {style}: {asked}",
            measure="kept",
            relation=AT_LEAST,
            limit=KEPT_MIN,
            is_ratio=False,
        )
        for style in ("users", "accounts")
        for asked in GUARDED
    ),
)
