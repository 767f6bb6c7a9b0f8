"""Latency from sending a message to storing its copy, made by a stream of micro-batches: topic to
topic, at a low rate.

Both times come from this machine's clock and are in the messages themselves. The first third is
discarded: queries start slowly.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from _harness import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_S: Final = 200
BODY_SIZE: Final = 256
SETTLE_S: Final = 4.0
MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_numbers = itertools.count()


class Copying(Protocol):
    """The operations that a connector must support."""

    def make_topic(self, topic: str, *, has_store_time: bool = False) -> None: ...

    def copies(self, origin: str) -> DataFrame: ...

    def stream_sink(self, topic: str) -> tuple[str, dict[str, str]]: ...

    def times(self, topic: str) -> DataFrame: ...

    def send(self, topic: str, count: int, per_s: int, size: int) -> None: ...


def copy_stream(
    spark: SparkSession, connector: Copying, count: int, *, by_file_system: bool
) -> Result:
    """Copy this many messages as they arrive; return latencies and trigger durations."""
    number = next(_numbers)
    origin, target = f"latency-in-{number}", f"latency-out-{number}"
    connector.make_topic(origin)
    connector.make_topic(target, has_store_time=True)
    if by_file_system:
        spark.conf.set(MANAGER, BY_FILE_SYSTEM)
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
            triggers_ms = _run(connector, origin, target, count, Path(directory))
    finally:
        spark.conf.unset(MANAGER)
    pairs = sorted((row["born_ms"], row["stored_ms"]) for row in connector.times(target).collect())
    if len(pairs) != count:
        raise RuntimeError(f"{len(pairs)} of {count} messages were copied")
    taken_ms = sorted(stored_ms - born_ms for born_ms, stored_ms in pairs[count // 3 :])
    shares = {
        name: taken_ms[int(len(taken_ms) * share)] * 1000.0
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99))
    }
    return {**shares, "trigger_ms": triggers_ms}


def _run(connector: Copying, origin: str, target: str, count: int, home: Path) -> float:
    sink, options = connector.stream_sink(target)
    writer = connector.copies(origin).writeStream.format(sink).options(**options)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    try:
        time.sleep(SETTLE_S)
        connector.send(origin, count, PER_S, BODY_SIZE)
        query.processAllAvailable()
        durations = [
            each["durationMs"]["triggerExecution"]
            for each in query.recentProgress
            if each["numInputRows"]
        ]
    finally:
        query.stop()
    durations = sorted(durations[len(durations) // 3 :])
    return float(durations[len(durations) // 2])
