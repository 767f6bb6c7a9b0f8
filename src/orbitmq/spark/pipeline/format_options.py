"""The options of a format and the places that are said in the file: checked by those who will read them, and told with their line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.commitlog_options import CommitLogOptions
from orbitmq.spark.option_texts import OptionTexts
from orbitmq.spark.options import CONNECTION_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS, SourceOptions
from orbitmq.spark.pipeline.document import Entry
from orbitmq.spark.pipeline.model import COMMIT_LOG
from orbitmq.spark.sink_options import SinkOptions

_KEYS: Final = frozenset({"accesskey", "secretkey", "securitytoken"})
_OPTION: Final = re.compile(r"\boptions? (\w+)")


def options_of(entry: Entry | None, environment: Mapping[str, str]) -> dict[str, str]:
    """A table of options as texts; empty when there is none."""
    return {} if entry is None else {name: value.expanded(environment) for name, value in entry.table().items()}


def check_source(entry: Entry, form: str, options: Mapping[str, str]) -> None:
    """Refuse what the source would refuse."""
    with _told_with_line(entry):
        if form == COMMIT_LOG:
            CommitLogOptions.of(options)
            return
        OptionTexts(options).check_names((*CONNECTION_OPTIONS, *SOURCE_OPTIONS))
        SourceOptions.of(options).check_stream()


def check_sink(entry: Entry, options: Mapping[str, str], *, is_stream: bool) -> None:
    """Refuse what the sink would refuse; a stream has a checkpoint."""
    with _told_with_line(entry):
        OptionTexts(options).check_names((*CONNECTION_OPTIONS, *SINK_OPTIONS))
        SinkOptions.of({**options, "checkpointLocation": "."} if is_stream else options)


def with_connection(options: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Options of a sink that names no cluster, with how the source reaches its own where they say nothing of it."""
    given = {name.lower(): text for name, text in options.items()}
    if "nameserver" in given:
        return dict(options)
    inherited = {name.lower() for name in CONNECTION_OPTIONS} - given.keys()
    if _KEYS & given.keys():
        inherited -= _KEYS  # they belong together
    if given.get("tlsenable", "").strip().lower() == "false":
        inherited = {name for name in inherited if not name.startswith("tls")}
    return {**{name: text for name, text in other.items() if name.lower() in inherited}, **options}


def located(entry: Entry, folder: Path, environment: Mapping[str, str], *, is_list: bool = False) -> str:
    """A path as seen from the file's folder, or from here if it was said here; an address of somewhere else stays as it is.

    `is_list`: there may be several, with commas between them.
    """
    base = Path.cwd() if entry.is_of_command_line else folder
    text = entry.expanded(environment, "a path")
    paths = [path.strip() for path in text.split(",")] if is_list else [text]
    return ",".join(path if "://" in path or path.startswith("file:") else str(base / path) for path in paths)


@contextmanager
def _told_with_line(entry: Entry) -> Iterator[None]:
    """Tell a problem at the line of the option that it names, or at that of all."""
    try:
        yield
    except ConfigurationError as problem:
        given = entry.table().get("options")
        lines = {name.lower(): option for name, option in given.table().items()} if given is not None else {}
        named = _OPTION.search(str(problem))
        raise lines.get(named[1].lower() if named else "", given or entry).problem(f"{entry.path}: {problem}") from None
