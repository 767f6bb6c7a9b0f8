"""What a pipeline is, as values. `place` is where in the file, or on the command line, something was said: problems are told with it."""

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
STREAMS: Final = (ROCKETMQ, RATE)  # the sources that have no end
SOURCES: Final = (ROCKETMQ, COMMIT_LOG, PARQUET, RATE)
SINKS: Final = (ROCKETMQ, PARQUET, CONSOLE)
DATE: Final = "date"  # the column that a Parquet sink makes itself, from a time
STORED: Final = "storeTimestamp"  # the time that every message has, and that goes forward within a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from."""

    format: str
    options: Mapping[str, str]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonStep:
    """A column of JSON texts becomes columns."""

    schema: str
    column: str
    malformed: str  # keep: its columns are null; drop; fail
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """Rows that do not fulfil a condition go."""

    condition: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupStep:
    """Of rows with the same keys that are not further apart than so much, the first stays."""

    keys: tuple[str, ...]
    within_ms: int
    time: str
    watermark_ms: int  # how late a row may come
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep:
    """Rows are aggregated by windows of time."""

    time: str
    watermark_ms: int | None  # None only where everything is read at once
    size_ms: int
    slide_ms: int
    group_by: tuple[str, ...]
    aggregate: Mapping[str, str]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A query over what there is so far, which is called `input`."""

    query: str
    place: str


Step = JsonStep | FilterStep | DedupStep | WindowStep | SqlStep
STEP_NAMES: Final[Mapping[type, str]] = {JsonStep: "json", FilterStep: "filter", DedupStep: "dedup", WindowStep: "window", SqlStep: "sql"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where rows go. What does not concern its format is empty."""

    name: str  # of its query, its checkpoint and its consumer group
    format: str
    options: Mapping[str, str]
    path: str = ""
    partition_by: tuple[str, ...] = ()
    date_of: str | None = None  # the column that `date` is taken from
    mode: str
    rows: int = 0  # how many of a batch a console shows
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole file."""

    name: str
    file: Path
    source: Source
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    interval_ms: int | None  # between batches; None: read what is there, and end
    checkpoint: str  # a folder or an address; each sink has its own in it
    conf: Mapping[str, str]

    @property
    def is_stream(self) -> bool:
        return self.source.format in STREAMS

    @property
    def status_file(self) -> Path:
        """Beside the checkpoint, or beside the file when the checkpoint is not on this machine."""
        folder = local_folder(self.checkpoint)
        return self.file.with_suffix(".status.json") if folder is None else folder.with_name(f"{folder.name}.status.json")

    def source_of(self, sink: Sink) -> Source:
        """The source as it is read for one sink: each has a consumer group of its own, since each goes its own pace."""
        names = [name for name in self.source.options if name.lower() == "consumergroup"]
        if not names or len(self.sinks) == 1:
            return self.source
        options = {**self.source.options, names[0]: f"{self.source.options[names[0]]}-{sink.name}"}
        return Source(format=self.source.format, options=options, place=self.source.place)

    def checkpoint_of(self, sink: Sink) -> str:
        return f"{self.checkpoint.rstrip('/')}/{sink.name}"


def local_folder(location: str) -> Path | None:
    """A location as a path of this machine; None for one elsewhere, and for none at all."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return Path(location) if location and "://" not in location else None
