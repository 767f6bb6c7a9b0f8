"""Producers without coroutines. Many threads may send with one: what they send at the same time shares connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from orbitmq.blocking.client import BlockingClient, OwnCluster, waits
from orbitmq.client import producer as of_producer
from orbitmq.client import transaction_producer as of_transactions
from orbitmq.client.asked_producer import THREADS_DEFAULT, Check
from orbitmq.client.observers import SendObserver
from orbitmq.client.outbox import ProducerSettings
from orbitmq.client.producer import DEFAULT_GROUP
from orbitmq.client.transaction_producer import Execute

P_co = TypeVar("P_co", bound=of_producer.Producer, covariant=True)


class _Sending(BlockingClient[P_co]):
    """What both can."""

    send = waits(of_producer.Producer.send)
    send_oneway = waits(of_producer.Producer.send_oneway)
    send_batch = waits(of_producer.Producer.send_batch)
    request = waits(of_producer.Producer.request)
    reply = waits(of_producer.Producer.reply)
    recall = waits(of_producer.Producer.recall)
    queues = waits(of_producer.Producer.queues)

    @property
    def observers(self) -> list[SendObserver]:
        """Who is told what became of every message, on the loop's thread: they must not block. A Trace is one."""
        return self._behind.observers


class Producer(_Sending[of_producer.Producer]):
    """`with Producer("127.0.0.1:9876") as producer: producer.send(Message("topic", b"body"))`."""

    def __init__(self, cluster: OwnCluster = "", *, group: str = DEFAULT_GROUP, settings: ProducerSettings | None = None) -> None:
        super().__init__(of_producer.Producer(cluster, group=group, settings=settings))


class TransactionProducer(_Sending[of_transactions.TransactionProducer]):
    """`execute` and `check` are plain functions, and run in threads of the producer."""

    def __init__(
        self,
        cluster: OwnCluster = "",
        *,
        group: str,
        execute: Execute,
        check: Check,
        topics: Iterable[str] = (),
        threads: int = THREADS_DEFAULT,
        settings: ProducerSettings | None = None,
    ) -> None:
        super().__init__(
            of_transactions.TransactionProducer(
                cluster, group=group, execute=execute, check=check, topics=topics, threads=threads, settings=settings
            )
        )

    send_in_transaction = waits(of_transactions.TransactionProducer.send_in_transaction)
