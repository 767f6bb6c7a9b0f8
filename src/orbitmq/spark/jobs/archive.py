"""Archives topics to Parquet files, every message once: a pipeline without steps and without a
file.

Spark's file sink delivers exactly once: its log in the folder lists the valid files, and readers
that honour it, as Spark does, see every message once across crashes and restarts. The checkpoint is
in the same folder by default, because both belong together. Folders are named by days in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from orbitmq.spark.options import SourceOptions
from orbitmq.spark.pipeline.model import (
    DATE,
    PARQUET,
    ROCKETMQ,
    STORED,
    Pipeline,
    SinkSpec,
    SourceSpec,
    SqlStep,
)

NAME: Final = "archive"
CHECKPOINT: Final = "_checkpoint"  # Parquet readers ignore names with a leading underscore
BATCH_MAX: Final = 1_000_000  # messages per batch, and so per set of files


class PartitionBy(StrEnum):
    """How archived files are partitioned into folders."""

    DATE = "date"
    HOUR = "hour"
    NONE = "none"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to partition by."""
        return {PartitionBy.DATE: (DATE,), PartitionBy.HOUR: (DATE, "hour"), PartitionBy.NONE: ()}[
            self
        ]


def pipeline(
    topics: Sequence[str],
    folder: str,
    options: Mapping[str, str],
    *,
    partition_by: PartitionBy = PartitionBy.DATE,
    checkpoint: str | None = None,
    interval_ms: int | None = None,
) -> Pipeline:
    """Return the archiving pipeline. `interval_ms` None archives what is there and ends; `options`
    say how to reach the topics.
    """
    source = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH_MAX),
        "subscribe": ",".join(topics),
    }
    known = {name.lower() for name in options}
    if known & {"startingtimestamp", "startingoffsetsbytimestamp"}:
        del source["startingOffsets"]
    merged = {name: text for name, text in source.items() if name.lower() not in known} | dict(
        options
    )
    SourceOptions.of(merged).check_stream()
    hour = SqlStep(
        query="select *, hour(storeTimestamp) as hour from input", place="--partition-by"
    )
    return Pipeline(
        name=NAME,
        file=Path(f"{NAME}.yaml"),
        source=SourceSpec(format=ROCKETMQ, options=merged, place=NAME),
        steps=(hour,) if partition_by is PartitionBy.HOUR else (),
        sinks=(
            SinkSpec(
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
