"""Draws line and bar charts as SVG. Pure; knows numbers and names, not their meaning.

Everything is drawn in a box of fixed size that a page may scale. Colours are CSS classes (`c0`,
`c1` …) that the page defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from math import floor, log10
from typing import Final

COLOURS: Final = 8
Points = Sequence[tuple[int, float | None]]  # time in milliseconds, and the value if known
_WIDTH: Final = 960
_HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 14, 34
_BAR: Final = 22
_NAME_WIDTH: Final = 260
_DAY_MS: Final = 86_400_000


def lines(series: Mapping[str, Points], unit: str) -> str:
    """Return a line chart; all series have the same times."""
    times = [at_ms for at_ms, _ in next(iter(series.values()), ())]
    values = [value for points in series.values() for _, value in points if value is not None]
    if not times or not values:
        return '<p class="nothing">nothing to show</p>'
    begin, end, top = times[0], max(times[-1], times[0] + 1), nice(max(*values, 0.0, 1e-9))

    def x(at_ms: int) -> float:
        return _LEFT + (at_ms - begin) / (end - begin) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - max(value, 0.0) / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_grid(y, top, unit), _times(x, begin, end)]
    for number, (name, points) in enumerate(series.items()):
        for run in _runs(points):
            path = " ".join(f"{x(at_ms):.1f},{y(value):.1f}" for at_ms, value in run)
            shape = (
                f'<polyline points="{path}"/>'
                if len(run) > 1
                else f'<circle cx="{x(run[0][0]):.1f}" cy="{y(run[0][1]):.1f}" r="2"/>'
            )
            parts.append(
                f'<g class="line c{number % COLOURS}"><title>{escape(name)}</title>{shape}</g>'
            )
    legend = "".join(
        f'<span class="c{number % COLOURS}">{escape(name)}</span>'
        for number, name in enumerate(series)
    )
    return f'<p class="legend">{legend}</p>{_svg(_HEIGHT, parts, ", ".join(series))}'


def bars(values: Sequence[tuple[str, float]], unit: str) -> str:
    """Return a bar chart, in the given order."""
    if not values:
        return '<p class="nothing">nothing to show</p>'
    top = max(*(value for _, value in values), 1e-9)
    room = _WIDTH - _NAME_WIDTH - 130
    parts = []
    for number, (name, value) in enumerate(values):
        y, width = number * _BAR + 4, max(value, 0.0) / top * room
        parts.append(
            f'<g class="bar c0"><title>{escape(name)}: {value:g} {escape(unit)}</title>'
            f'<text x="{_NAME_WIDTH - 8}" y="{y + 12}" class="name">{escape(_short(name))}</text>'
            f'<rect x="{_NAME_WIDTH}" y="{y}" width="{width:.1f}" height="{_BAR - 7}"/>'
            f'<text x="{_NAME_WIDTH + width + 6:.1f}" y="{y + 12}">{amount(value)}</text></g>'
        )
    return _svg(len(values) * _BAR + 8, parts, unit)


def nice(value: float) -> float:
    """Return the next round number: 1, 2 or 5 times a power of ten."""
    scale = 10.0 ** floor(log10(value))
    return next(
        step * scale for step in (1.0, 2.0, 5.0, 10.0) if value <= step * scale * (1 + 1e-9)
    )


def amount(value: float) -> str:
    """Return a number in a few characters."""
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {sign}"
    return f"{value:.3g}"


def _runs(points: Points) -> list[list[tuple[int, float]]]:
    """Split a line where values are missing."""
    found: list[list[tuple[int, float]]] = [[]]
    for at_ms, value in points:
        if value is None:
            found.append([])
        else:
            found[-1].append((at_ms, value))
    return [run for run in found if run]


def _grid(y: Callable[[float], float], top: float, unit: str) -> str:
    parts = []
    for quarter in range(5):
        value = top * quarter / 4
        at = y(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="name" x="{_LEFT - 8}" y="{at + 4:.1f}">{amount(value)}</text>')
    return "".join(parts) + f'<text class="unit" x="{_LEFT}" y="{_TOP - 3}">{escape(unit)}</text>'


def _times(x: Callable[[int], float], begin: int, end: int) -> str:
    form = (
        "%m-%d %H:%M"
        if end - begin > _DAY_MS
        else "%H:%M"
        if end - begin > 20 * 60_000
        else "%H:%M:%S"
    )
    parts = []
    for fifth in range(6):
        at_ms = begin + (end - begin) * fifth // 5
        text = datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
        anchor = "start" if fifth == 0 else "end" if fifth == 5 else "middle"
        parts.append(
            f'<text x="{x(at_ms):.1f}" y="{_HEIGHT - 12}" text-anchor="{anchor}">{text}</text>'
        )
    return "".join(parts)


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"


def _svg(height: int, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )
