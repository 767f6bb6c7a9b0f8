"""A store with open transactions goes from our broker to the original, and back: what is open is
asked about, what ended is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from interop import apache, subject
from interop.apache import Release, Server
from interop.broker_clients import BROKER_NAME, Cluster, our_broker
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from support.broker.transactions import COMMIT, ROLLBACK, UNKNOWN, Ledger, run
from support.common.waiting import until, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(300)]

TOPIC = "Deals"
ASKS_SOON = {
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "transactionCheckMax": 1000,
}
PATIENT = {
    "transactionCheckInterval": 5000
}  # the original asks again, and commits again, what it has not written down within 3 s


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Server]:
    server = subject.name_server(tmp_path / "names")
    with apache.running(server):
        yield server


@contextmanager
def served(names: Server, broker: Server) -> Iterator[None]:
    with apache.running(broker):
        cluster = Cluster(names, broker)
        cluster.wait_registered()
        cluster.make_topics({TOPIC: 1})
        wait_until(lambda: cluster.has_route(TOPIC), "the topic is there")
        yield


@asynccontextmanager
async def producing(names: Server, ledger: Ledger) -> AsyncIterator[TransactionProducer]:
    producer = TransactionProducer(
        names.address, group="dealers", execute=ledger.execute, check=ledger.check, topics=[TOPIC]
    )
    async with producer:
        yield producer


def trade(names: Server, ledger: Ledger, *keys: str, until_asked: str, sees: list[str]) -> None:
    """Send, wait until one of them was asked about twice, and see what consumers see from the
    beginning on.
    """

    async def scenario() -> None:
        found: list[ReceivedMessage] = []
        settings = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer(
            names.address, f"sees-{'-'.join(sees)}", found.append, settings=settings
        )
        consumer.subscribe(TOPIC)
        async with producing(names, ledger) as producer, consumer:
            for key in keys:
                await producer.send_in_transaction(Message(TOPIC, key.encode(), keys=key))
            await until(lambda: ledger.asked.count(until_asked) >= 2)
            await until(lambda: sorted(message.body.decode() for message in found) == sees)
            await asyncio.sleep(0)

    run(scenario)


def test_open_transactions_go_to_the_original_and_come_back(
    apache_5: Release, names: Server, tmp_path: Path
) -> None:
    ours = our_broker(tmp_path / "ours", [names.address], ASKS_SOON)
    store = tmp_path / "ours" / "store"
    theirs = apache.broker(
        Release(apache_5.version),
        tmp_path / "theirs",
        [names.address],
        name=BROKER_NAME,
        settings={
            **ASKS_SOON,
            **PATIENT,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
        },
    )
    with served(names, ours):
        ledger = Ledger(a=[COMMIT], b=[ROLLBACK], c=[UNKNOWN])
        trade(names, ledger, "a", "b", "c", until_asked="c", sees=["a"])
        assert set(ledger.asked) == {"c"}
    with served(names, theirs):
        ledger = Ledger(a=[COMMIT], b=[COMMIT], c=[UNKNOWN, COMMIT], d=[UNKNOWN])
        trade(names, ledger, "d", until_asked="d", sees=["a", "c"])
        assert set(ledger.asked) == {"c", "d"}
    with served(names, ours):
        ledger = Ledger(a=[COMMIT], b=[COMMIT], c=[COMMIT], d=[UNKNOWN, COMMIT], e=[UNKNOWN])
        trade(names, ledger, "e", until_asked="e", sees=["a", "c", "d"])
        assert set(ledger.asked) == {"d", "e"}
