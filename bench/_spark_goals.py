"""Our connector's goals against Spark's Kafka connector, the results, and the table that shows
both.

CPU time per row is compared first: it hardly varies on a shared machine. Ratios are of output: rows
per second, and rows per second of CPU time of Spark and its workers; for latencies and starts they
are of time, and less is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from _broker_goals import AT_LEAST, AT_MOST, aligned, number
from _harness import NOISY_CPU_MIN, Result

RATE, COST = "messages_per_s", "client_us_per_message"
WORKER_COST, BROKER_COST = (
    "worker_us_per_message",
    "broker_us_per_message",
)  # the first is part of the cost, the second is not
TITLES: Final = {
    RATE: "rows/s",
    COST: "CPU µs/row",
    WORKER_COST: "workers'",
    BROKER_COST: "broker's",
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "trigger_ms": "trigger ms",
    "session_s": "session s",
    "first_query_s": "first query s",
    "first_read_s": "first read s",
    "all_s": "all s",
}
_MAIN: Final = (RATE, COST, WORKER_COST, BROKER_COST)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Which contenders of a section are compared, by which measures, and the goal."""

    contender: str = "orbitmq"
    peer: str = "kafka"
    measures: tuple[str, ...] = (COST, RATE)
    limit: float | None = None

    @property
    def is_time(self) -> bool:
        return RATE not in self.measures

    @property
    def goal(self) -> str:
        return (
            ""
            if self.limit is None
            else f"{AT_MOST if self.is_time else AT_LEAST} {self.limit:g} x"
        )

    def met_by(self, ratio: float) -> bool | None:
        if self.limit is None:
            return None
        return ratio <= self.limit if self.is_time else ratio >= self.limit


def lowest(reports: Sequence[Result], keys: Sequence[str]) -> Result:
    """Return the minimum of each: JIT compilation and cache contention only ever add CPU time."""
    return (
        {key: round(min(report[key] for report in reports), 2) for key in keys} if reports else {}
    )


def compare(by_contender: dict[str, Result], comparison: Comparison) -> Result:
    """Return the medians, with ratio and verdict for each measure."""
    ours, theirs = by_contender.get(comparison.contender, {}), by_contender.get(comparison.peer, {})
    ratios: dict[str, float] = {}
    for measure in comparison.measures:
        if ours.get(measure) and theirs.get(measure):
            ratio = ours[measure] / theirs[measure]
            ratios[measure] = round(1 / ratio if measure == COST else ratio, 2)
    return {
        **by_contender,
        "noisy": any(each.get("other_cpu", 0.0) >= NOISY_CPU_MIN for each in by_contender.values()),
        "compared": f"{comparison.contender}/{comparison.peer}",
        "ratios": ratios,
        "goal": comparison.goal,
        "met": (
            {measure: comparison.met_by(ratio) for measure, ratio in ratios.items()}
            if comparison.limit is not None
            else {}
        ),
    }


def table(measured: Result) -> str:
    """Return one line per contender of each section; ratios, goal and verdicts are on the line of
    the compared one.
    """
    rows = [
        [
            "section",
            "contender",
            *(TITLES[key] for key in _MAIN),
            "others' cores",
            "times",
            "ratios",
            "goal",
            "verdict",
        ]
    ]
    for name, result in measured.items():
        title = name
        compared = result["compared"].partition("/")[0]
        for contender, found in result.items():
            if not isinstance(found, dict) or "rounds_lost" not in found:
                continue
            numbers = [number(found.get(key)) for key in _MAIN]
            times = ", ".join(
                f"{called} {number(found[key])}"
                for key, called in TITLES.items()
                if key in found and key not in _MAIN
            )
            cells = (
                [_ratios(result), result["goal"], _verdict(result)]
                if contender == compared
                else ["", "", ""]
            )
            rows.append([title, contender, *numbers, number(found.get("other_cpu")), times, *cells])
            title = ""
            if found["rounds_lost"]:
                rows.append(["", f"{found['rounds_lost']} rounds lost"])
    return aligned(rows)


def _ratios(result: Result) -> str:
    names = {COST: "by CPU", RATE: "by rate", "p50_us": "p50", "p99_us": "p99", "all_s": "all"}
    return ", ".join(f"{names[measure]} {ratio:.2f}" for measure, ratio in result["ratios"].items())


def _verdict(result: Result) -> str:
    """Return the verdict: definite for CPU time; for wall time doubtful if other processes used the
    machine.
    """
    words = []
    for measure, met in result["met"].items():
        word = "met" if met else "MISSED"
        words.append(f"{word} (noisy)" if result["noisy"] and measure != COST else word)
    return ", ".join(words)
