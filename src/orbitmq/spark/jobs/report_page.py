"""Renders a report as one self-contained HTML page: no script, no other file, no network. Times are
in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from orbitmq.spark.jobs import charts
from orbitmq.spark.jobs.charts import amount
from orbitmq.spark.jobs.report import Figures, TopicReport
from orbitmq.version import __version__

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1d2733; --dim: #68778a; --line: #d9e0e8; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --text: #dfe6ee; --dim: #93a1b3; --line: #344150; --paper: #151b23; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--paper); }
body { max-width: 1000px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin: 2em 0 .4em; }
.dim, .nothing { color: var(--dim); margin-top: 0; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--dim); }
.name { text-anchor: end; } .grid { stroke: var(--line); fill: none; } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.line polyline, .line circle { stroke: var(--c); } .line circle, .bar rect { fill: var(--c); }
.legend span { margin-right: 1.4em; }
.legend span::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .4em; background: var(--c); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92em; }
th, td { padding: .25em .7em; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--dim); font-weight: 600; } th.text, td.text { text-align: left; }
"""  # noqa: E501
_COLOURS: Final = (
    "#2f7ed8",
    "#e2703a",
    "#3aa76d",
    "#9b59b6",
    "#c9a227",
    "#d64550",
    "#17a2b8",
    "#7f8c8d",
)
_Cell = Callable[[Figures], str | float | int | None]


def page(report: TopicReport, title: str, made_ms: int) -> str:
    """Return the page as HTML."""
    colours = "".join(f".c{number} {{ --c: {colour}; }}" for number, colour in enumerate(_COLOURS))
    body = "".join(_sections(report))
    when = (
        f"{moment(report.since_ms)} to {moment(report.until_ms)} UTC"
        if report.topics
        else "no messages"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}{colours}</style></head><body>\n"
        f'<h1>{escape(title)}</h1><p class="dim">{when}; made {moment(made_ms)} UTC'
        f" by OrbitMQ {__version__}</p>\n{body}</body></html>\n"
    )


def moment(time_ms: int | None) -> str:
    """Return a time in UTC as text."""
    return (
        "-"
        if time_ms is None
        else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    )


def _sections(report: TopicReport) -> Iterable[str]:
    topics = [each["topic"] for each in report.topics]
    yield _section(
        "Topics", _table(report.topics, [("topic", lambda each: each["topic"]), *_FIGURES])
    )
    interval = f'<p class="dim">by intervals of {report.interval_ms // 1000} s, in UTC</p>'
    for name, unit, key in (
        ("Throughput", "messages/s", "per_s"),
        ("Bytes", "bytes/s", "bytes_per_s"),
    ):
        series = {
            topic: [
                (each["at_ms"], each[key]) for each in report.timeline if each["topic"] == topic
            ]
            for topic in topics
        }
        yield _section(name, interval + charts.lines(series, unit))
    latencies = {
        f"{topic} {rank}": [
            (each["at_ms"], each.get(f"latency_{rank}_ms"))
            for each in report.timeline
            if each["topic"] == topic
        ]
        for topic in topics
        for rank in ("p50", "p99")
    }
    yield _section("From producer to store", interval + charts.lines(latencies, "ms"))
    lag_bars = charts.bars(
        [(f"{each['group']} in {each['topic']}", each["lag"]) for each in report.groups], "messages"
    )
    names: list[tuple[str, _Cell]] = [
        ("group", lambda each: each["group"]),
        ("topic", lambda each: each["topic"]),
    ]
    numbers: list[tuple[str, _Cell]] = [
        ("lag", lambda each: each["lag"]),
        ("consumed/s", lambda each: each["consumed_per_s"]),
    ]
    yield _section("Lag of groups, now", lag_bars + _table(report.groups, [*names, *numbers]))
    queues = [
        (f"{each['topic']} {each['broker']}/{each['queue']}", each["messages"])
        for each in report.queues
    ]
    of_queue: list[tuple[str, _Cell]] = [
        ("queue", lambda each: f"{each['topic']} {each['broker']}/{each['queue']}")
    ]
    yield _section(
        "Queues", charts.bars(queues, "messages") + _table(report.queues, [*of_queue, *_FIGURES])
    )
    tags = [(_tag(each), each["messages"]) for each in report.tags]
    yield _section(
        "Tags, the most frequent",
        charts.bars(tags, "messages") + _table(report.tags, [("tag", _tag), *_FIGURES]),
    )


def _tag(each: Figures) -> str:
    return f"{each['topic']} {each['tag'] or '(none)'}"


_FIGURES: Final[Sequence[tuple[str, _Cell]]] = (
    ("messages", lambda each: each["messages"]),
    ("messages/s", lambda each: each["per_s"]),
    ("bytes", lambda each: each["bytes"]),
    ("size p50", lambda each: each["size_p50"]),
    ("p99", lambda each: each["size_p99"]),
    ("max", lambda each: each["size_max"]),
    ("latency ms p50", lambda each: each["latency_p50_ms"]),
    ("p90", lambda each: each["latency_p90_ms"]),
    ("p99", lambda each: each["latency_p99_ms"]),
    ("p99.9", lambda each: each["latency_p999_ms"]),
    ("max", lambda each: each["latency_max_ms"]),
)


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}\n"


def _table(rows: Sequence[Figures], columns: Sequence[tuple[str, _Cell]]) -> str:
    if not rows:
        return ""
    values = [[cell(row) for _, cell in columns] for row in rows]
    kinds = [' class="text"' if isinstance(value, str) else "" for value in values[0]]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, (name, _) in zip(kinds, columns, strict=True)
    )
    lines = (
        "".join(f"<td{kind}>{_cell(value)}</td>" for kind, value in zip(kinds, row, strict=True))
        for row in values
    )
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><tr>{head}</tr>{table}</table></div>'


def _cell(value: str | float | int | None) -> str:
    if value is None:
        return "-"
    return (
        escape(value)
        if isinstance(value, str)
        else str(value)
        if isinstance(value, int)
        else amount(value)
    )
