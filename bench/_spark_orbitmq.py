"""Our connector, used as a Spark user would, and next to it Python sources and sinks that do
nothing, as the limit.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _broker_room import Desk, wait_for_route
from _spark_ceiling import SINK_FORMAT, SOURCE_FORMAT, CountingSink, PrebuiltSource, keep
from interop import apache
from orbitmq.blocking import Producer
from orbitmq.client.messages import Message
from orbitmq.spark.schema import DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The counterparts of Kafka's columns: key, value, topic, partition, offset, timestamp,
# timestampType, headers.
SAME: Final = (
    "keys string, body binary, topic string, queueId int, queueOffset bigint, storeTimestamp"
    " timestamp, sysFlag int, properties map<string,string>"
)
NARROW: Final = "queueId int, queueOffset bigint, storeTimestamp timestamp"
# What docs/spark-source.md recommends for large reads.
LARGE_ANSWERS: Final = {
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
}


class OrbitmqConnector:
    """The format `rocketmq` on a broker of ours, and the other operations that a
    measurement needs.
    """

    def __init__(self, spark: SparkSession, server: apache.Server, name_server: str) -> None:
        self._spark = spark
        self._server = server
        self._name_server = name_server

    def read(self, topic: str, schema: str = DDL) -> DataFrame:
        source = self._spark.read.format("rocketmq").schema(schema)
        return source.options(nameServer=self._name_server, subscribe=topic).load()

    def same(self, topic: str) -> DataFrame:
        return self.read(topic, SAME)

    def narrow(self, topic: str) -> DataFrame:
        return self.read(topic, NARROW)

    def stream(self, topic: str, rows_max: int) -> DataFrame:
        source = self._spark.readStream.format("rocketmq").options(
            nameServer=self._name_server, subscribe=topic
        )
        return source.options(startingOffsets="earliest", maxOffsetsPerTrigger=rows_max).load()

    def outgoing(self, messages: DataFrame) -> DataFrame:
        """Return the rows of `messages` in the schema of this connector, which creates unique ids
        itself.
        """
        return messages.select("body", "keys", "tags")

    def write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("rocketmq").options(nameServer=self._name_server, topic=topic).mode(
            "append"
        ).save()

    def make_topic(self, topic: str, *, has_store_time: bool = False) -> None:
        """Create a topic; messages always have both timestamps."""
        with Desk(self._server) as desk:
            desk.make_topic(topic)
        wait_for_route(self._name_server, topic)

    def copies(self, origin: str) -> DataFrame:
        """Return a stream of the messages of one topic, as rows for another whose body is the send
        time.
        """
        source = self._spark.readStream.format("rocketmq").schema("bornTimestamp timestamp")
        rows = source.options(
            nameServer=self._name_server, subscribe=origin, startingOffsets="earliest"
        ).load()
        return rows.selectExpr("cast(unix_millis(bornTimestamp) as string) as body")

    def stream_sink(self, topic: str) -> tuple[str, dict[str, str]]:
        """Return the format of the stream that writes to a topic, and its options."""
        return "rocketmq", {"nameServer": self._name_server, "topic": topic}

    def times(self, topic: str) -> DataFrame:
        """Return the original send time and the store time of each message in a topic of copies."""
        rows = self.read(topic, "body binary, storeTimestamp timestamp")
        return rows.selectExpr(
            "cast(cast(body as string) as long) as born_ms",
            "unix_millis(storeTimestamp) as stored_ms",
        )

    def send(self, topic: str, count: int, per_s: int, size: int) -> None:
        """Send messages at a steady rate."""
        body = bytes(size)
        with Producer(self._name_server, group="bench") as producer:
            begin_s = time.monotonic()
            for number in range(count):
                time.sleep(max(0.0, begin_s + number / per_s - time.monotonic()))
                producer.send(Message(topic, body))


class CommitLogConnector:
    """The format `rocketmq-commitlog` on the files of that broker."""

    def __init__(self, spark: SparkSession, store: Path) -> None:
        self._spark = spark
        self._store = store

    def read(self, topic: str) -> DataFrame:
        return (
            self._spark.read.format("rocketmq-commitlog")
            .schema(DDL)
            .option("topics", topic)
            .load(str(self._store))
        )


class Ceiling:
    """A source of prebuilt batches and a sink that counts: no decoding, no network."""

    def __init__(self, spark: SparkSession, sample: DataFrame, rows: int, home: Path) -> None:
        self._spark = spark
        self._options = {"path": str(home / "sample.arrow"), "rows": str(rows)}
        keep(sample.toArrow(), Path(self._options["path"]))
        spark.dataSource.register(PrebuiltSource)
        spark.dataSource.register(CountingSink)

    def read(self, topic: str, schema: str = DDL) -> DataFrame:
        return self._spark.read.format(SOURCE_FORMAT).schema(schema).options(**self._options).load()

    def same(self, topic: str) -> DataFrame:
        return self.read(topic, SAME)

    def narrow(self, topic: str) -> DataFrame:
        return self.read(topic, NARROW)

    def outgoing(self, messages: DataFrame) -> DataFrame:
        return messages.select("body", "keys", "tags")

    def write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format(SINK_FORMAT).mode("append").save()
