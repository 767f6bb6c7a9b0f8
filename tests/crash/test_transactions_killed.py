"""A broker killed and started again while transactions run: each ends once, as its producer
decided, and nothing else is delivered.

The broker is a process that gets a SIGKILL, or loses all that was not synced, as with a power cut.
The application keeps what it decided; a transaction of which it never decided anything, since its
message seemed not to be sent, did not happen.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from random import Random

import pytest

from orbitmq.client.messages import Message, ReceivedMessage, TransactionState
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.common.errors import OrbitError
from orbitmq.testing import LocalCluster
from support.broker.transactions import COMMIT, ROLLBACK, TOPIC, UNKNOWN, Desk
from support.common.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.short, pytest.mark.timeout(300)]
WITHIN_S = 240.0  # a machine is slow while it restarts brokers

TRANSACTIONS = 300
SENDERS = 8
KILLS = 3
ASKS_SOON = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "500",
    "transactionCheckMax": "1000",
}


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
def test_each_transaction_ends_once_as_its_producer_decided(
    processes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    books = Books(seed=1)
    flush = {} if processes else {"flushDiskType": "SYNC_FLUSH"}
    with LocalCluster(processes=processes, topics={TOPIC: 1}, broker=ASKS_SOON | flush) as mq:
        seen = asyncio.run(scenario(mq, books))
    committed = {key for key, state in books.decided.items() if state is COMMIT}
    figures = {
        "decided": len(books.decided),
        "committed": len(committed),
        "kills": KILLS,
        "questions": books.asked.total(),
    }
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
            enough = number * TRANSACTIONS // (KILLS + 1)
            await until(
                lambda enough=enough: len(books.decided) >= enough,  # type: ignore[misc]
                f"{enough} transactions",
                seconds=WITHIN_S,
            )
            await asyncio.to_thread(mq.kill)
            await asyncio.to_thread(mq.restart)

    async with producer:
        await asyncio.gather(*(send() for _ in range(SENDERS)), kill())

        async def all_committed() -> Counter[str] | None:
            try:
                async with Desk(mq) as desk:
                    found = Counter([body.decode() for body in await desk.bodies()])
            except OrbitError:
                return None
            committed = {key for key, state in books.decided.items() if state is COMMIT}
            return found if committed <= found.keys() and await is_quiet(books) else None

        return await until(all_committed, seconds=WITHIN_S)


async def is_quiet(books: Books) -> bool:
    """Whether nobody is asked any more: three rounds pass without a question."""
    before = books.asked.total()
    await asyncio.sleep(3 * int(ASKS_SOON["transactionCheckInterval"]) / 1000)
    return books.asked.total() == before
