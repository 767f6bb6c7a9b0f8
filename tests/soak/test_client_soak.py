"""Mixed use of the client library for `ORBITMQ_SOAK_SECONDS` (an hour): memory, threads, tasks and
descriptors stay flat, nothing is lost.

Producers come and go and send alone, together and in batches, members of groups come and go, in
order and side by side, with listeners that fail now and then; the broker is restarted every few
minutes. Prints one JSON report.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.client.consumer.lite_pull_consumer import LitePullConsumer, LitePullSettings
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.producer import Producer
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from orbitmq.testing import LocalCluster

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("ORBITMQ_SOAK_SECONDS", "3600"))
GROWTH_MIB_MAX = 16.0
RESTART_EVERY_S = 300.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class State(NamedTuple):
    """Of this process, in which only clients live."""

    rss_mib: float
    descriptors: int
    threads: int
    tasks: int


def state() -> State:
    gc.collect()
    resident = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return State(
        round(resident, 1), descriptors, threading.active_count(), len(asyncio.all_tasks())
    )


class Numbers:
    """A set of small numbers that takes a byte for each, so that this test's own memory does not
    hide a leak.
    """

    def __init__(self) -> None:
        self._marks = bytearray()

    def add(self, number: int) -> None:
        if number >= len(self._marks):
            self._marks.extend(bytes(number + 1 - len(self._marks)))
        self._marks[number] = 1

    def __len__(self) -> int:
        return self._marks.count(1)

    def missing_in(self, other: Numbers) -> int:
        """How many of these the other set has not."""
        theirs = other._marks.ljust(len(self._marks), b"\0")
        return sum(ours > their for ours, their in zip(self._marks, theirs, strict=False))


class Soak:
    """What was sent and what came."""

    def __init__(self, mq: LocalCluster, seed: int) -> None:
        self.mq = mq
        self.choose = random.Random(seed)
        self.sent = 0
        self.failed_sends = 0
        self.consumed: Counter[str] = Counter()
        self.seen = {"push": Numbers(), "in-order": Numbers(), "lite": Numbers()}
        self.acknowledged = Numbers()
        self.end = time.monotonic() + SECONDS

    async def send(self) -> None:
        """Producers one after the other, each for a few seconds."""
        while time.monotonic() < self.end:
            async with Producer(self.mq.name_server) as producer:
                until = min(self.end, time.monotonic() + self.choose.uniform(1, 10))
                while time.monotonic() < until:
                    await self._send_some(producer)
                    await asyncio.sleep(0.05)

    async def _send_some(self, producer: Producer) -> None:
        numbers = range(self.sent, self.sent + self.choose.randrange(1, 64))
        self.sent = numbers.stop
        body = self.choose.randbytes(self.choose.choice([10, 300, 6_000]))
        messages = [
            Message("T", b"%d " % number + body, tags=f"t{number % 3}", keys=[f"k{number}"])
            for number in numbers
        ]
        try:
            if self.choose.random() < 0.3:
                await producer.send_batch(messages)
            else:
                await asyncio.gather(*(producer.send(message) for message in messages))
            for number in numbers:
                self.acknowledged.add(number)
        except OrbitError:  # the broker is away; what was taken all the same comes too
            self.failed_sends += 1

    def is_open(self, kind: str) -> bool:
        """Whether there is something left to do for a group."""
        return time.monotonic() < self.end or self.acknowledged.missing_in(self.seen[kind]) > 0

    def take(self, kind: str, message: ReceivedMessage) -> None:
        self.consumed[kind] += 1
        self.seen[kind].add(int(message.body.split(b" ", 1)[0]))

    async def push(self, kind: str, settings: ConsumerSettings) -> None:
        """Members of a group that come and go, until all is consumed."""
        while self.is_open(kind):
            consumer = PushConsumer(
                self.mq.name_server,
                kind,
                lambda message: self.take(kind, message),
                settings=settings,
            )
            consumer.subscribe("T")
            with contextlib.suppress(
                OrbitError
            ):  # a cluster that is away at the start is tried again
                async with consumer:
                    await asyncio.sleep(
                        self.choose.uniform(5, 30) if time.monotonic() < self.end else 2
                    )

    async def poll(self) -> None:
        settings = LitePullSettings(consume_from=FIRST)
        while self.is_open("lite"):
            with contextlib.suppress(OrbitError):
                async with LitePullConsumer(
                    self.mq.name_server, "lite", settings=settings
                ) as consumer:
                    consumer.subscribe("T")
                    until = time.monotonic() + self.choose.uniform(5, 30)
                    while time.monotonic() < until and self.is_open("lite"):
                        for message in await consumer.poll(timeout_ms=500):
                            self.take("lite", message)

    async def restart(self) -> None:
        while time.monotonic() + RESTART_EVERY_S < self.end:
            await asyncio.sleep(RESTART_EVERY_S)
            await asyncio.to_thread(self.mq.kill)
            await asyncio.to_thread(self.mq.restart)

    async def run(self) -> tuple[State, State]:
        """How things stand after the first fifth of the time, and at the end."""
        settings = ConsumerSettings(consume_from=FIRST)
        work = [
            asyncio.create_task(self.send()),
            asyncio.create_task(self.push("push", settings)),
            asyncio.create_task(self.push("push", settings)),
            asyncio.create_task(
                self.push("in-order", ConsumerSettings(consume_from=FIRST, in_order=True))
            ),
            asyncio.create_task(self.poll()),
            asyncio.create_task(self.restart()),
        ]
        await asyncio.sleep(SECONDS / 5)
        before = state()
        await asyncio.gather(*work)
        return before, state()


@pytest.mark.timeout(SECONDS + 300)
def test_a_process_of_clients_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(1 << 32)
    with LocalCluster(processes=True, topics={"T": 4}) as mq:
        soak = Soak(mq, seed)
        before, after = asyncio.run(soak.run())
    lost = {kind: soak.acknowledged.missing_in(seen) for kind, seen in soak.seen.items()}
    report = {
        "seed": seed,
        "seconds": SECONDS,
        "acknowledged": len(soak.acknowledged),
        "failed_sends": soak.failed_sends,
        "consumed": dict(soak.consumed),
        "lost": lost,
        "before": before._asdict(),
        "after": after._asdict(),
    }
    with capsys.disabled():
        print("\n" + json.dumps(report))
    assert not any(lost.values()), report
    assert after.rss_mib - before.rss_mib < GROWTH_MIB_MAX, report
    assert after.descriptors <= before.descriptors, report
    assert after.threads <= before.threads, report
