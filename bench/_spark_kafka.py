"""Apache Kafka and Spark's connector for it: fetched by Maven into a cache, run as one child
process, used as a Spark user would.

The cache is `${ORBITMQ_KAFKA_CACHE:-${XDG_CACHE_HOME:-~/.cache}/orbitmq-kafka}`, a directory with
jars for each set of versions. The connector is configured for speed: Spark's newer reading path,
larger fetches, larger batches and short waits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _harness import say
from interop import apache

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = 8
# All sources except Kafka keep their path: Spark reads Kafka by the older path unless configured
# otherwise.
NEWER_PATH: Final = {"spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text"}
_LARGE_FETCHES: Final = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.receive.buffer.bytes": "4194304",
}
_LARGE_BATCHES: Final = {"kafka.linger.ms": "20", "kafka.batch.size": "131072"}
_SHORT_WAITS: Final = {"kafka.fetch.max.wait.ms": "10"}
# Heap and collector as in Kafka's start script.
_JVM_OPTIONS: Final = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>reference</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
  <build><plugins><plugin><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version></plugin></plugins></build>
</project>
"""
_ALONE: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions to run. The newest published connector may be older than Spark: it reports
    itself if Spark is too new for it.
    """

    kafka: str = "4.3.1"
    connector: str = "4.2.0"
    token_provider: str = "4.1.0-preview1"  # for logins, not for records
    clients: str = "3.9.2"  # those that the connector was built with
    pool: str = "2.13.1"

    def broker_jars(self) -> Path:
        return _fetched(
            f"kafka-{self.kafka}",
            [
                f"org.apache.kafka:kafka_2.13:{self.kafka}",
                f"org.apache.kafka:kafka-tools:{self.kafka}",
            ],
            with_dependencies=True,
        )

    def connector_jars(self) -> list[Path]:
        """Return the jars for Spark; Spark's own POMs would request more than these, from other
        servers.
        """
        folder = _fetched(
            f"spark-connector-{self.connector}-{self.token_provider}-{self.clients}",
            [
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{self.connector}",
                f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{self.token_provider}",
                f"org.apache.kafka:kafka-clients:{self.clients}",
                f"org.apache.commons:commons-pool2:{self.pool}",
            ],
            with_dependencies=False,
        )
        return sorted(folder.glob("*.jar"))


def _fetched(name: str, artifacts: Sequence[str], *, with_dependencies: bool) -> Path:
    """Return the directory with these artifacts, `group:name:version`, filled on first use; safe to
    run concurrently.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(os.environ.get("ORBITMQ_KAFKA_CACHE") or Path(base) / "orbitmq-kafka")
    place = cache / name
    if place.is_dir():
        return place
    if shutil.which("mvn") is None:
        raise apache.ApacheUnavailable(f"Maven is needed to fetch {', '.join(artifacts)}")
    say(f"fetching {name} into {place}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching.", dir=cache) as directory:
        new, pom = Path(directory) / "jars", Path(directory) / "pom.xml"
        new.mkdir()
        parts = (artifact.split(":") for artifact in artifacts)
        rest = "" if with_dependencies else _ALONE
        tags = (
            f"<groupId>{group}</groupId><artifactId>{kind}</artifactId><version>{version}</version>{rest}"
            for group, kind, version in parts
        )
        pom.write_text(
            _POM.format(dependencies="".join(f"<dependency>{each}</dependency>" for each in tags))
        )
        goal = [
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={new}",
        ]
        run = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            raise apache.ApacheUnavailable(
                f"Maven could not resolve {name}: {(run.stdout + run.stderr).strip()[-500:]}"
            )
        try:
            new.rename(place)
        except OSError:
            assert place.is_dir(), f"{place} cannot be made"
    return place


