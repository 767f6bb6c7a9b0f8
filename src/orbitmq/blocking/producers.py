"""Blocking producers. Many threads may send with one: their concurrent sends share connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from orbitmq.blocking.client import BlockingClient, OwnCluster, blocking_method
from orbitmq.client.observers import SendObserver
from orbitmq.client.producer import producer as of_producer
from orbitmq.client.producer import transaction_producer as of_transactions
from orbitmq.client.producer.checkable_producer import THREADS_DEFAULT, Check
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.producer import DEFAULT_GROUP
from orbitmq.client.producer.transaction_producer import Execute

P_co = TypeVar("P_co", bound=of_producer.Producer, covariant=True)


class _ProducerFace(BlockingClient[P_co]):
    """The methods shared by both producers."""

    send = blocking_method(of_producer.Producer.send)
    send_oneway = blocking_method(of_producer.Producer.send_oneway)
    send_batch = blocking_method(of_producer.Producer.send_batch)
    request = blocking_method(of_producer.Producer.request)
    reply = blocking_method(of_producer.Producer.reply)
    recall = blocking_method(of_producer.Producer.recall)
    queues = blocking_method(of_producer.Producer.queues)

    @property
    def observers(self) -> list[SendObserver]:
        """Observers of every send, such as a Trace; called on the loop's thread, so they must not
        block.
        """
        return self._wrapped.observers


class Producer(_ProducerFace[of_producer.Producer]):
    """Sends messages to a cluster.

    `with Producer("127.0.0.1:9876") as producer: producer.send(Message("topic", b"body"))`.
    """

    def __init__(
        self,
        cluster: OwnCluster = "",
        *,
        group: str = DEFAULT_GROUP,
        settings: ProducerSettings | None = None,
    ) -> None:
        super().__init__(of_producer.Producer(cluster, group=group, settings=settings))


class TransactionProducer(_ProducerFace[of_transactions.TransactionProducer]):
    """Sends messages in local transactions.

    `execute` and `check` are plain functions that run in threads of the producer.
    """

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
                cluster,
                group=group,
                execute=execute,
                check=check,
                topics=topics,
                threads=threads,
                settings=settings,
            )
        )

    send_in_transaction = blocking_method(of_transactions.TransactionProducer.send_in_transaction)
