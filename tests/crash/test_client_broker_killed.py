"""A broker killed and started again while 10,000 messages are sent and consumed: what was
acknowledged is consumed, repeats are counted.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from orbitmq.testing import LocalCluster
from support.common.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
WITHIN_S = 240.0  # a machine is slow while it restarts brokers

MESSAGES = 10_000
SENDERS = 32
KILLS = 3


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("brokers", [1, 2])
def test_nothing_that_was_acknowledged_is_lost(
    brokers: int, in_order: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(brokers=brokers, processes=True, topics={"T": 4}) as mq:
        sent, consumed, failures = asyncio.run(scenario(mq, in_order))
    lost = sent.keys() - consumed.keys()
    strangers = consumed.keys() - {b"%d" % number for number in range(MESSAGES)}
    figures = {
        "brokers": brokers,
        "in_order": in_order,
        "acknowledged": len(sent),
        "kills": KILLS,
        "lost": len(lost),
        "tries_that_failed": failures,
        "consumed_again": sum(consumed.values()) - len(consumed),
    }
    with capsys.disabled():
        print("\n" + json.dumps(figures))
    assert len(sent) == MESSAGES
    assert not lost
    assert not strangers


async def scenario(mq: LocalCluster, in_order: bool) -> tuple[Counter[bytes], Counter[bytes], int]:
    """What was acknowledged, what came, how often a try to send failed."""
    sent: Counter[bytes] = Counter()
    consumed: Counter[bytes] = Counter()
    numbers = iter(range(MESSAGES))
    failures = 0

    async def take(message: ReceivedMessage) -> None:
        consumed[message.body] += 1

    async def send(producer: Producer) -> None:
        nonlocal failures
        for number in numbers:
            body = b"%d" % number
            while body not in sent:
                try:
                    await producer.send(Message("T", body))
                    sent[body] += 1
                except OrbitError:
                    failures += 1
                    await asyncio.sleep(0.1)

    async def kill() -> None:
        for turn in range(1, KILLS + 1):
            enough = MESSAGES * turn // (KILLS + 1)
            await until(
                lambda enough=enough: len(sent) >= enough,  # type: ignore[misc]
                f"{enough} are sent",
                seconds=WITHIN_S,
            )
            name = mq.brokers[turn % len(mq.brokers)]
            await asyncio.to_thread(mq.kill, name)
            await asyncio.to_thread(mq.restart, name)

    settings = ConsumerSettings(
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, in_order=in_order
    )
    consumer = PushConsumer(mq.name_server, "g", take, settings=settings)
    consumer.subscribe("T")
    async with (
        consumer,
        Producer(mq.name_server, settings=ProducerSettings(timeout_ms=1_000)) as producer,
    ):
        await asyncio.gather(kill(), *(send(producer) for _ in range(SENDERS)))
        await until(lambda: len(consumed) >= MESSAGES, seconds=WITHIN_S)
    return sent, consumed, failures