class KafkaServer(apache.Server):
    """A broker that is its own controller, not started yet; its files are in `home`."""

    def __init__(self, versions: Versions, home: Path) -> None:
        self.class_path = f"{versions.broker_jars()}/*"
        home.mkdir(parents=True)
        port, controller = apache.free_port(), apache.free_port()
        configuration = home / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": home / "log",
            "num.partitions": PARTITIONS,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "broker.session.timeout.ms": (
                3_600_000
            ),  # it is stopped while it is not its turn, which is not a failure
        }
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        formatting = self.java(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            uuid.uuid4().hex[:22],
            "-c",
            str(configuration),
        )
        subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().__init__(
            self.java("kafka.Kafka", str(configuration), options=_JVM_OPTIONS),
            port,
            home / "console.log",
        )

    def java(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        return ["java", *options, "-cp", self.class_path, main_class, *arguments]


class KafkaConnector:
    """Spark's Kafka connector, and the other operations on Kafka that a measurement needs."""

    def __init__(self, spark: SparkSession, server: KafkaServer) -> None:
        self._spark = spark
        self._server = server
        self._address = {"kafka.bootstrap.servers": server.address}

    def read(self, topic: str) -> DataFrame:
        source = self._spark.read.format("kafka").options(**self._address, **_LARGE_FETCHES)
        return source.options(subscribe=topic, includeHeaders="true").load()

    same = read  # all available columns

    def narrow(self, topic: str) -> DataFrame:
        source = self._spark.read.format("kafka").options(**self._address, **_LARGE_FETCHES)
        return source.option("subscribe", topic).load().select("partition", "offset", "timestamp")

    def stream(self, topic: str, rows_max: int) -> DataFrame:
        source = self._spark.readStream.format("kafka").options(**self._address, **_LARGE_FETCHES)
        return source.options(
            subscribe=topic,
            includeHeaders="true",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=rows_max,
        ).load()

    def outgoing(self, messages: DataFrame) -> DataFrame:
        """Return the rows of `messages` in the schema of this connector."""
        headers = (
            "array(named_struct('key', 'TAGS', 'value', cast(tags as binary)), named_struct('key',"
            " 'UNIQ_KEY', 'value', id))"
        )
        return messages.selectExpr(
            "cast(keys as binary) as key", "body as value", f"{headers} as headers"
        )

    def write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("kafka").options(**self._address, **_LARGE_BATCHES, topic=topic).mode(
            "append"
        ).save()

    def make_topic(self, topic: str, *, has_store_time: bool = False) -> None:
        """Create a topic whose message timestamps are the store time, or the send time."""
        java = self._spark.sparkContext._jvm
        assert java is not None
        properties = java.java.util.Properties()
        properties.put("bootstrap.servers", self._server.address)
        new = java.org.apache.kafka.clients.admin.NewTopic(topic, PARTITIONS, 1)
        new.configs({"message.timestamp.type": "LogAppendTime" if has_store_time else "CreateTime"})
        admin = java.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            admin.createTopics([new]).all().get()
        finally:
            admin.close()

    def copies(self, origin: str) -> DataFrame:
        """Return a stream of the messages of one topic, as rows for another whose body is the send
        time.
        """
        source = self._spark.readStream.format("kafka").options(**self._address, **_SHORT_WAITS)
        return (
            source.options(subscribe=origin, startingOffsets="earliest")
            .load()
            .selectExpr("cast(unix_millis(timestamp) as string) as value")
        )

    def stream_sink(self, topic: str) -> tuple[str, dict[str, str]]:
        """Return the format of the stream that writes to a topic, and its options."""
        return "kafka", {**self._address, "topic": topic}

    def times(self, topic: str) -> DataFrame:
        """Return the original send time and the store time of each message in a topic of copies."""
        return self.read(topic).selectExpr(
            "cast(cast(value as string) as long) as born_ms", "unix_millis(timestamp) as stored_ms"
        )

    def send(self, topic: str, count: int, per_s: int, size: int) -> None:
        """Send messages at a steady rate, by Kafka's own tool."""
        amount = [
            "--num-records",
            str(count),
            "--record-size",
            str(size),
            "--throughput",
            str(per_s),
        ]
        where = ["--bootstrap-server", self._server.address, "--topic", topic]
        command = self._server.java(
            "org.apache.kafka.tools.ProducerPerformance",
            *where,
            *amount,
            "--command-property",
            "acks=1",
            "linger.ms=0",
        )
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600
        )
