"""What tests of exactly-once delivery share: batches as Spark would run them, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from orbitmq.blocking import Admin
from orbitmq.spark.sink.commit_coordinator import CommitCoordinator
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.staging import batch_name
from orbitmq.spark.sink.task_sender import send_rows
from orbitmq.spark.sink.transaction_log import TransactionLog
from support.spark.messages import messages_in


class Query:
    """A query that writes numbers to a topic; each run of a batch is a process of its own as far as
    anybody can tell.
    """

    def __init__(self, name_server: str, topic: str, folder: Path, **options: str) -> None:
        self.name_server, self.topic = name_server, topic
        texts = {
            "nameServer": name_server,
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            "transactionLog": str(folder),
            **options,
        }
        self.options = SinkOptions.of(texts)
        self.log = TransactionLog(str(folder), "query")

    def stage(self, batch: int, numbers: Sequence[int], sharding_key: str | None = None) -> bytes:
        """What a task does, and tells the driver."""
        columns = {"body": [str(number) for number in numbers]}
        if sharding_key is not None:
            columns["shardingKey"] = [sharding_key] * len(numbers)
        staged = send_rows(
            self.options, [pa.record_batch(columns)], "of partition 0", batch_name(self.log, batch)
        ).staged
        assert staged is not None
        return staged

    def decision(self, batch: int) -> CommitCoordinator:
        return CommitCoordinator(self.options, self.log, batch)

    def delivered(self) -> Counter[int]:
        return Counter(int(message.body) for message in messages_in(self.name_server, self.topic))

    def open_halves(self) -> int:
        """How many messages wait at brokers for their end."""
        with Admin(self.name_server) as admin:
            return sum(len(halves) for halves in admin.transactions.open().found.values())
