"""Reads a pipeline file into values. Pure: needs no Spark and makes no connection.

Schemas, conditions and queries are passed on unchecked: only Spark can judge them. Relative paths
are relative to the file's folder, so a pipeline means the same wherever it is started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.pipeline import document
from orbitmq.spark.pipeline.document import YamlEntry, YamlTable
from orbitmq.spark.pipeline.format_options import check_source, options_of, resolve_path
from orbitmq.spark.pipeline.model import (
    COMMIT_LOG,
    PARQUET,
    ROCKETMQ,
    SOURCES,
    STREAMS,
    Pipeline,
    SourceSpec,
)
from orbitmq.spark.pipeline.sink_definition import sinks
from orbitmq.spark.pipeline.step_definition import steps

_KEYS: Final = ("name", "source", "steps", "sinks", "trigger", "checkpoint", "conf")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SECTION: Final = re.compile(r"^(source|sinks)\s*:", re.MULTILINE)


def load(
    file: Path, settings: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Pipeline:
    """Return the pipeline of a file; raises ConfigurationError with file, line and remedy for any
    mistake.
    """
    environment = os.environ if environment is None else environment
    root = document.load(file, settings).block(_KEYS)
    folder = file.absolute().parent
    source = _source(
        root.need(
            "source", "where rows come from, for example source: {format: rocketmq, options: {…}}"
        ),
        folder,
        environment,
    )
    is_stream = source.format in STREAMS
    listed = root.get("steps")
    return Pipeline(
        name=_name(root.need("name", "the name of the pipeline")),
        file=file,
        source=source,
        steps=steps(listed.items(), is_stream) if listed is not None else (),
        sinks=sinks(
            root.need("sinks", "a list of where rows go").items(),
            source,
            folder,
            environment,
        ),
        interval_ms=_interval_ms(root.get("trigger")),
        checkpoint=_checkpoint(root, is_stream, folder, environment),
        conf=options_of(root.get("conf"), environment),
    )


def is_pipeline(file: Path) -> bool:
    """Return whether a file is meant as a pipeline: its folder may hold other YAML files, but
    mistakes in a pipeline must be reported.
    """
    try:
        return {"source", "sinks"} <= set(document.load(file).table())
    except ConfigurationError:
        pass
    try:
        return set(_SECTION.findall(file.read_text(errors="replace"))) == {"source", "sinks"}
    except OSError:
        return False


def _name(entry: YamlEntry) -> str:
    name = entry.text()
    if not _NAME.fullmatch(name):
        raise entry.problem(
            f"name is {name!r} but must have at most 100 letters, digits and characters of . _ -"
        )
    return name


def _source(entry: YamlEntry, folder: Path, environment: Mapping[str, str]) -> SourceSpec:
    kind = entry.table().get("format")
    form = kind.choice(SOURCES) if kind is not None else ""
    has_path = form in (COMMIT_LOG, PARQUET)
    block = entry.block(
        ("format", "options") if form and not has_path else ("format", "path", "options"), form
    )
    block.need("format", f"one of {', '.join(SOURCES)}")
    options = options_of(block.get("options"), environment)
    if has_path:
        options["path"] = resolve_path(
            block.need("path", "the folder to read"),
            folder,
            environment,
            is_list=form == COMMIT_LOG,
        )
    if form in (ROCKETMQ, COMMIT_LOG):
        check_source(entry, form, options)
    return SourceSpec(format=form, options=options, place=entry.place)


def _interval_ms(entry: YamlEntry | None) -> int | None:
    """Return the trigger interval, 0 for as soon as possible; None to read what is there
    and end.
    """
    if entry is None:
        return 0
    block = entry.block(("processingTime", "availableNow"))
    interval, once = block.get("processingTime"), block.get("availableNow")
    if (interval is None) == (once is None):
        raise block.problem(
            "trigger must be processingTime, for example 5 seconds, or availableNow: true"
        )
    if once is not None:
        if not once.flag():
            raise once.problem("trigger.availableNow is false; leave it out, or use processingTime")
        return None
    assert interval is not None, "one of them is given"
    return interval.duration_ms()


def _checkpoint(
    root: YamlTable, is_stream: bool, folder: Path, environment: Mapping[str, str]
) -> str:
    entry = root.get("checkpoint")
    if entry is None and is_stream:
        raise root.problem(
            "the file has no checkpoint: a folder for the progress of the pipeline, for example"
            " out/checkpoint"
        )
    return "" if entry is None else resolve_path(entry, folder, environment)
