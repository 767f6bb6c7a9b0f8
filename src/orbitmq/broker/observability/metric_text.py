"""Metrics in Prometheus text format (version 0.0.4): counters, histograms, and gauges that are read
on each scrape.

Knows nothing of what is measured. Users create a series once and keep it; gauges come in tables, so
that one pass over a source fills several. Rendering yields pieces, so that the loop can serve other
clients in between. docs/decisions/0024-metric-text.md says why this is not prometheus_client.

Invariants: labels are ordered by name; their values are escaped, and control characters replaced by
`visible_lines`, because the format can only escape the line feed. A family has at most `series_max`
series; further ones share one with the label `otel_metric_overflow`. A family without samples is
left out. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from orbitmq.common.visible import visible_lines

SERIES_MAX: Final = 50_000
STEPS_PER_PIECE: Final = 100

log = logging.getLogger(__name__)

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metric(NamedTuple):
    """The description of a metric; `labels` are those in which its series differ."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]

    def head(self) -> str:
        """Return the lines before the samples."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


class Family(Protocol):
    """Metrics that are rendered together, one step for each row or series; the text of a step is
    empty if it only reads.
    """

    @property
    def metrics(self) -> Sequence[Metric]: ...

    def steps(self) -> Iterator[str]: ...


def render(families: Iterable[Family]) -> Iterator[bytes]:
    """Yield the text of all families in pieces of about equal work, some of them empty."""
    piece: list[str] = []
    for family in families:
        for step in family.steps():
            piece.append(step)
            if len(piece) == STEPS_PER_PIECE:
                yield "".join(piece).encode()
                piece.clear()
    yield "".join(piece).encode()


class Labels:
    """Formats the labels of a series: the fixed ones, and those in `names`, whose values differ."""

    __slots__ = ("_order", "_template", "fixed", "names")

    def __init__(self, names: Sequence[str], fixed: Mapping[str, str]) -> None:
        self.names = tuple(names)
        self.fixed = fixed
        every_name = sorted({*names, *fixed})
        self._order = [names.index(name) for name in every_name if name in names]
        self._template = ",".join(
            f'{name}="%s"' if name in names else f'{name}="{_escape(fixed[name], "%%")}"'
            for name in every_name
        )

    def text(self, values: Sequence[str]) -> str:
        """Return the labels of the series with these values, given in the order of `names`."""
        return self._template % tuple([_escape(values[at]) for at in self._order])


class Count:
    """One series of a counter."""

    __slots__ = ("labels", "value")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Increment the counter."""
        self.value += count

    def lines(self, name: str) -> str:
        """Return the sample as text."""
        return _line(name, self.labels, self.value)


