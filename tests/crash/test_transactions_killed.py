"""A broker killed and started again while transactions run: each ends once, as its producer decided, and nothing else is delivered.

The broker is a process that gets a SIGKILL, or loses all that was not synced, as with a power cut. The application keeps what it decided;
a transaction of which it never decided anything, since its message seemed not to be sent, did not happen.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from random import Random

import pytest

from orbitmq.client.messages import Message, ReceivedMessage, TransactionState
from orbitmq.client.outbox import ProducerSettings
from orbitmq.client.transaction_producer import TransactionProducer
from orbitmq.common.errors import OrbitError
from orbitmq.testing import LocalCluster
from transactions_room import COMMIT, ROLLBACK, TOPIC, UNKNOWN, Desk

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

TRANSACTIONS = 300
SENDERS = 8
KILLS = 3
ASKS_SOON = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "transactionCheckMax": "1000"}


class Books:
    """What the application decided, for good; it does not always say so at once."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.decided: dict[str, TransactionState] = {}
        self.asked: Counter[str] = Counter()

    async def execute(self, message: Message, _: object) -> TransactionState:
        key = message.body.decode()
        self.decided[key] = self._random.choice([COMMIT, ROLLBACK])
        return self._random.choice([self.decided[key], self.decided[key], UNKNOWN])

    async def check(self, message: ReceivedMessage) -> TransactionState:
        key = message.body.decode()
        self.asked[key] += 1
        return UNKNOWN if self._random.random() < 0.2 else self.decided.get(key, ROLLBACK)


@pytest.mark.parametrize("processes", [True, False])
def test_each_transaction_ends_once_as_its_producer_decided(processes: bool, capsys: pytest.CaptureFixture[str]) -> None:
    books = Books(seed=1)
    flush = {} if processes else {"flushDiskType": "SYNC_FLUSH"}
    with LocalCluster(processes=processes, topics={TOPIC: 1}, broker=ASKS_SOON | flush) as mq:
        seen = asyncio.run(scenario(mq, books))
    committed = {key for key, state in books.decided.items() if state is COMMIT}
    figures = {"decided": len(books.decided), "committed": len(committed), "kills": KILLS, "questions": books.asked.total()}
    with capsys.disabled():
        print("\n" + json.dumps(figures))
    assert seen == Counter(dict.fromkeys(committed, 1))


async def scenario(mq: LocalCluster, books: Books) -> Counter[str]:
    """What consumers see in the end."""
    numbers = itertools.count()
    producer = TransactionProducer(
        mq.name_server,
        group="books",
        execute=books.execute,
        check=books.check,
        topics=[TOPIC],
        settings=ProducerSettings(retries=0),  # a message that is sent twice is two transactions
    )

    async def send() -> None:
        while len(books.decided) < TRANSACTIONS:
            try:
                await producer.send_in_transaction(Message(TOPIC, f"order{next(numbers)}".encode()))
            except OrbitError:
                await asyncio.sleep(0.1)

    async def kill() -> None:
        for number in range(1, KILLS + 1):
            while len(books.decided) < number * TRANSACTIONS // (KILLS + 1):  # noqa: ASYNC110 - what is waited for is counted
                await asyncio.sleep(0.01)
            await asyncio.to_thread(mq.kill)
            await asyncio.to_thread(mq.restart)

    async with producer:
        await asyncio.gather(*(send() for _ in range(SENDERS)), kill())
        while True:
            try:
                async with Desk(mq) as desk:
                    found = Counter([body.decode() for body in await desk.bodies()])
                if {key for key, state in books.decided.items() if state is COMMIT} <= found.keys() and await is_quiet(books):
                    return found
            except OrbitError:
                pass
            await asyncio.sleep(0.1)


async def is_quiet(books: Books) -> bool:
    """Whether nobody is asked any more: three rounds pass without a question."""
    before = books.asked.total()
    await asyncio.sleep(3 * int(ASKS_SOON["transactionCheckInterval"]) / 1000)
    return books.asked.total() == before
