"""Checks format options and resolves paths of a pipeline file; errors name the line of the
option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.commitlog.options import CommitLogOptions
from orbitmq.spark.option_reader import OptionReader
from orbitmq.spark.options import CONNECTION_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS, SourceOptions
from orbitmq.spark.pipeline.document import YamlEntry
from orbitmq.spark.pipeline.model import COMMIT_LOG
from orbitmq.spark.sink.options import SinkOptions

_CREDENTIALS: Final = frozenset({"accesskey", "secretkey", "securitytoken"})
_OPTION: Final = re.compile(r"\boptions? (\w+)")


def options_of(entry: YamlEntry | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a table of options as strings; empty if it is missing."""
    return (
        {}
        if entry is None
        else {name: value.expanded(environment) for name, value in entry.table().items()}
    )


def check_source(entry: YamlEntry, form: str, options: Mapping[str, str]) -> None:
    """Refuse options that the source would refuse."""
    with _located_at_option(entry):
        if form == COMMIT_LOG:
            CommitLogOptions.of(options)
            return
        OptionReader(options).check_names((*CONNECTION_OPTIONS, *SOURCE_OPTIONS))
        SourceOptions.of(options).check_stream()


def check_sink(entry: YamlEntry, options: Mapping[str, str], *, is_stream: bool) -> None:
    """Refuse options that the sink would refuse; a stream has a checkpoint."""
    with _located_at_option(entry):
        OptionReader(options).check_names((*CONNECTION_OPTIONS, *SINK_OPTIONS))
        SinkOptions.of({**options, "checkpointLocation": "."} if is_stream else options)


def with_connection(options: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a sink; one that names no cluster inherits missing connection options
    from the source.
    """
    given = {name.lower(): text for name, text in options.items()}
    if "nameserver" in given:
        return dict(options)
    inherited = {name.lower() for name in CONNECTION_OPTIONS} - given.keys()
    if _CREDENTIALS & given.keys():
        inherited -= _CREDENTIALS  # credentials are inherited together
    if given.get("tlsenable", "").strip().lower() == "false":
        inherited = {name for name in inherited if not name.startswith("tls")}
    return {**{name: text for name, text in other.items() if name.lower() in inherited}, **options}


def resolve_path(
    entry: YamlEntry, folder: Path, environment: Mapping[str, str], *, is_list: bool = False
) -> str:
    """Resolve a path against the file's folder, or the current folder if it comes from the command
    line; a URI stays unchanged.

    With `is_list`, there may be several paths, separated by commas.
    """
    base = Path.cwd() if entry.is_of_command_line else folder
    text = entry.expanded(environment, "a path")
    paths = [path.strip() for path in text.split(",")] if is_list else [text]
    return ",".join(
        path if "://" in path or path.startswith("file:") else str(base / path) for path in paths
    )


@contextmanager
def _located_at_option(entry: YamlEntry) -> Iterator[None]:
    """Re-raise an error with the line of the option it names, or of all options."""
    try:
        yield
    except ConfigurationError as problem:
        given = entry.table().get("options")
        lines = (
            {name.lower(): option for name, option in given.table().items()}
            if given is not None
            else {}
        )
        named = _OPTION.search(str(problem))
        raise lines.get(named[1].lower() if named else "", given or entry).problem(
            f"{entry.path}: {problem}"
        ) from None
