"""What tests of the Spark source share: messages of every kind, what a client reads of them, and
readers that know where the cluster is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitmq.blocking.consumers import PullConsumer
from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.message import hosts, properties
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.spark.schema import COLUMNS, DDL
from support.common.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 180
Rows = list[dict[str, Any]]


def sent(
    name_server: str,
    topic: str,
    count: int,
    *,
    queue: int | None = None,
    first: int = 0,
    **more: Any,
) -> None:
    """Send messages 0, 1, … to a topic: round the queues, or to one."""
    with Producer(name_server) as producer:
        queues = sorted(producer.queues(topic))
        for number in range(first, first + count):
            target = queues[number % len(queues)] if queue is None else queues[queue]
            producer.send(
                Message(topic, str(number).encode(), keys=f"k{number}", **more), queue=target
            )


def messages_in(name_server: str, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic, as the client reads them, by broker, queue and offset."""
    found: list[ReceivedMessage] = []
    with PullConsumer(name_server, "TOOLS_CONSUMER") as consumer:
        for queue in sorted(consumer.queues(topic)):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                pulled = consumer.pull(queue, offset)
                found += pulled.messages
                offset = pulled.next_offset
    return found


def as_row(message: ReceivedMessage) -> dict[str, Any]:
    """The row that a message should be, with every column."""
    stored, of_message = message.stored, message.properties
    values = (
        *(
            stored.topic,
            message.queue.broker_name,
            stored.queue_id,
            stored.queue_offset,
            stored.log_offset,
            stored.msg_id,
        ),
        *(
            of_message.get(name)
            for name in (properties.UNIQUE_KEY, properties.KEYS, properties.TAGS)
        ),
        *(message.body, dict(of_message)),
        *(
            datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)
            for ms in (stored.born_time_ms, stored.store_time_ms)
        ),
        *(hosts.text_of(host) for host in (stored.born_host, stored.store_host)),
        *(stored.reconsume_times, stored.sys_flag, stored.flag),
    )
    return dict(zip(COLUMNS, values, strict=True))


def expected(name_server: str, *topics: str) -> Rows:
    return [as_row(message) for topic in topics for message in messages_in(name_server, topic)]


def rows_of(frame: DataFrame | Iterable[Row]) -> Rows:
    """Rows of a frame in the order in which `messages_in` has messages."""
    collected = frame if isinstance(frame, list) else frame.collect()  # type: ignore[union-attr]
    rows = [
        {**row.asDict(), **({"body": bytes(row["body"])} if "body" in row else {})}
        for row in collected
    ]
    return sorted(
        rows, key=lambda row: (row["topic"], row["brokerName"], row["queueId"], row["queueOffset"])
    )


def read(
    spark: SparkSession, name_server: str, *, schema: str | None = None, **options: Any
) -> DataFrame:
    """A batch read."""
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (reader.schema(schema) if schema else reader).load()


def read_stream(
    spark: SparkSession, name_server: str, *, schema: str | None = None, **options: Any
) -> DataFrame:
    """A stream."""
    reader = spark.readStream.format("rocketmq").option("nameServer", name_server)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (reader.schema(schema) if schema else reader).load()


class Collected:
    """A query whose batches are kept in a folder, so that they are there after a restart too."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._rows = folder / "rows"
        self._checkpoint = folder / "checkpoint"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(self._rows))
            .option("checkpointLocation", str(self._checkpoint))
        )
        while True:
            query = writer.trigger(**trigger).start() if trigger else writer.start()
            spark_until(
                lambda query=query: (  # type: ignore[misc]
                    not query.isActive or query.status["message"] != "Initializing sources"
                )
            )
            if "failed to connect back" not in str(
                query.exception()
            ):  # Spark gives a worker ten seconds, whatever the machine does
                return query

    def run(self, frame: DataFrame) -> StreamingQuery:
        """Read what is there, and end."""
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(PATIENCE_S)
        return query

    def rows(self) -> Rows:
        if not (
            self._rows / "_spark_metadata" / "0"
        ).exists():  # which says what files belong to it
            return []
        return rows_of(self._spark.read.schema(DDL).parquet(str(self._rows)))


def spark_until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait for a condition, unless the query that should bring it about has failed."""

    def holds() -> bool:
        if condition():
            return True
        if query is not None and (problem := query.exception()) is not None:
            raise problem
        return False

    wait_until(holds, seconds=PATIENCE_S)


def group_offsets(
    name_server: str, group: str, queues: Sequence[MessageQueue]
) -> Mapping[MessageQueue, int | None]:
    with PullConsumer(name_server, group) as consumer:
        return {queue: consumer.fetch_offset(queue) for queue in queues}


def first_line(problem: BaseException) -> str:
    """What a user reads first."""
    return str(problem).splitlines()[0]
