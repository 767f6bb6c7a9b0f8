"""The parts of a pipeline as values. `place` is their position in the file or on the command line,
for errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROCKETMQ: Final = "rocketmq"
COMMIT_LOG: Final = "rocketmq-commitlog"
PARQUET: Final = "parquet"
RATE: Final = "rate"
CONSOLE: Final = "console"
STREAMS: Final = (ROCKETMQ, RATE)  # infinite sources
SOURCES: Final = (ROCKETMQ, COMMIT_LOG, PARQUET, RATE)
SINKS: Final = (ROCKETMQ, PARQUET, CONSOLE)
DATE: Final = "date"  # the column that a Parquet sink derives from a time
STORED: Final = "storeTimestamp"  # set in every message, and increasing within a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Where rows come from."""

    format: str
    options: Mapping[str, str]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonStep:
    """Parses a column of JSON strings into columns."""

    schema: str
    column: str
    malformed: str  # keep (with null columns), drop or fail
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """Keeps rows that match a condition."""

    condition: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupStep:
    """Keeps the first of rows with the same keys within `within_ms`."""

    keys: tuple[str, ...]
    within_ms: int
    time: str
    watermark_ms: int  # maximum lateness of a row
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep:
    """Aggregates rows by time windows."""

    time: str
    watermark_ms: int | None  # None only in a batch
    size_ms: int
    slide_ms: int
    group_by: tuple[str, ...]
    aggregate: Mapping[str, str]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """Runs a query over the rows so far, which are called `input`."""

    query: str
    place: str


Step = JsonStep | FilterStep | DedupStep | WindowStep | SqlStep
STEP_NAMES: Final[Mapping[type, str]] = {
    JsonStep: "json",
    FilterStep: "filter",
    DedupStep: "dedup",
    WindowStep: "window",
    SqlStep: "sql",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where rows go. Fields that do not apply to its format are empty."""

    name: str  # also of its query, checkpoint and consumer group
    format: str
    options: Mapping[str, str]
    path: str = ""
    partition_by: tuple[str, ...] = ()
    date_of: str | None = None  # the column from which `date` is derived
    mode: str
    rows: int = 0  # rows per batch that a console shows
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline file."""

    name: str
    file: Path
    source: SourceSpec
    steps: tuple[Step, ...]
    sinks: tuple[SinkSpec, ...]
    interval_ms: int | None  # between batches; None: read what is there and end
    checkpoint: str  # path or URI; each sink has a subfolder
    conf: Mapping[str, str]

    @property
    def is_stream(self) -> bool:
        """Whether the source is infinite."""
        return self.source.format in STREAMS

    @property
    def status_file(self) -> Path:
        """The status file: next to the checkpoint, or next to the pipeline file if the checkpoint
        is remote.
        """
        folder = local_folder(self.checkpoint)
        return (
            self.file.with_suffix(".status.json")
            if folder is None
            else folder.with_name(f"{folder.name}.status.json")
        )

    def source_of(self, sink: SinkSpec) -> SourceSpec:
        """Return the source as one sink reads it: each sink has its own consumer group, because
        each progresses on its own.
        """
        names = [name for name in self.source.options if name.lower() == "consumergroup"]
        if not names or len(self.sinks) == 1:
            return self.source
        options = {**self.source.options, names[0]: f"{self.source.options[names[0]]}-{sink.name}"}
        return SourceSpec(format=self.source.format, options=options, place=self.source.place)

    def checkpoint_of(self, sink: SinkSpec) -> str:
        """Return the checkpoint of one sink."""
        return f"{self.checkpoint.rstrip('/')}/{sink.name}"


def local_folder(location: str) -> Path | None:
    """Return a location as a local path; None if it is remote or empty."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return Path(location) if location and "://" not in location else None
