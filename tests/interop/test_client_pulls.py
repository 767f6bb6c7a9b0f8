"""Pull consumers and the blocking clients of the library, with the original brokers of both lines
and with ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from interop.broker_clients import Cluster
from interop.client_matrix_room import EVERY, cluster_of
from orbitmq import (
    Admin,
    ConsumeFromWhere,
    InvalidStateError,
    LitePullConsumer,
    LitePullSettings,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    PullConsumer,
    ReceivedMessage,
    TransactionState,
    blocking,
)
from support.client.pull_consumers import polled
from support.common.waiting import until, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(240)]

FROM_FIRST = LitePullSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


@pytest.fixture(scope="module", params=EVERY)
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    with cluster_of(request.param, module_home / request.param) as cluster:
        cluster.make_topics({"Pulled": 4, "Back": 1, "Transactions": 1})
        yield cluster


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120):
            await scenario()

    asyncio.run(main())


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_members_share_queues_and_a_restart_goes_on_where_the_group_was(cluster: Cluster) -> None:
    name_server = cluster.name_server.address

    async def scenario() -> None:
        async with Producer(name_server) as producer:
            for number in range(40):
                await producer.send(Message("Pulled", b"%d" % number))
        first = LitePullConsumer(name_server, "pullers", settings=FROM_FIRST)
        first.subscribe("Pulled")
        async with first:
            assert numbers(await polled(first, 40)) == list(range(40))
            queue = min(first.assignment)
            with pytest.raises(
                InvalidStateError,
                match=(r"has no offset 11: it ranges from 0 to 10, the next message to arrive"),
            ):
                await first.seek(queue, 11)
            await first.seek(queue, 4)
            assert [message.queue_offset for message in await polled(first, 6)] == [
                4,
                5,
                6,
                7,
                8,
                9,
            ]
            await (
                first.commit()
            )  # so that whoever takes a queue over sees it, on a slow machine too
            async with (
                LitePullConsumer(name_server, "pullers", settings=FROM_FIRST) as second,
                Admin(name_server) as admin,
            ):
                second.subscribe("Pulled")
                await until(lambda: len(first.assignment) == len(second.assignment) == 2)
                members = (await admin.groups.connections("pullers")).members
                assert len(members) == 2
                info = await admin.groups.running_info("pullers", second.session.client_id)
                assert set(info.queues) == second.assignment
        async with Producer(name_server) as producer:
            await producer.send(Message("Pulled", b"40"))
        last = LitePullConsumer(name_server, "pullers", settings=FROM_FIRST)
        last.subscribe("Pulled")
        async with last:
            assert numbers(await polled(last, 1)) == [40]

    run(scenario)


def test_a_message_that_is_sent_back_comes_again_from_the_retry_topic(cluster: Cluster) -> None:
    name_server = cluster.name_server.address

    async def scenario() -> None:
        async with (
            Producer(name_server) as producer,
            PullConsumer(name_server, "returners") as consumer,
        ):
            sent = await producer.send(Message("Back", b"again"))
            (found,) = (await consumer.pull(sent.queue, sent.queue_offset)).messages
            await consumer.send_back(found, delay_level=1)
            queue = await retry_queue(consumer)
            (again,) = (await consumer.pull(queue, 0, timeout_ms=30_000)).messages
            assert (again.body, again.topic, again.reconsume_times) == (b"again", "Back", 1)
            assert await consumer.fetch_offset(sent.queue) in (
                None,
                0,
            )  # 0 where a queue has all its messages yet
            await consumer.update_offset(sent.queue, 1)
            assert await consumer.fetch_offset(sent.queue) == 1

    async def retry_queue(consumer: PullConsumer) -> MessageQueue:
        """The one that the broker makes for what is sent back, once the name server knows it."""

        async def found() -> MessageQueue | None:
            with suppress(NotFoundError):
                return (await consumer.queues("%RETRY%returners"))[0]
            return None

        return await until(found)

    run(scenario)


def test_transactions_end_without_asyncio_too(cluster: Cluster) -> None:
    name_server = cluster.name_server.address
    states = {b"yes": TransactionState.COMMIT, b"no": TransactionState.ROLLBACK}

    def execute(message: Message, _: object) -> TransactionState:
        return states[message.body]

    checks = blocking.TransactionProducer(
        name_server, group="tellers", execute=execute, check=lambda _: TransactionState.UNKNOWN
    )
    with (
        checks as producer,
        blocking.LitePullConsumer(name_server, "hearers", settings=FROM_FIRST) as consumer,
    ):
        consumer.subscribe("Transactions")
        for body in (b"no", b"yes"):
            assert producer.send_in_transaction(Message("Transactions", body)).state is states[body]
        found = wait_until(consumer.poll, "a message")
        assert [message.body for message in found] == [b"yes"]
