"""Instruments and their Prometheus text (version 0.0.4): counters, histograms, and gauges that are read when somebody asks.

Knows nothing of what is measured. Series are made once and kept by whoever counts; gauges come in
tables, so that several are read in one walk over their source. Rendering goes in pieces, so that the caller can let others have their turn.

Invariants: labels stand in the order of their names, and values in labels are escaped, control characters as `visible` shows them, since
the format knows no others than the line feed; a family has at most `series_max` series, what is
beyond goes to one labelled `otel_metric_overflow`; a family without a sample is left out.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from orbitmq.common.visible import visible

SERIES_MAX: Final = 50_000
STEPS_PER_PIECE: Final = 100

log = logging.getLogger(__name__)

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Family(Protocol):
    """Whatever has text for an answer: one step for each row or series, empty where a row is only read."""

    @property
    def names(self) -> list[str]: ...

    def steps(self) -> Iterator[str]: ...


class Metric(NamedTuple):
    """The name of a family, and what it tells."""

    name: str
    help: str

    def head(self, kind: str) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {kind}\n"


def render(families: Iterable[Family]) -> Iterator[bytes]:
    """The text of all families; pieces of work of about the same size, some of them without text yet."""
    piece: list[str] = []
    for family in families:
        for step in family.steps():
            piece.append(step)
            if len(piece) == STEPS_PER_PIECE:
                yield "".join(piece).encode()
                piece.clear()
    yield "".join(piece).encode()


class Labels:
    """How a family writes its labels: the fixed ones, and those whose values each series brings, in the order of `names`."""

    __slots__ = ("_own", "_template", "fixed", "names")

    def __init__(self, names: Sequence[str], fixed: Mapping[str, str]) -> None:
        self.names = tuple(names)
        self.fixed = fixed
        order = sorted({*names, *fixed})
        self._own = [names.index(name) for name in order if name in names]
        self._template = ",".join(f'{name}="%s"' if name in names else f'{name}="{_escape(fixed[name], "%%")}"' for name in order)

    def text(self, values: Sequence[str]) -> str:
        """The labels of the series that has these values."""
        return self._template % tuple([_escape(values[at]) for at in self._own])


class Count:
    """One series of a counter."""

    __slots__ = ("labels", "value")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Count."""
        self.value += count

    def lines(self, name: str) -> str:
        return _line(name, self.labels, self.value)


class Histogram:
    """One series of a histogram: how many values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "labels", "total")

    def __init__(self, labels: str, bounds: Sequence[int]) -> None:
        self.labels = labels
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def observe(self, value: int, times: int = 1) -> None:
        """Note a value that came so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def lines(self, name: str) -> str:
        comma = "," if self.labels else ""
        bounds = [*(f"{bound}.0" for bound in self.bounds), "+Inf"]
        sums = list(accumulate(self.counts))
        buckets = [f'{name}_bucket{{{self.labels}{comma}le="{bound}"}} {count}\n' for bound, count in zip(bounds, sums, strict=True)]
        head = f"{{{self.labels}}}" if self.labels else ""
        return "".join(buckets) + f"{name}_count{head} {sums[-1]}\n" + _line(f"{name}_sum", self.labels, self.total)


S = TypeVar("S", Count, Histogram)
T = TypeVar("T")


class SeriesFamily(Generic[S]):
    """The series of one counter or histogram, by the values of their labels."""

    def __init__(self, metric: Metric, kind: str, labels: Labels, make: Callable[[str], S], *, series_max: int = SERIES_MAX) -> None:
        self._metric = metric
        self._kind = kind
        self._labels = labels
        self._make: Callable[[str], S] = make
        self._series_max = series_max
        self._series: dict[tuple[str, ...], S] = {}
        self._rest: S | None = None

    @property
    def names(self) -> list[str]:
        return [self._metric.name]

    def series(self, *values: str) -> S:
        """The series to keep and count with; that of the rest when there are too many."""
        series = self._series.get(values)
        if series is None:
            if len(self._series) >= self._series_max:
                return self._overflow()
            series = self._series[values] = self._make(self._labels.text(values))
        return series

    def forget(self, label: str, value: str) -> None:
        """Drop the series that have this value under a label; whoever kept one counts for nobody from now on."""
        if label in self._labels.names:
            at = self._labels.names.index(label)
            self._series = {values: series for values, series in self._series.items() if values[at] != value}

    def steps(self) -> Iterator[str]:
        name = self._metric.name
        all_series = [*self._series.values(), *([] if self._rest is None else [self._rest])]
        for at, series in enumerate(all_series):
            yield (series.lines(name) if at else self._metric.head(self._kind) + series.lines(name))

    def _overflow(self) -> S:
        if self._rest is None:
            log.warning("metric_full name=%s series=%d: further ones are counted together", self._metric.name, self._series_max)
            self._rest = self._make(Labels(("otel_metric_overflow",), self._labels.fixed).text(("true",)))
        return self._rest


Row = tuple[Sequence[str], Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """What gauges show of an item: the values of the labels, and a number for each metric or None for no sample; None to skip it."""

    labels: Labels
    metrics: Sequence[Metric]
    row: Callable[[T], Row | None]


def view(row: Callable[[T], Row | None], labels: Sequence[str], fixed: Mapping[str, str], *metrics: tuple[str, str]) -> View[T]:
    """A view under labels that each row brings and fixed ones; metrics are name, less `rocketmq_`, and help."""
    return View(Labels(labels, fixed), [Metric(f"rocketmq_{name}", help_text) for name, help_text in metrics], row)


class GaugeTable(Generic[T]):
    """Gauges that come from one walk over a source, in one or several views. None from a source: its next item takes more steps."""

    def __init__(self, source: Callable[[], Iterable[T | None]], *views: View[T]) -> None:
        self._source = source
        self._views = views

    @property
    def names(self) -> list[str]:
        return [metric.name for view in self._views for metric in view.metrics]

    def steps(self) -> Iterator[str]:
        texts: list[list[list[str]]] = [[[] for _ in view.metrics] for view in self._views]
        for item in self._source():
            if item is None:
                yield ""
                continue
            for view, columns in zip(self._views, texts, strict=True):
                row = view.row(item)
                if row is not None:
                    labels = view.labels.text(row[0])
                    for metric, number, column in zip(view.metrics, row[1], columns, strict=True):
                        if number is not None:
                            column.append(_line(metric.name, labels, number))
            yield ""
        for view, columns in zip(self._views, texts, strict=True):
            for metric, column in zip(view.metrics, columns, strict=True):
                if column:
                    yield metric.head("gauge")
                    yield from column


def _line(name: str, labels: str, number: float) -> str:
    return f"{name}{{{labels}}} {float(number)}\n" if labels else f"{name} {float(number)}\n"


def _escape(text: str, percent: str = "%") -> str:
    return "\n".join(map(visible, text.split("\n"))).translate(_ESCAPES).replace("%", percent)
