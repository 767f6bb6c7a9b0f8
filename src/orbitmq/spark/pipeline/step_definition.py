"""Reads the steps of a pipeline file into values, and checks the rules between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from orbitmq.spark.pipeline.document import YamlEntry
from orbitmq.spark.pipeline.model import (
    STORED,
    DedupStep,
    FilterStep,
    JsonStep,
    SqlStep,
    Step,
    WindowStep,
)

_MALFORMED: Final = ("keep", "drop", "fail")


def steps(entries: Sequence[YamlEntry], is_stream: bool) -> tuple[Step, ...]:
    """Return the steps in order."""
    kinds = [_kind(entry) for entry in entries]
    windows = [number for number, (kind, _) in enumerate(kinds) if kind == "window"]
    for number in windows[1:]:
        raise entries[number].problem(
            "this is the second window step, but a pipeline may have only one; aggregate further in"
            " another pipeline"
        )
    window = _window(kinds[windows[0]][1], is_stream) if windows else None
    found: list[Step] = []
    for number, (kind, entry) in enumerate(kinds):
        if kind == "window":
            assert window is not None, "the window was read first"
            found.append(window)
        elif kind == "dedup":
            if windows and number > windows[0]:
                raise entry.problem(
                    "dedup comes after window; put it before, where rows still have their keys"
                )
            found.append(_dedup(entry, window))
        else:
            found.append(_SIMPLE[kind](entry))
    return tuple(found)


def _kind(entry: YamlEntry) -> tuple[str, YamlEntry]:
    """Return the kind of a step and its definition."""
    known = ("json", "filter", "dedup", "window", "sql")
    block = entry.block(known)
    names = list(block)
    if len(names) != 1:
        said = " and ".join(names) or "nothing"
        raise entry.problem(
            f"{entry.path} has {said} but must be one of {', '.join(known)}: start each step with"
            " its own dash"
        )
    return names[0], block.need(names[0], "")


def _json(entry: YamlEntry) -> JsonStep:
    block = entry.block(("schema", "column", "malformed"))
    column, malformed = block.get("column"), block.get("malformed")
    return JsonStep(
        schema=block.need(
            "schema", "the columns, for example id string, amount double, at timestamp"
        ).text("columns, for example id string, amount double"),
        column=column.text("a column") if column is not None else "body",
        malformed=malformed.choice(_MALFORMED) if malformed is not None else "keep",
        place=entry.place,
    )


def _filter(entry: YamlEntry) -> FilterStep:
    return FilterStep(
        condition=entry.text("a condition, for example amount > 0"), place=entry.place
    )


def _sql(entry: YamlEntry) -> SqlStep:
    return SqlStep(query=entry.text("a query, for example select * from input"), place=entry.place)


def _dedup(entry: YamlEntry, window: WindowStep | None) -> DedupStep:
    block = entry.block(("key", "within", "time"))
    time = block.get("time")
    said = time.text("a column") if time is not None else None
    if time is not None and window is not None and said != window.time:
        raise time.problem(
            f"{time.path} is {said}, but the window's time is {window.time}: Spark supports one"
            " event time per query, so use the same for both"
        )
    within = block.need("within", "how far apart duplicate rows may be, for example 10 minutes")
    within_ms = _positive(within)
    late_ms = window.watermark_ms if window is not None else None
    return DedupStep(
        keys=block.need("key", "the column, or list of columns, that identifies a row").texts(
            "a column"
        ),
        within_ms=within_ms,
        time=said or (window.time if window is not None else STORED),
        watermark_ms=within_ms if late_ms is None else late_ms,
        place=entry.place,
    )


def _window(entry: YamlEntry, is_stream: bool) -> WindowStep:
    block = entry.block(("time", "watermark", "size", "slide", "groupBy", "aggregate"))
    size, slide, group_by = (
        block.need("size", "the length of a window, for example 1 minute"),
        block.get("slide"),
        block.get("groupBy"),
    )
    size_ms = _positive(size)
    slide_ms = _positive(slide) if slide is not None else size_ms
    if slide is not None and slide_ms > size_ms:
        raise slide.problem(
            f"{slide.path} is longer than the window's size, so rows between windows would be lost;"
            " make it shorter"
        )
    watermark = block.get("watermark")
    if watermark is None and is_stream:
        raise block.problem(
            f"{entry.path} has no watermark: the maximum lateness of a row, for example 1 minute; a"
            " window is complete that long after its end"
        )
    aggregate = block.need("aggregate", "the results by name, for example total: sum(amount)")
    return WindowStep(
        time=block.need("time", "the column with the event time").text("a column"),
        watermark_ms=watermark.duration_ms() if watermark is not None else None,
        size_ms=size_ms,
        slide_ms=slide_ms,
        group_by=group_by.texts("a column") if group_by is not None else (),
        aggregate=_aggregate(aggregate),
        place=entry.place,
    )


def _aggregate(entry: YamlEntry) -> Mapping[str, str]:
    found = {
        name: value.text("an aggregate, for example sum(amount)")
        for name, value in entry.table().items()
    }
    if not found:
        raise entry.problem(
            f"{entry.path} is an empty table but needs at least one result, for example total:"
            " sum(amount)"
        )
    return found


def _positive(entry: YamlEntry) -> int:
    found_ms = entry.duration_ms()
    if found_ms == 0:
        raise entry.problem(f"{entry.path} is 0; it must be a positive duration")
    return found_ms


_SIMPLE: Final[Mapping[str, Callable[[YamlEntry], Step]]] = {
    "json": _json,
    "filter": _filter,
    "sql": _sql,
}
