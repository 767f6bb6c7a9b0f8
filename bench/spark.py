"""Measure the speed of our Spark connector on our broker next to Spark's Kafka connector on Kafka.
Prints one JSON line; see README.md.

Sections: all, same, three, parquet, stream, commitlog, write, latency, start. They share one Spark
session and take turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness import (
    LOSSES,
    ROOT,
    Result,
    busy_cores,
    machine,
    medians,
    refuse_stale_kernels,
    say,
    take_turns,
)
from _spark_goals import BROKER_COST, COST, RATE, WORKER_COST, Comparison, compare, lowest, table
from _spark_kafka import KafkaConnector, KafkaServer, Versions
from _spark_latency import PER_S, copy_stream
from _spark_orbitmq import Ceiling, CommitLogConnector, OrbitmqConnector
from _spark_room import Meter, messages, no_server, servers, session, touch
from _spark_start_child import SMALL_ROWS
from interop import apache
from orbitmq.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STOCK, SMALL, SAMPLE, OUT = "bench", "small", "sample", "out"
STREAM_BATCHES = 8
SAMPLE_ROWS = 10_000
LATENCY = ("p50_us", "p99_us")
COMPARISONS = {
    "all": Comparison(limit=1.3),
    "same": Comparison(limit=1.3),
    "three": Comparison(limit=2.0),
    "parquet": Comparison(limit=1.0),
    "stream": Comparison(limit=1.0),
    "commitlog": Comparison(contender="commitlog", peer="orbitmq", limit=1.5),
    "write": Comparison(limit=1.0),
    "latency": Comparison(measures=LATENCY, limit=1.3),
    "start": Comparison(measures=("all_s",)),
}
_PAIR = ("orbitmq", "kafka")
CONTENDERS = {
    **dict.fromkeys(("all", "same", "three", "parquet", "write"), (*_PAIR, "ceiling")),
    **dict.fromkeys(("stream", "latency", "start"), _PAIR),
    "commitlog": ("commitlog", "orbitmq"),
}
QUIET_WITHIN_S = 5.0
_COSTS = (COST, WORKER_COST, BROKER_COST)
_KEYS = (RATE, *_COSTS, "other_cpu")
_LATENCY_KEYS = (*_KEYS, *LATENCY, "trigger_ms")
_START_KEYS = ("session_s", "first_query_s", "first_read_s", "all_s", "other_cpu")


class Bench:
    """All running servers and sessions, and the jobs to measure."""

    def __init__(
        self,
        spark: SparkSession,
        found: dict[str, apache.Server],
        name_server: str,
        store: Path,
        options: argparse.Namespace,
    ) -> None:
        self.spark = spark
        self._options = options
        self._name_server = name_server
        self._meter = Meter(spark)
        self._home = store.parent
        self._servers = {**found, "ceiling": no_server(), "commitlog": no_server()}
        self._connectors: dict[str, Any] = {
            "orbitmq": OrbitmqConnector(spark, found["orbitmq"], name_server)
        }
        if isinstance(kafka := found.get("kafka"), KafkaServer):
            self._connectors["kafka"] = KafkaConnector(spark, kafka)
        self._connectors["commitlog"] = CommitLogConnector(spark, store)
        self._rows_out: dict[str, DataFrame] = {}

    def fill(self) -> None:
        """Fill each broker with the rows to read, written by its own connector."""
        counts = {STOCK: self._options.rows, SMALL: SMALL_ROWS, SAMPLE: SAMPLE_ROWS, OUT: 0}
        for contender in ("orbitmq", "kafka"):
            if (connector := self._connectors.get(contender)) is not None:
                say(f"{contender}: gets {self._options.rows} rows")
                for topic, count in counts.items():
                    connector.make_topic(topic)
                    if count:
                        connector.write(connector.outgoing(messages(self.spark, count)), topic)
        sample = self._connectors["orbitmq"].read(SAMPLE)
        self._connectors["ceiling"] = Ceiling(self.spark, sample, self._options.rows, self._home)

    def run(self, section: str) -> dict[str, Result]:
        """Return the results of the section's workloads by name."""
        if section == "latency":
            files = {"latency": False, "latency, file system manager": True}
            return {
                name: self._measure(name, section, self._latency(by_file_system=by))
                for name, by in files.items()
            }
        if section == "start":
            return {"start": self._starts()}
        if section == "parquet":
            frames: dict[str, Callable[[Any], DataFrame]] = {
                "parquet, all columns": lambda connector: connector.read(STOCK),
                "parquet, same columns": lambda connector: connector.same(STOCK),
            }
            return {
                name: self._measure(name, section, self._to_parquet(frame))
                for name, frame in frames.items()
            }
        jobs: dict[str, Callable[[Any], None]] = {
            "all": lambda connector: touch(connector.read(STOCK), self._options.rows),
            "same": lambda connector: touch(connector.same(STOCK), self._options.rows),
            "three": lambda connector: touch(connector.narrow(STOCK), self._options.rows),
            "commitlog": lambda connector: touch(connector.read(STOCK), self._options.rows),
            "stream": self._stream_to_parquet,
            "write": self._write,
        }
        return {section: self._measure(section, section, jobs[section])}

    def _measure(self, name: str, section: str, job: Callable[[Any], Result | None]) -> Result:
        contenders = {
            each: self._servers[each] for each in CONTENDERS[section] if each in self._connectors
        }
        counts = {
            "write": self._options.rows // 2,
            "latency": PER_S * self._options.latency_seconds,
        }
        rows = counts.get(section, self._options.rows)

        def turn(contender: str) -> Result:
            connector = self._connectors[contender]
            return self._meter.measure(lambda: job(connector), rows, self._servers[contender])

        def rounds(name: str, count: int) -> dict[str, list[Result]]:
            return take_turns(
                name,
                contenders,
                count,
                turn,
                between=self._meter.wait_until_quiet,
                quiet_within_s=QUIET_WITHIN_S,
            )

        if section == "write":
            self._prepare_rows(contenders, rows)
        if section != "latency":  # latency excludes the start by itself
            rounds(f"{name}: warm-up", 1)
        reports = rounds(name, self._options.rounds)
        keys = _LATENCY_KEYS if section == "latency" else _KEYS
        found = {
            contender: medians(of, self._options.rounds, keys) | lowest(of, _COSTS)
            for contender, of in reports.items()
        }
        for frame in self._rows_out.values():
            frame.unpersist()
        self._rows_out.clear()
        return compare(found, COMPARISONS[section])

    # -- jobs

    def _to_parquet(self, frame: Callable[[Any], DataFrame]) -> Callable[[Any], None]:
        def job(connector: Any) -> None:
            with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
                frame(connector).write.parquet(f"{directory}/rows")

        return job

    def _stream_to_parquet(self, connector: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
            writer = connector.stream(
                STOCK, self._options.rows // STREAM_BATCHES
            ).writeStream.format("parquet")
            places = {"path": f"{directory}/rows", "checkpointLocation": f"{directory}/checkpoint"}
            query = writer.options(**places).trigger(availableNow=True).start()
            query.awaitTermination()
            read = sum(progress["numInputRows"] for progress in query.recentProgress)
        if read != self._options.rows:
            raise RuntimeError(f"{read} rows were read, and there are {self._options.rows}")

    def _prepare_rows(self, contenders: dict[str, apache.Server], rows: int) -> None:
        """Cache the rows to write in Spark, in the schema of each connector."""
        for contender in contenders:
            frame = self._connectors[contender].outgoing(messages(self.spark, rows)).persist()
            frame.count()
            self._rows_out[contender] = frame

    def _write(self, connector: Any) -> None:
        contender = next(name for name, each in self._connectors.items() if each is connector)
        connector.write(self._rows_out[contender], OUT)

    def _latency(self, *, by_file_system: bool) -> Callable[[Any], Result]:
        count = PER_S * self._options.latency_seconds
        return lambda connector: copy_stream(
            self.spark, connector, count, by_file_system=by_file_system
        )

    # -- starts

    def _starts(self) -> Result:
        """Measure programs that start, run a Spark query and one on a topic, in turns."""
        reports: dict[str, list[Result]] = {each: [] for each in _PAIR if each in self._connectors}
        addresses = {
            "orbitmq": self._name_server,
            **({"kafka": self._servers["kafka"].address} if "kafka" in reports else {}),
        }
        jars = ",".join(map(str, self._options.jars))
        for number in range(self._options.rounds):
            for contender, samples in reports.items():
                where = f"start: round {number + 1}/{self._options.rounds} {contender}"
                self._meter.wait_until_quiet()
                other_cpu = busy_cores()
                child = [
                    sys.executable,
                    str(ROOT / "bench" / "_spark_start_child.py"),
                    contender,
                    addresses[contender],
                    SMALL,
                    jars,
                ]
                try:
                    run = subprocess.run(
                        child, check=True, capture_output=True, text=True, timeout=300
                    )
                except LOSSES as problem:
                    say(f"{where}: lost: {problem}")
                    continue
                samples.append(
                    {**json.loads(run.stdout.splitlines()[-1]), "other_cpu": other_cpu, RATE: 0.0}
                )
                say(f"{where} {samples[-1]['all_s']:.2f} s, others {other_cpu:.2f} cores")
        found = {
            contender: medians(of, self._options.rounds, _START_KEYS)
            for contender, of in reports.items()
        }
        return compare(found, COMPARISONS["start"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few rows, one round: does it work at all? Its numbers mean little",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how many rounds the medians are of (%(default)s)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=2_000_000,
        help="rows that are read; half as many are written (%(default)s)",
    )
    parser.add_argument(
        "--latency-seconds",
        type=int,
        default=15,
        help="how long messages are sent for a latency (%(default)s)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(COMPARISONS),
        help="measure only this section; may be repeated (all)",
    )
    parser.add_argument("--no-kafka", action="store_true", help="ours alone")
    for name in ("kafka", "connector"):
        default = getattr(Versions, name)
        parser.add_argument(
            f"--{name}",
            default=default,
            metavar="VERSION",
            help=f"which release of the {name} (%(default)s)",
        )
    options = parser.parse_args()
    options.only = [section for section in COMPARISONS if section in (options.only or COMPARISONS)]
    if options.quick:
        options.rows, options.rounds, options.latency_seconds = 200_000, 1, 6
    return options


def kafka_of(options: argparse.Namespace) -> Versions | None:
    """Return the fetched parts of Kafka, with the jars for Spark; None without Kafka."""
    options.jars = []
    if options.no_kafka:
        return None
    versions = Versions(kafka=options.kafka, connector=options.connector)
    try:
        versions.broker_jars()
        options.jars = versions.connector_jars()
    except apache.ApacheUnavailable as problem:
        say(f"kafka: left out: {problem}")
        return None
    return versions


def main() -> None:
    options = parse_arguments()
    refuse_stale_kernels()
    begin_s = time.monotonic()
    versions = kafka_of(options)
    measured: Result = {}
    with servers(versions) as (found, name_server, store), session(options.jars) as spark:
        bench = Bench(spark, found, name_server, store, options)
        bench.fill()
        for section in options.only:
            measured |= bench.run(section)
    say(table(measured))
    if options.quick:
        say("this was a quick run: its numbers mean little, and its verdicts nothing")
    releases = {
        "orbitmq": __version__,
        **{name: metadata.version(name) for name in ("pyspark", "pyarrow")},
    }
    if versions is not None:
        releases |= {
            "kafka": versions.kafka,
            "connector": versions.connector,
            "kafka-clients": versions.clients,
        }
    about = {
        "program": "spark",
        "quick": options.quick,
        "rounds": options.rounds,
        "rows": options.rows,
        "machine": machine(),
    }
    print(
        json.dumps(
            {
                **about,
                "releases": releases,
                "workloads": measured,
                "took_s": round(time.monotonic() - begin_s),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
