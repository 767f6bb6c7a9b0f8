"""What the tests of reading stores without a broker share: the driver's and the executors' part of
a read, in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from orbitmq.spark import schema
from orbitmq.spark.commitlog.options import CommitLogOptions
from orbitmq.spark.commitlog.pieces import LogPiece
from orbitmq.spark.commitlog.source import CommitLogReader, LogPartition
from support.spark.rows import rows_in


def options(root: Path | str, **others: str) -> CommitLogOptions:
    return CommitLogOptions.of({"path": str(root), **others})


def pieces(root: Path | str, **others: str) -> list[LogPiece]:
    """What executors would be given."""
    found = []
    for partition in CommitLogReader(options(root, **others), tuple(schema.COLUMNS)).partitions():
        assert isinstance(partition, LogPartition)
        found.append(partition.piece)
    return found


def rows(
    root: Path | str, columns: tuple[str, ...] = tuple(schema.COLUMNS), **others: str
) -> list[dict[str, Any]]:
    """The rows of a whole read, in the order of the log."""
    reader = CommitLogReader(options(root, **others), columns)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return rows_in(pa.Table.from_batches(batches, schema.arrow_schema(columns)))


def offsets(root: Path | str, **others: str) -> list[int]:
    """The log offsets of the rows."""
    return [row["commitLogOffset"] for row in rows(root, ("commitLogOffset",), **others)]
