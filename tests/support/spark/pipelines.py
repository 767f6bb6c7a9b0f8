"""What tests of pipelines share: orders, what plain Python makes of them, files, and runs in the
session of the tests.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message
from orbitmq.spark.pipeline.cluster_session import SessionSettings
from orbitmq.spark.pipeline.definition import load
from orbitmq.spark.pipeline.progress import BatchProgress
from orbitmq.spark.pipeline.runner import run
from orbitmq.spark.pipeline.status import Status
from orbitmq.spark.pipeline.stopping import StopRequest
from support.spark.messages import messages_in

if TYPE_CHECKING:
    from orbitmq.spark.pipeline.model import Pipeline

HERE = SessionSettings(master="local[2]")
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2026, 1, 31, 10, tzinfo=UTC)
Figures = dict[
    tuple[str, datetime], tuple[float, int]
]  # by shop and minute: what was sold, and how many orders


class Order(NamedTuple):
    id: str
    shop: str
    amount: float
    at: datetime

    def body(self) -> bytes:
        return json.dumps({**self._asdict(), "at": self.at.isoformat()}).encode()


def some_orders(count: int, seed: int, minutes: int = 10) -> list[Order]:
    """Orders in the order of their times, some of them void, one in ten twice."""
    chance = random.Random(seed)
    made = [
        Order(
            f"{seed}-{number}",
            chance.choice("abc"),
            round(chance.uniform(-20, 200), 2),
            BEGIN + minutes * MINUTE * number / count,
        )
        for number in range(count)
    ]
    return sorted(made + made[::10], key=lambda order: order.at)


def figures(orders: Iterable[Order], *, until: datetime | None = None) -> Figures:
    """What orders come to by shop and minute, each counted once: in the minutes that are over at a
    time, or in all.
    """
    found: dict[tuple[str, datetime], list[float]] = defaultdict(list)
    for order in set(orders):
        if order.amount > 0:
            found[order.shop, order.at.replace(second=0, microsecond=0)].append(order.amount)
    return {
        key: (round(sum(sold), 2), len(sold))
        for key, sold in found.items()
        if until is None or key[1] + MINUTE <= until
    }


def watermark(orders: Iterable[Order], late: timedelta = MINUTE) -> datetime:
    return max(order.at for order in orders) - late


def send(name_server: str, topic: str, bodies: Iterable[bytes]) -> None:
    with Producer(name_server) as producer:
        for body in bodies:
            producer.send(Message(topic, body, "new", "key"))


def figures_in(
    name_server: str, topic: str
) -> list[tuple[tuple[str, datetime], tuple[float, int]]]:
    """The figures that a topic has, as often as it has them."""
    rows = [json.loads(message.body) for message in messages_in(name_server, topic)]
    return [
        ((row["shop"], datetime.fromisoformat(row["minute"])), (row["total"], row["orders"]))
        for row in rows
    ]


class Seen:
    """An observer that keeps what it sees, and stops the run after so many batches."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.batches: list[tuple[str, BatchProgress]] = []
        self.shown: list[tuple[Any, ...]] = []
        self.stop = StopRequest()
        self._stop_after = stop_after

    def status(self, status: Status) -> None: ...

    def batch(self, sink: str, batch: BatchProgress) -> None:
        self.batches.append((sink, batch))
        if len(self.batches) == self._stop_after:
            self.stop.request()

    def rows(self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        self.shown += rows


def pipeline_in(folder: Path, text: str, *settings: str) -> Pipeline:
    """The pipeline of a file in that folder."""
    file = folder / "pipeline.yaml"
    file.write_text(text)
    return load(file, settings, {})


def ran(pipeline: Pipeline, seen: Seen | None = None) -> Status:
    """Run a pipeline to its end, in the session that there is."""
    seen = seen or Seen()
    return run(pipeline, HERE, seen, seen.stop)
