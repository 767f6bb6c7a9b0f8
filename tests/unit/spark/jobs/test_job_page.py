"""Tests the charts and the HTML page of a report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.jobs import charts
from orbitmq.spark.jobs.report import TopicReport, interval
from orbitmq.spark.jobs.report_page import page

VALUES = st.one_of(st.none(), st.floats(-1e9, 1e12, allow_nan=False))
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60)


def drawn(text: str) -> list[ElementTree.Element]:
    """Return the charts of a page; each must be well-formed."""
    return [
        ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    ]


@given(series=st.dictionaries(NAMES, st.lists(VALUES, min_size=3, max_size=3), max_size=4))
def test_lines_stay_in_their_box_whatever_they_are_of(
    series: dict[str, list[float | None]],
) -> None:
    times = (1_700_000_000_000, 1_700_000_060_000, 1_700_000_120_000)
    text = charts.lines(
        {name: list(zip(times, values, strict=True)) for name, values in series.items()},
        "messages/s",
    )
    for plot in drawn(text):
        for line in plot.iter("polyline"):
            for place in line.attrib["points"].split():
                x, y = map(float, place.split(","))
                assert 0 <= x <= 960
                assert 0 <= y <= 260


@given(values=st.lists(st.tuples(NAMES, st.floats(0, 1e15, allow_nan=False)), max_size=6))
def test_each_name_has_its_bar(values: list[tuple[str, float]]) -> None:
    plots = drawn(charts.bars(values, "messages"))
    assert sum(len(list(plot.iter("rect"))) for plot in plots) == len(values)
    assert all(
        0 <= float(bar.attrib["width"]) <= 960 for plot in plots for bar in plot.iter("rect")
    )


@given(value=st.floats(1e-9, 1e15))
def test_the_next_round_number_is_not_below_and_not_far_above(value: float) -> None:
    assert value * (1 - 1e-6) <= charts.nice(value) <= value * 2.5 * (1 + 1e-6)


@given(begin=st.integers(0, 2 * 10**12), length=st.integers(0, 10**12))
def test_a_time_of_any_length_has_a_number_of_intervals_that_can_be_looked_at(
    begin: int, length: int
) -> None:
    width = interval(begin, begin + length)
    assert (begin + length) // width - begin // width < 120


def test_a_page_without_messages_says_so_and_shows_groups_all_the_same() -> None:
    group = {"topic": "a & b", "group": "<readers>", "lag": 7, "consumed_per_s": 0.0}
    empty = TopicReport(
        since_ms=None,
        until_ms=None,
        interval_ms=1000,
        topics=(),
        queues=(),
        tags=(),
        timeline=(),
        groups=(group,),
    )
    text = page(empty, "Report of a & b", 1_700_000_000_000)
    assert "no messages" in text
    assert "Report of a &amp; b" in text
    assert "&lt;readers&gt;" in text
    assert "made 2023-11-14 22:13:20 UTC" in text
