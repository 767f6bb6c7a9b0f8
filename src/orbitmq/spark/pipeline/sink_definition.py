"""Reads the sinks of a pipeline file into values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

from orbitmq.spark.pipeline.document import YamlEntry, YamlTable
from orbitmq.spark.pipeline.format_options import (
    check_sink,
    options_of,
    resolve_path,
    with_connection,
)
from orbitmq.spark.pipeline.model import (
    CONSOLE,
    DATE,
    PARQUET,
    ROCKETMQ,
    SINKS,
    STREAMS,
    SinkSpec,
    SourceSpec,
)

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    ROCKETMQ: ("format", "name", "options", "mode"),
    PARQUET: ("format", "name", "path", "partitionBy", "dateOf", "options", "mode"),
    CONSOLE: ("format", "name", "rows", "mode"),
}
_STREAM_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    ROCKETMQ: ("append", "update"),
    PARQUET: ("append",),
    CONSOLE: ("append", "update"),
}
_BATCH_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    ROCKETMQ: ("append",),
    PARQUET: ("error", "append", "overwrite"),
    CONSOLE: ("append",),
}
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ROWS: Final = 20
_ROWS_MAX: Final = 10_000


def sinks(
    entries: Sequence[YamlEntry], source: SourceSpec, folder: Path, environment: Mapping[str, str]
) -> tuple[SinkSpec, ...]:
    """Return the sinks in order; no two may have the same name or folder."""
    found = tuple(_sink(entry, source, folder, environment) for entry in entries)
    for number, (entry, sink) in enumerate(zip(entries, found, strict=True)):
        for other in found[:number]:
            if sink.path and sink.path == other.path:
                raise entry.problem(
                    f"{entry.path} writes to {sink.path} like the sink at {other.place}; give each"
                    " its own folder"
                )
            if sink.name == other.name:
                raise entry.problem(
                    f"{entry.path} is called {sink.name} like the sink at {other.place}; rename one"
                    " of them"
                )
    return found


def _sink(
    entry: YamlEntry, source: SourceSpec, folder: Path, environment: Mapping[str, str]
) -> SinkSpec:
    kind = entry.table().get("format")
    form = kind.choice(SINKS) if kind is not None else ""
    block = entry.block(
        _KEYS.get(form, tuple(dict.fromkeys(key for keys in _KEYS.values() for key in keys))), form
    )
    block.need("format", f"one of {', '.join(SINKS)}")
    options = options_of(block.get("options"), environment)
    mode = _mode(block.get("mode"), form, source.format in STREAMS)
    if form == ROCKETMQ:
        options = with_connection(options, source.options if source.format == ROCKETMQ else {})
        check_sink(entry, options, is_stream=source.format in STREAMS)
        _locate_transaction_log(block, options, mode, folder, environment)
    path = (
        resolve_path(block.need("path", "the folder to write to"), folder, environment)
        if form == PARQUET
        else ""
    )
    partition_by, date_of, rows = block.get("partitionBy"), block.get("dateOf"), block.get("rows")
    columns = partition_by.texts("a column") if partition_by is not None else ()
    if date_of is not None and DATE not in columns:
        raise date_of.problem(
            f"{date_of.path} defines {DATE}, but partitionBy has no {DATE}; add it, or leave dateOf"
            " out"
        )
    return SinkSpec(
        name=_name(block, form, options, path),
        format=form,
        options=options,
        path=path,
        partition_by=columns,
        date_of=date_of.text("a column") if date_of is not None else None,
        mode=mode,
        rows=rows.whole(1, _ROWS_MAX) if rows is not None else _ROWS,
        place=entry.place,
    )


def _locate_transaction_log(
    block: YamlTable,
    options: dict[str, str],
    mode: str,
    folder: Path,
    environment: Mapping[str, str],
) -> None:
    """Resolve the path of the transaction log against the file's folder."""
    given = block.get("options")
    for name, entry in (given.table() if given is not None else {}).items():
        if name.lower() == "transactionlog":
            if mode == "update":
                raise entry.problem(
                    f"{entry.path}: with mode update the transaction log is in the checkpoint;"
                    " leave transactionLog out"
                )
            options[name] = resolve_path(entry, folder, environment)


def _name(block: YamlTable, form: str, options: Mapping[str, str], path: str) -> str:
    """Return the given name, or one derived from the target: a sink with another target starts
    over.
    """
    if (given := block.get("name")) is not None:
        name = given.text()
        if not _NAME.fullmatch(name):
            raise given.problem(
                f"{given.path} is {name!r} but must have at most 100 letters, digits and characters"
                " of _ -"
            )
        return name
    topic = next((text for name, text in options.items() if name.lower() == "topic"), "")
    target = topic or PurePath(path).name
    return re.sub(r"[^A-Za-z0-9_-]", "-", f"{form}-{target}" if target else form)[:100]


def _mode(entry: YamlEntry | None, form: str, is_stream: bool) -> str:
    allowed = (_STREAM_MODES if is_stream else _BATCH_MODES)[form]
    if entry is None:
        return allowed[0]
    read = "a stream is written" if is_stream else "everything is read at once"
    return entry.choice(allowed, f" where {read} to {form}")