class Histogram:
    """One series of a histogram: the number of values in each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "labels", "total")

    def __init__(self, labels: str, bounds: Sequence[int]) -> None:
        self.labels = labels
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def observe(self, value: int, times: int = 1) -> None:
        """Count a value that occurred `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def lines(self, name: str) -> str:
        """Return the samples as text."""
        comma = "," if self.labels else ""
        bounds = [*(f"{bound}.0" for bound in self.bounds), "+Inf"]
        sums = list(accumulate(self.counts))
        buckets = [
            f'{name}_bucket{{{self.labels}{comma}le="{bound}"}} {count}\n'
            for bound, count in zip(bounds, sums, strict=True)
        ]
        head = f"{{{self.labels}}}" if self.labels else ""
        return (
            "".join(buckets)
            + f"{name}_count{head} {sums[-1]}\n"
            + _line(f"{name}_sum", self.labels, self.total)
        )


S = TypeVar("S", Count, Histogram)
T = TypeVar("T")


class SeriesFamily(Generic[S]):
    """The series of one counter or histogram, by their label values."""

    def __init__(
        self,
        metric: Metric,
        fixed: Mapping[str, str],
        make: Callable[[str], S],
        *,
        series_max: int = SERIES_MAX,
    ) -> None:
        self.metrics = (metric,)
        self._labels = Labels(metric.labels, fixed)
        self._make: Callable[[str], S] = make
        self._series_max = series_max
        self._series: dict[tuple[str, ...], S] = {}
        self._overflow: S | None = None

    def series(self, *values: str) -> S:
        """Return the series to keep and count with; the overflow series if there are too many."""
        series = self._series.get(values)
        if series is None:
            if len(self._series) >= self._series_max:
                return self._overflow or self._add_overflow()
            series = self._series[values] = self._make(self._labels.text(values))
        return series

    def forget(self, label: str, value: str) -> None:
        """Drop the series with this label value. Later counts in a series that a user still holds
        are lost.
        """
        if label in self._labels.names:
            at = self._labels.names.index(label)
            for values in [values for values in self._series if values[at] == value]:
                del self._series[values]

    def steps(self) -> Iterator[str]:
        (metric,) = self.metrics
        head = metric.head()
        for series in [*self._series.values(), *filter(None, [self._overflow])]:
            yield head + series.lines(metric.name)
            head = ""

    def _add_overflow(self) -> S:
        log.warning(
            "metric_full name=%s series=%d: one series counts all further ones",
            self.metrics[0].name,
            self._series_max,
        )
        labels = Labels(("otel_metric_overflow",), self._labels.fixed)
        self._overflow = self._make(labels.text(("true",)))
        return self._overflow


Row = tuple[Sequence[str], Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """Shows an item as gauges: `row` returns the label values and a number for each metric, None
    for no sample; or None to skip the item.
    """

    labels: Labels
    metrics: Sequence[Metric]
    row: Callable[[T], Row | None]


def view(
    row: Callable[[T], Row | None],
    labels: Sequence[str],
    fixed: Mapping[str, str],
    *metrics: tuple[str, str],
) -> View[T]:
    """Return a view with the labels of each row and fixed ones; a metric is a name, without
    `rocketmq_`, and a help text.
    """
    return View(
        Labels(labels, fixed),
        [Metric(f"rocketmq_{name}", "gauge", text, tuple(labels)) for name, text in metrics],
        row,
    )


class GaugeTable(Generic[T]):
    """Gauges from one pass over a source, in one or several views. A source yields None between
    the steps of a costly item.
    """

    def __init__(self, source: Callable[[], Iterable[T | None]], *views: View[T]) -> None:
        self.metrics = [metric for view in views for metric in view.metrics]
        self._source = source
        self._views = views

    def steps(self) -> Iterator[str]:
        lines: list[list[list[str]]] = [[[] for _ in view.metrics] for view in self._views]
        for item in self._source():
            if item is not None:
                for view, columns in zip(self._views, lines, strict=True):
                    _add_row(view, item, columns)
            yield ""
        for view, columns in zip(self._views, lines, strict=True):
            for metric, column in zip(view.metrics, columns, strict=True):
                if column:
                    yield metric.head()
                    yield from column


def gauge_table(
    rows: Callable[[], Iterable[Row | None]],
    labels: Sequence[str],
    fixed: Mapping[str, str],
    *metrics: tuple[str, str],
) -> GaugeTable[Row]:
    """Return gauges whose source yields rows; the other arguments are those of `view`."""
    return GaugeTable(rows, view(lambda row: row, labels, fixed, *metrics))


def tally(keys: Iterable[tuple[str, ...]]) -> Iterator[Row | None]:
    """Count equal keys, one per step, then yield a row for each."""
    counts: Counter[tuple[str, ...]] = Counter()
    for key in keys:
        counts[key] += 1
        yield None
    for key, count in counts.items():
        yield key, (count,)


def _add_row(view: View[T], item: T, columns: list[list[str]]) -> None:
    row = view.row(item)
    if row is None:
        return
    labels = view.labels.text(row[0])
    for metric, number, column in zip(view.metrics, row[1], columns, strict=True):
        if number is not None:
            column.append(_line(metric.name, labels, number))


def _line(name: str, labels: str, number: float) -> str:
    return f"{name}{{{labels}}} {float(number)}\n" if labels else f"{name} {float(number)}\n"


def _escape(text: str, percent: str = "%") -> str:
    return visible_lines(text).translate(_ESCAPES).replace("%", percent)
