"""The pipeline file, read into values. Pure: Spark is not needed, and nobody is asked.

What only Spark can judge (schemas, conditions, queries) is taken as it is. Paths are those of the file's folder unless they are absolute:
a pipeline is the same from wherever it is started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.pipeline import document
from orbitmq.spark.pipeline.document import Block, Entry
from orbitmq.spark.pipeline.format_options import check_source, located, options_of
from orbitmq.spark.pipeline.model import COMMIT_LOG, PARQUET, ROCKETMQ, SOURCES, STREAMS, Pipeline, Source
from orbitmq.spark.pipeline.sink_definition import sinks
from orbitmq.spark.pipeline.step_definition import steps

_KEYS: Final = ("name", "source", "steps", "sinks", "trigger", "checkpoint", "conf")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SECTION: Final = re.compile(r"^(source|sinks)\s*:", re.MULTILINE)


def load(file: Path, settings: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of a file; ConfigurationError with file, line and what to do about whatever is wrong."""
    environment = os.environ if environment is None else environment
    root = document.load(file, settings).block(_KEYS)
    folder = file.absolute().parent
    source = _source(root.need("source", "where rows come from, as source: {format: rocketmq, options: {…}}"), folder, environment)
    is_stream = source.format in STREAMS
    listed = root.get("steps")
    return Pipeline(
        name=_name(root.need("name", "what the pipeline is called")),
        file=file,
        source=source,
        steps=steps(listed.items(), is_stream) if listed is not None else (),
        sinks=sinks(root.need("sinks", "where rows go, as a list of them").items(), source, folder, environment),
        interval_ms=_interval_ms(root.get("trigger")),
        checkpoint=_checkpoint(root, is_stream, folder, environment),
        conf=options_of(root.get("conf"), environment),
    )


def is_pipeline(file: Path) -> bool:
    """Whether a file means to be a pipeline: other YAML lies in the same folders, and a mistake in a pipeline has to be told."""
    try:
        return {"source", "sinks"} <= set(document.load(file).table())
    except ConfigurationError:
        pass
    try:
        return set(_SECTION.findall(file.read_text(errors="replace"))) == {"source", "sinks"}
    except OSError:
        return False


def _name(entry: Entry) -> str:
    name = entry.text()
    if not _NAME.fullmatch(name):
        raise entry.problem(f"name is {name!r}, and has to be of letters, digits and . _ - only, 100 at most")
    return name


def _source(entry: Entry, folder: Path, environment: Mapping[str, str]) -> Source:
    kind = entry.table().get("format")
    form = kind.choice(SOURCES) if kind is not None else ""
    has_path = form in (COMMIT_LOG, PARQUET)
    block = entry.block(("format", "options") if form and not has_path else ("format", "path", "options"), form)
    block.need("format", f"one of {', '.join(SOURCES)}")
    options = options_of(block.get("options"), environment)
    if has_path:
        options["path"] = located(block.need("path", "the folder to read"), folder, environment, is_list=form == COMMIT_LOG)
    if form in (ROCKETMQ, COMMIT_LOG):
        check_source(entry, form, options)
    return Source(format=form, options=options, place=entry.place)


def _interval_ms(entry: Entry | None) -> int | None:
    """How often a batch begins, 0 for as soon as there is something; None to read what is there, and end."""
    if entry is None:
        return 0
    block = entry.block(("processingTime", "availableNow"))
    interval, once = block.get("processingTime"), block.get("availableNow")
    if (interval is None) == (once is None):
        raise block.problem("trigger has to be processingTime, as 5 seconds, or availableNow: true")
    if once is not None:
        if not once.flag():
            raise once.problem("trigger.availableNow is false; leave it out, or write processingTime")
        return None
    assert interval is not None, "one of them is there"
    return interval.duration_ms()


def _checkpoint(root: Block, is_stream: bool, folder: Path, environment: Mapping[str, str]) -> str:
    entry = root.get("checkpoint")
    if entry is None and is_stream:
        raise root.problem("the file has no checkpoint: the folder that keeps how far the pipeline is, as out/checkpoint")
    return "" if entry is None else located(entry, folder, environment)
