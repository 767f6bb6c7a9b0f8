"""`make run`: the whole story in one command. A name server and a broker come up, orders are sent,
a Spark pipeline of examples/ makes figures of them in a topic and in a table of Parquet files, and
a consumer reads the figures.

On a terminal it goes on serving until Ctrl-C; without one it ends when it has shown its result.
Without Spark it shows the messaging alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import socket
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq import (
    Admin,
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullSettings,
    Message,
    Producer,
    ProducerSettings,
    __version__,
    kernels,
)
from orbitmq.common.service import Services, raise_file_limit, run_until_signal
from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.spark import runtime

NAME_SERVER_PORT, BROKER_PORT = 9876, 10911
ROOT = Path(__file__).parents[1]
PIPELINE = ROOT / "examples" / "orders-per-minute.yaml"
OUT = ROOT / "build" / "demo"  # what the pipeline writes; it stays until the next time
ORDERS, FIGURES = "orders", "orders-per-minute"
COUNT, MINUTES, SHOPS = 3000, 10, ("Berlin", "Lisbon", "Osaka")
WATERMARK = timedelta(minutes=1)  # as the pipeline has it
SHORT_LIVED = (  # a Java that ends so soon has no time to profit from more
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
)


class Order(NamedTuple):
    """What a shop sells."""

    id: str
    shop: str
    amount: float
    at: datetime

    def message(self) -> Message:
        body = json.dumps({**self._asdict(), "at": self.at.isoformat()})
        return Message(ORDERS, body.encode(), keys=[self.id])


def orders() -> list[Order]:
    """Orders of the last minutes; one in a hundred comes twice."""
    begin = datetime.now(UTC) - timedelta(minutes=MINUTES)
    made = [
        Order(
            f"order-{number}",
            random.choice(SHOPS),
            round(random.uniform(1, 200), 2),
            begin + timedelta(minutes=MINUTES) * number / COUNT,
        )
        for number in range(COUNT)
    ]
    return made + made[::100]


def expected(sent: list[Order]) -> dict[tuple[str, datetime], tuple[float, int]]:
    """What plain Python makes of the same orders: the minutes that are over, by shop."""
    end = max(order.at for order in sent) - WATERMARK
    found: dict[tuple[str, datetime], list[float]] = defaultdict(list)
    for order in set(sent):
        found[order.shop, order.at.replace(second=0, microsecond=0)].append(order.amount)
    return {
        key: (round(sum(amounts), 2), len(amounts))
        for key, amounts in found.items()
        if key[1] + timedelta(minutes=1) <= end
    }


def port_to_use(usual: int) -> int:
    """The usual port, or 0 for a free one when somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            print(f"Port {usual} is taken, so another one is used.")
            return 0
    return usual


async def send(name_server: str, sent: list[Order]) -> None:
    """Make the topics, and send the orders as any producer does."""
    async with Admin(name_server) as admin:
        for topic in (ORDERS, FIGURES):
            await admin.topics.create(TopicConfig(topic, 4, 4))
    async with Producer(
        name_server, settings=ProducerSettings(timeout_ms=60_000)
    ) as producer:  # whatever else the machine does
        began = time.perf_counter()
        await asyncio.gather(*(producer.send(order.message()) for order in sent))
        print(
            f"  {len(sent)} orders sent to the topic {ORDERS} in"
            f" {(time.perf_counter() - began) * 1000:.0f} ms"
        )


async def read(name_server: str, topic: str, count: int) -> list[Any]:
    """So many messages of a topic, as any consumer gets them."""
    settings = LitePullSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    found: list[Any] = []
    async with LitePullConsumer(name_server, f"demo-{topic}", settings=settings) as consumer:
        consumer.subscribe(topic)
        began = time.perf_counter()
        while len(found) < count:
            messages = await consumer.poll()
            if not messages:
                break
            found += [json.loads(message.body) for message in messages]
    print(
        f"  {len(found)} messages of the topic {topic} read by a consumer in"
        f" {(time.perf_counter() - began) * 1000:.0f} ms"
    )
    return found


def pipeline_command() -> list[str]:
    """What anybody would type; only that the results go to a folder of the demo's own."""
    places = {"sinks.1.path": OUT / FIGURES, "checkpoint": OUT / "checkpoint"}
    settings = (
        part for name, place in places.items() for part in ("--set", f"{name}={shown(place)}")
    )
    return ["pipeline", "run", shown(PIPELINE), "--once", *settings]


def shown(path: Path) -> str:
    """A path as seen from here."""
    return os.path.relpath(path)


