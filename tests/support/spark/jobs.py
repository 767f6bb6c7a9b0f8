"""What tests of the Spark jobs share: messages with any properties, RocketMQ's own too, and jobs
that run in the session of the tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.producer import Producer
from orbitmq.message import properties
from orbitmq.spark.jobs.runner import JobRunner
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Content = tuple[bytes, str | None, str | None, frozenset[tuple[str, str]]]
_WIRE = {properties.KEYS, properties.TAGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A message as it is put on the wire: properties may be RocketMQ's own."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    reconsume_times: int = 0
    queue: int | None = None  # its place among the topic's


def put(name_server: str, messages: Iterable[Raw]) -> None:
    """Send messages, one behind the other."""

    async def send() -> None:
        async with Producer(name_server) as producer:
            for each in messages:
                outgoing = producer.outbox.message(Message(each.topic, each.body), each.properties)
                queue = (
                    None
                    if each.queue is None
                    else sorted(await producer.queues(each.topic))[each.queue]
                )
                await producer.send_outgoing(
                    outgoing._replace(reconsume_times=each.reconsume_times), queue
                )

    asyncio.run(send())


def content(message: ReceivedMessage) -> Content:
    """What a message holds for its application."""
    own = {name: text for name, text in message.properties.items() if name not in properties.OWN}
    return (
        message.body,
        message.properties.get(properties.KEYS),
        message.properties.get(properties.TAGS),
        frozenset(own.items()),
    )


class Recorder:
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.results: list[str] = []

    def on_begin(self, step: str) -> None:
        self.steps.append(step)

    def on_progress(self, done: int, whole: int) -> None: ...

    def on_end(self, result: str) -> None:
        self.results.append(result)


def steps_of(
    spark: SparkSession, recorder: Recorder | None = None, stop: StopRequest | None = None
) -> JobRunner:
    return JobRunner(spark, recorder or Recorder(), stop or StopRequest())
