"""The broker's goals, the results against them, and the table that shows both.

A ratio goal is compared with the release against which we do worst. Knows results as `broker.py`
collects them, not how they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from _harness import Result

AT_LEAST, AT_MOST, BELOW = "≥", "≤", "<"
MEASURES = {  # in table order: column titles
    "messages_per_s": "messages/s",
    "consumed_per_s": "consumed/s",
    "server_us_per_message": "CPU µs/message",
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "p999_us": "p99.9 µs",
    "off_p50_us": "off by p50 µs",
    "off_p99_us": "off by p99 µs",
    "early": "too early",
    "mean_ms": "mean ms",
    "b2c_ms": "to consumer ms",
    "failed": "failed sends",
    "start_s": "to first send s",
    "rss_mb": "RSS MB",
    "idle_rss_mb": "idle RSS MB",
    "anon_mb": "of no file MB",
    "many/few": "CPU of many topics / few",
    "kept": "rate kept",
    "filled_per_s": "filled/s",
    "taken_in_s": "taken in after s",
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A goal for one measure of a workload, as a ratio to Apache's or as an absolute number."""

    workload: str
    measure: str
    relation: str
    limit: float
    is_ratio: bool = True

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}{' x' if self.is_ratio else ''}"

    def met_by(self, value: float) -> bool:
        if self.relation == AT_LEAST:
            return value >= self.limit
        return value < self.limit if self.relation == BELOW else value <= self.limit


def _of(
    workload: str,
    *,
    rate_min: float | None = None,
    cpu_max: float | None = None,
    has_p999: bool = True,
) -> Iterator[Goal]:
    if rate_min is not None:
        yield Goal(workload=workload, measure="messages_per_s", relation=AT_LEAST, limit=rate_min)
    if cpu_max is not None:
        yield Goal(
            workload=workload, measure="server_us_per_message", relation=AT_MOST, limit=cpu_max
        )
    if has_p999:
        yield Goal(workload=workload, measure="p999_us", relation=AT_MOST, limit=1.0)


GOALS = (
    Goal(workload="start", measure="start_s", relation=BELOW, limit=1.0, is_ratio=False),
    Goal(workload="start", measure="idle_rss_mb", relation=BELOW, limit=100.0, is_ratio=False),
    *_of("pull of 32 8x1", rate_min=2.0),
    *_of("send 64x1", rate_min=2.5, cpu_max=0.25),
    *_of("send 1x64", rate_min=3.0, cpu_max=0.25),
    *_of("send 1x64 binary", rate_min=3.0, cpu_max=0.25),
    *_of("batches of 32 8x1"),
    *_of("end to end 5000/s"),
    *_of("sync send 64x1", rate_min=2.0),
    *_of("sync send 1x64", rate_min=2.0),
    Goal(workload="topics", measure="many/few", relation=AT_MOST, limit=1.25, is_ratio=False),
    *_of("stock producer", cpu_max=0.25, has_p999=False),
)


def verdicts(workloads: Result, goals: Sequence[Goal] = GOALS) -> list[Result]:
    """Return every goal of the measured workloads with the value reached; `met` is None if there is
    nothing to compare.
    """
    found = []
    for goal in goals:
        if (result := workloads.get(goal.workload)) is None:
            continue
        value = _value(goal, result)
        met = None if value is None else goal.met_by(value)
        wish = {"workload": goal.workload, "measure": goal.measure, "goal": str(goal)}
        found.append({**wish, "value": value, "met": met, "noisy": result["noisy"]})
    return found


def _value(goal: Goal, result: Result) -> float | None:
    """Return the value to judge: our own number, or the worst of our ratios."""
    if not goal.is_ratio:
        own: float | None = result.get("orbitmq", {}).get(goal.measure)
        return own
    of_pairs = [ratios for pair, ratios in result.items() if pair.startswith("orbitmq/")]
    ratios: list[float] = [of_pair[goal.measure] for of_pair in of_pairs if goal.measure in of_pair]
    if not ratios:
        return None
    return min(ratios) if goal.relation == AT_LEAST else max(ratios)


def table(workloads: Result, releases: dict[str, str], goals: Sequence[Goal] = GOALS) -> str:
    """Return all medians, ratios, goals and verdicts, one line per measure and workload. `releases`
    names the contenders' columns.
    """
    contenders = list(releases)
    peers = [contender for contender in contenders if contender != "orbitmq"]
    rows = [
        [
            "workload",
            "measure",
            *releases.values(),
            *(f"to {releases[peer]}" for peer in peers),
            "goal",
            "verdict",
        ]
    ]
    found = {(each["workload"], each["measure"]): each for each in verdicts(workloads, goals)}
    for name, result in workloads.items():
        title = name
        for measure, called in MEASURES.items():
            values = [result.get(contender, {}).get(measure) for contender in contenders]
            if all(value is None for value in values):
                continue
            ratios = [result.get(f"orbitmq/{peer}", {}).get(measure) for peer in peers]
            verdict = found.get((name, measure))
            row = [title, called, *map(number, values), *map(number, ratios)]
            rows.append(
                [*row, verdict["goal"] if verdict else "", word(verdict) if verdict else ""]
            )
            title = ""
        lost = {
            releases[each]: result[each].get("rounds_lost", 0) if each in result else "all"
            for each in contenders
        }
        if any(lost.values()):
            rows.append(
                [
                    title,
                    "rounds lost",
                    ", ".join(f"{release} {count}" for release, count in lost.items() if count),
                ]
            )
    return aligned(rows)


def word(verdict: Result) -> str:
    if verdict["met"] is None:
        return "not measured"
    return ("met" if verdict["met"] else "MISSED") + (" (noisy)" if verdict["noisy"] else "")


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.1f}"
        if abs(value) >= 100
        else f"{value:.2f}"
    )


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Align words left and numbers right; the last cell of a shorter row is free text and ignored
    for alignment.
    """
    whole = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    words = {0, 1, len(widths) - 2, len(widths) - 1}
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if at in words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        if len(row) < len(widths):
            cells[-1] = row[-1]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