async def run_pipeline(name_server: str) -> bool:
    """Let Spark read what is there, in a process of its own."""
    shutil.rmtree(OUT, ignore_errors=True)
    environment = {"SPARK_SUBMIT_OPTS": SHORT_LIVED, **os.environ, "NAMESRV_ADDR": name_server}
    command = [sys.executable, "-m", "orbitmq", *pipeline_command()]
    print(f"  orbitmq {' '.join(pipeline_command())}", flush=True)
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None, "it was asked for"
    try:
        async for line in process.stdout:
            print(f"    {line.decode().rstrip()}", flush=True)
    except asyncio.CancelledError:
        process.terminate()
        raise
    finally:
        await process.wait()
    return process.returncode == 0


def show(figures: list[Any], sent: list[Order]) -> None:
    """The figures as a table, and whether they are right."""
    found = {
        (row["shop"], datetime.fromisoformat(row["minute"])): (row["total"], row["orders"])
        for row in figures
    }
    print(f"\n  {'minute':6}{''.join(f'{shop:>24}' for shop in SHOPS)}")
    for minute in sorted({minute for _, minute in found}):
        cells = (found.get((shop, minute)) for shop in SHOPS)
        texts = (f"{cell[1]} orders, {cell[0]:9.2f}" if cell else "-" for cell in cells)
        print(f"  {minute:%H:%M} {''.join(f'{text:>24}' for text in texts)}")
    print(
        f"\n  {'This is' if found == expected(sent) else 'NOT'} what plain Python makes of the same"
        " orders."
    )


def missing_for_spark() -> str | None:
    """Why Spark cannot run here, and what to do about it."""
    found = (finding for finding in runtime.check_requirements() if not finding.is_good)
    return (
        "; ".join(f"{each.part}: {each.found or 'not installed'}; {each.remedy}" for each in found)
        or None
    )


async def use(cluster: EmbeddedCluster) -> None:
    """The story."""
    name_server, sent = cluster.name_server_address, orders()
    print(
        f"1. A name server listens on {name_server}, a broker on {cluster.broker_address}.\n"
        "2. A producer sends the orders of some shops."
    )
    await send(name_server, sent)
    if (missing := missing_for_spark()) is not None:
        print(f"3. Spark cannot run here ({missing}), so a consumer reads the orders as they are.")
        await read(name_server, ORDERS, len(sent))
        return
    print("3. A Spark pipeline counts them by shop and minute. Most of the time is Spark's start.")
    if not await run_pipeline(name_server):
        print(
            "  The pipeline failed; its output is above. To see whether Spark can run here:"
            " .venv/bin/orbitmq spark doctor"
        )
        return
    print("4. A consumer reads the figures.")
    show(await read(name_server, FIGURES, len(expected(sent))), sent)
    print(
        f"  The same figures are in Parquet files, in {shown(OUT / FIGURES)}; the pipeline is"
        f" {shown(PIPELINE)}."
    )


async def present(cluster: EmbeddedCluster) -> None:
    """The story, and what to try."""
    await use(cluster)
    print("Try, from another terminal:")
    for line in (
        f"export NAMESRV_ADDR={cluster.name_server_address}",
        f".venv/bin/orbitmq message tail {FIGURES} --from first",
        f".venv/bin/orbitmq topic stats {ORDERS}",
        (
            f".venv/bin/orbitmq pipeline run {shown(PIPELINE)}       # goes on until Ctrl-C; status"
            " and list show what it does"
        ),
        f".venv/bin/orbitmq store dump {cluster.store} --limit 5",
        (
            f"mqadmin topicStatus -t {ORDERS}                            # Apache RocketMQ's own"
            " tools and clients work too"
        ),
    ):
        print(f"  {line}")


async def main() -> None:
    raise_file_limit()
    logging.getLogger("orbitmq").setLevel(
        logging.ERROR
    )  # a machine that is busy for a moment is no part of the story
    print(f"OrbitMQ {__version__}, kernels {kernels.mode()}")
    settings = ClusterSettings(
        name_server_port=port_to_use(NAME_SERVER_PORT), broker_port=port_to_use(BROKER_PORT)
    )
    cluster = EmbeddedCluster(settings)
    services = Services()
    services.add("cluster", start=cluster.start, stop=cluster.stop)
    if sys.stdin.isatty():
        services.add("demo", start=lambda: present(cluster))
        await run_until_signal(services, ready=lambda: print("Serving until Ctrl-C."))
        return
    await services.start()
    await use(cluster)
    await services.stop()
    print("It ends here, for there is no terminal. To have it stay: .venv/bin/orbitmq up")


if __name__ == "__main__":
    asyncio.run(main())
