"""Executor side of a write: encodes the rows of a task, mostly into batches, and sends them.

Delayed rows, and rows whose body is compressed or too large for a batch, are sent alone, as are all
staged rows. The queues of a topic are looked up once per task, and only if its rows have sharding
keys, so that all rows of a key go to the same queue in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from orbitmq.client.messages import SendResult
from orbitmq.client.producer.checkable_producer import HalfPlace
from orbitmq.client.producer.outbox import Outbox, OutgoingMessage
from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.spark.kernels.outgoing_rows import BatchEncoder, EncodingRules, OutgoingRequest
from orbitmq.spark.sink.columns import SinkRows
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.rate_limit import limit_rate
from orbitmq.spark.sink.sender import InFlightSends, Sender, SendStats, sender_of
from orbitmq.spark.sink.staged_messages import StagedMessage, encode_staged
from orbitmq.spark.sink.staging import StagingSender

_OPEN_SIZE_MAX: Final = 64 << 20  # in batches of all topics that are not full
# Of the batch itself; its messages carry their properties in the body.
_BATCH_PROPERTIES: Final = properties.write({properties.WAIT: "true"})


class TaskResult(NamedTuple):
    """What a task sent, and the staged messages that its batch has yet to commit."""

    sent: SendStats = SendStats()
    staged: bytes | None = None


def send_rows(
    options: SinkOptions,
    batches: Iterable[pa.RecordBatch],
    place: str,
    batch_name: str | None = None,
) -> TaskResult:
    """Send all rows, or stage them if `batch_name` is given. `place` describes the task in errors.
    Opens no connection if there are no rows.
    """
    sender: TaskSender | None = None
    try:
        for batch in limit_rate(batches, options.rate_max):
            if batch.num_rows:
                sender = sender or TaskSender(options, place, batch_name)
                sender.add(batch)
        return sender.finish() if sender else TaskResult()
    except BaseException:
        if sender:
            sender.cancel()
        raise


class TaskSender:
    """Sends the rows of one task: `add` them, then `finish` or `cancel`."""

    def __init__(self, options: SinkOptions, place: str, batch_name: str | None) -> None:
        self._options = options
        self._names = options.client.names
        self._batch_name = batch_name
        self._stage = None if batch_name is None else sender_of(options, StagingSender)
        self._staged: list[StagedMessage] = []
        self._sender = self._stage or sender_of(options, Sender)
        ids = self._sender.new_ids()
        self._outbox = Outbox(options.producer_settings(), self._names, ids)
        self._deliveries = InFlightSends(
            self._sender, options.in_flight_size_max, self._record_staged if self._stage else None
        )
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        rules = EncodingRules(
            topic=options.topic,
            batch_count_max=options.batch_messages,
            batch_size_max=options.batch_size,
            body_size_max=options.body_size_max,
            alone_from=options.alone_from,
            instance=self._names.name,
            drops_reserved=options.drops_reserved,
            place=place,
        )
        self._encoder = BatchEncoder(rules, ids, self._queue_count)

    def add(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a RecordBatch, except for those in batches that are not full yet."""
        rows, encoder = SinkRows.of(batch), self._encoder
        encoder.load(rows.columns(has_topic=self._options.topic is not None))
        row = 0
        while row < batch.num_rows:
            row = encoder.encode(row)
            for parcel in encoder.take():
                self._send(parcel, rows)
        if encoder.open_size > _OPEN_SIZE_MAX:
            self._send_rest()

    def finish(self) -> TaskResult:
        """Send the rest and wait for all acknowledgements."""
        self._send_rest()
        sent = self._deliveries.finish()
        return TaskResult(sent, encode_staged(self._staged) if self._staged else None)

    def cancel(self) -> None:
        """Stop retrying the requests in flight."""
        self._deliveries.cancel()

    def _send_rest(self) -> None:
        for parcel in self._encoder.take_rest():
            self._send(parcel, None)

    def _send(self, parcel: OutgoingRequest, rows: SinkRows | None) -> None:
        topic, place, body, count, row = parcel
        if body is None:
            assert rows is not None, "rows that are sent alone are taken while they are loaded"
            outgoing = self._single(rows, row, topic)
        else:
            outgoing = OutgoingMessage(
                self._names.wire(topic), body, 0, 0, _BATCH_PROPERTIES, "", True, ()
            )
        self._deliveries.send(
            outgoing, None if place is None else self._queues[topic][place], count
        )

    def _single(self, rows: SinkRows, row: int, topic: str) -> OutgoingMessage:
        try:
            message = rows.message(row, topic, drops_reserved=self._options.drops_reserved)
            if self._stage is None or self._batch_name is None:
                return self._outbox.message(message)
            return self._outbox.message(
                message,
                self._stage.half_properties(message, self._batch_name),
                TransactionType.PREPARED,
            )
        except (InvalidMessageError, UnicodeDecodeError) as problem:
            raise self._encoder.refusal(row, problem) from problem

    def _record_staged(self, result: SendResult, queue: MessageQueue | None) -> None:
        self._staged.append(
            StagedMessage(
                HalfPlace.of(result.queue.topic, result), None if queue is None else queue.queue_id
            )
        )

    def _queue_count(self, topic: str) -> int:
        if topic not in self._queues:
            self._queues[topic] = self._sender.queues(topic)
        return len(self._queues[topic])
