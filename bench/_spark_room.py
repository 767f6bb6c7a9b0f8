"""One Spark session for all contenders, the resources its processes use, the measured rows, and the
servers they are read from.

Invariant: every contender is measured in the same session of the same JVM. CPU time is that of the
JVM with its Python workers; that of servers is reported separately.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from _broker_room import broker
from _harness import LOSSES, QUIET_CPU_MAX, Result, busy_seconds, cpu_seconds, running, say
from _spark_kafka import NEWER_PATH, PARTITIONS, KafkaServer, Versions
from _spark_orbitmq import LARGE_ANSWERS
from interop import apache, subject
from orbitmq.spark import runtime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

SAMPLE_S: Final = 0.5
CONF: Final = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "5000",
    **NEWER_PATH,
}


def master() -> str:
    return f"local[{os.cpu_count()}]"


@contextmanager
def session(jars: Collection[Path]) -> Iterator[SparkSession]:
    """Return a session whose workers can import the modules of this folder."""
    folder = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    conf = {**CONF, **({"spark.jars": ",".join(map(str, jars))} if jars else {})}
    spark = runtime.session(master(), "bench", conf)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def servers(versions: Versions | None) -> Iterator[tuple[dict[str, apache.Server], str, Path]]:
    """Start our broker as `orbitmq` and, if available, Kafka as `kafka`; yield them with our name
    server's address and our broker's store.
    """
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory, ExitStack() as stack:
        home = Path(directory)
        names = subject.name_server(home / "names")
        stack.enter_context(apache.running(names))
        ours: dict[str, Path] = {}

        def make(contender: str, place: Path) -> apache.Server:
            ours[contender] = place / "store"
            return broker(
                contender,
                place,
                apache_version="",
                settings=LARGE_ANSWERS,
                name_server=names.address,
            )

        found = stack.enter_context(running(make, ["orbitmq"]))
        if versions is not None:
            try:
                kafka = KafkaServer(versions, home / "kafka")
                stack.enter_context(apache.running(kafka))
                found["kafka"] = kafka
            except (*LOSSES, apache.ApacheUnavailable) as problem:
                say(f"kafka: left out: {problem}")
        yield found, names.address, ours["orbitmq"]


def no_server() -> apache.Server:
    """Return a placeholder for contenders without a server; it never runs."""
    return apache.Server([], 0, Path(os.devnull))


class Meter:
    """Measures the resources that a session's processes, and servers, use during a job."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._root = gateway.proc.pid

    def measure(self, job: Callable[[], Result | None], rows: int, server: apache.Server) -> Result:
        """Run the job; return rate and CPU time per row, and the job's own report."""
        before = self._used_besides(server)
        begin_s = time.monotonic()
        with TreeSampler(self._root) as tree:
            extra = job() or {}
        seconds = time.monotonic() - begin_s
        server_s, own_s, busy_s = (
            now - then for now, then in zip(self._used_besides(server), before, strict=True)
        )
        return {
            "messages_per_s": rows / seconds,
            "client_us_per_message": tree.used_s * 1e6 / rows,
            "worker_us_per_message": (tree.used_s - tree.root_used_s) * 1e6 / rows,
            "broker_us_per_message": server_s * 1e6 / rows,
            "other_cpu": max(0.0, (busy_s - tree.used_s - server_s - own_s) / seconds),
            **extra,
        }

    def wait_until_quiet(self, within_s: float = 5.0) -> None:
        """Wait until the session is idle: a JVM goes on compiling after its work has ended."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            with TreeSampler(self._root) as tree:
                time.sleep(0.5)
            if tree.used_s <= 0.5 * QUIET_CPU_MAX:
                return

    def _used_besides(self, server: apache.Server) -> tuple[float, float, float]:
        """Return the CPU time of the server, of this process, and of all processes."""
        return (
            cpu_seconds(server) if server.is_alive() else 0.0,
            time.process_time(),
            busy_seconds(),
        )


class TreeSampler:
    """The CPU time of a process and its descendants while the `with` block lasts.

    They are sampled repeatedly: the CPU time of processes that end is lost, since Spark's daemon
    does not wait for its workers.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._begin_s: dict[int, float] = {}
        self._last_s: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)

    def __enter__(self) -> Self:
        self._begin_s = tree_cpu_seconds(self._root)
        self._last_s = dict(self._begin_s)
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._thread.join()
        self._last_s |= tree_cpu_seconds(self._root)

    @property
    def used_s(self) -> float:
        return sum(used_s - self._begin_s.get(pid, 0.0) for pid, used_s in self._last_s.items())

    @property
    def root_used_s(self) -> float:
        """Return the CPU time of the root process."""
        return self._last_s[self._root] - self._begin_s[self._root]

    def _look_again(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._last_s |= tree_cpu_seconds(self._root)


def tree_cpu_seconds(root: int) -> dict[int, float]:
    """Return the CPU time of a process and its descendants so far, by process id."""
    parents: dict[int, int] = {}
    used_s: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            pid = int(folder.name)
            parents[pid], used_s[pid] = (
                int(fields[1]),
                (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            )

    def is_inside(pid: int) -> bool:
        return pid == root or (pid in parents and is_inside(parents[pid]))

    return {pid: each_s for pid, each_s in used_s.items() if is_inside(pid)}


def messages(spark: SparkSession, count: int) -> DataFrame:
    """Return rows with keys, tags, a unique id and a body of 256 bytes."""
    body = ", ".join(f"sha2(string(id + {number}), 256)" for number in range(4))
    return spark.range(0, count, 1, PARTITIONS).selectExpr(
        "concat('key-', id) as keys",
        f"cast(concat({body}) as binary) as body",
        "concat('Tag', id % 8) as tags",
        "cast(upper(md5(string(id))) as binary) as id",
    )


def touch(frame: DataFrame, rows: int) -> None:
    """Run one aggregate over every column of any schema; an unexpected number of rows is
    an error.
    """
    from pyspark.sql import functions

    def of_field(field: StructField) -> Column:
        kind, column = field.dataType.typeName(), functions.col(field.name)
        if kind in ("binary", "string"):
            return functions.sum(
                functions.octet_length(column)
            )  # counting characters would be extra work, for some columns only
        return (
            functions.sum(functions.size(column))
            if kind in ("array", "map")
            else functions.max(column)
        )

    parts = [of_field(field).alias(f"of_{field.name}") for field in frame.schema.fields]
    found = frame.agg(functions.count(functions.lit(1)).alias("rows"), *parts).collect()[0]["rows"]
    if found != rows:
        raise RuntimeError(f"{found} rows were read, and there are {rows}")
