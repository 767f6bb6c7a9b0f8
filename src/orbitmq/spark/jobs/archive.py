"""Topics into Parquet files, every message once: a pipeline without steps, of which nobody has to write a file.

Exactly once is what Spark's own file sink gives: the log in the folder says which files count, and readers that heed it (Spark does) see
every message once, whatever was killed and started again. The checkpoint lies in the folder too, unless told otherwise: both belong
together. Folders are by days of UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from orbitmq.spark.options import SourceOptions
from orbitmq.spark.pipeline.model import DATE, PARQUET, ROCKETMQ, STORED, Pipeline, Sink, Source, SqlStep

NAME: Final = "archive"
CHECKPOINT: Final = "_checkpoint"  # readers of Parquet pass over names that begin so
BATCH_MAX: Final = 1_000_000  # messages of one batch, and so of one set of files


class PartitionBy(StrEnum):
    """Into which folders files go."""

    DATE = "date"
    HOUR = "hour"
    NONE = "none"

    @property
    def columns(self) -> tuple[str, ...]:
        return {PartitionBy.DATE: (DATE,), PartitionBy.HOUR: (DATE, "hour"), PartitionBy.NONE: ()}[self]


def pipeline(
    topics: Sequence[str],
    folder: str,
    options: Mapping[str, str],
    *,
    partition_by: PartitionBy = PartitionBy.DATE,
    checkpoint: str | None = None,
    interval_ms: int | None = None,
) -> Pipeline:
    """The pipeline that archives; `interval_ms` is None to archive what is there, and end. `options` say where topics are."""
    source = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_MAX), "subscribe": ",".join(topics)}
    known = {name.lower() for name in options}
    if known & {"startingtimestamp", "startingoffsetsbytimestamp"}:
        del source["startingOffsets"]
    merged = {name: text for name, text in source.items() if name.lower() not in known} | dict(options)
    SourceOptions.of(merged).check_stream()
    hour = SqlStep(query="select *, hour(storeTimestamp) as hour from input", place="--partition-by")
    return Pipeline(
        name=NAME,
        file=Path(f"{NAME}.yaml"),
        source=Source(format=ROCKETMQ, options=merged, place=NAME),
        steps=(hour,) if partition_by is PartitionBy.HOUR else (),
        sinks=(
            Sink(
                name=NAME,
                format=PARQUET,
                options={},
                path=folder,
                partition_by=partition_by.columns,
                date_of=STORED,
                mode="append",
                place=f"--to {folder}",
            ),
        ),
        interval_ms=interval_ms,
        checkpoint=checkpoint or f"{folder.rstrip('/')}/{CHECKPOINT}",
        conf={},
    )
