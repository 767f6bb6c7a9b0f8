"""What an executor does with the rows of a task: encodes them, most of them into batches, and sends them.

Rows that have to wait at a broker, whose body is compressed or too large for a batch go alone, and so do all that are staged. A queue list
is asked for once in a task, and only for topics whose rows have sharding keys, so that all rows of a key go to one queue, one behind the
other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from orbitmq.client.asked_producer import HalfPlace
from orbitmq.client.messages import SendResult
from orbitmq.client.outbox import Outbox, Outgoing
from orbitmq.common.errors import MessageIllegal
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.spark.outgoing_rows import OutgoingRows, Parcel, RowRules
from orbitmq.spark.pacing import paced
from orbitmq.spark.sender import Deliveries, Sender, Sent, sender_of
from orbitmq.spark.sink_columns import SinkRows
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.staged_messages import Staged, packed
from orbitmq.spark.staging import StagingSender

_OPEN_SIZE_MAX: Final = 64 << 20  # of batches of all topics that are begun
_BATCH_PROPERTIES: Final = properties.write({properties.WAIT: "true"})  # those of its messages are in its body


class TaskRows(NamedTuple):
    """What a task has sent, and what of that is staged and waits for the end of its batch."""

    sent: Sent = Sent()
    staged: bytes | None = None


def send_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch], place: str, batch_name: str | None = None) -> TaskRows:
    """Send all rows; `place` says where they are, for errors. Nobody is connected to for none. With the name of a batch: stage them."""
    sending: RowSending | None = None
    try:
        for batch in paced(batches, options.rate_max):
            if batch.num_rows:
                sending = sending or RowSending(options, place, batch_name)
                sending.add(batch)
        return sending.finish() if sending else TaskRows()
    except BaseException:
        if sending:
            sending.give_up()
        raise


class RowSending:
    """The rows of one task, from `add` to `finish` or `give_up`."""

    def __init__(self, options: SinkOptions, place: str, batch_name: str | None) -> None:
        self._options = options
        self._names = options.client.names
        self._batch_name = batch_name
        self._stage = None if batch_name is None else sender_of(options, StagingSender)
        self._staged: list[Staged] = []
        self._sender = self._stage or sender_of(options, Sender)
        ids = self._sender.new_ids()
        self._outbox = Outbox(options.producer_settings(), self._names, ids)
        self._deliveries = Deliveries(self._sender, options.in_flight_size_max, self._note if self._stage else None)
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        rules = RowRules(
            topic=options.topic,
            batch_count_max=options.batch_messages,
            batch_size_max=options.batch_size,
            body_size_max=options.body_size_max,
            alone_from=options.alone_from,
            instance=self._names.name,
            drops_reserved=options.drops_reserved,
            place=place,
        )
        self._encoder = OutgoingRows(rules, ids, self._queue_count)

    def add(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch, but for those that wait for others to go with."""
        rows, encoder = SinkRows.of(batch), self._encoder
        encoder.load(rows.columns(has_topic=self._options.topic is not None))
        row = 0
        while row < batch.num_rows:
            row = encoder.encode(row)
            for parcel in encoder.take():
                self._send(parcel, rows)
        if encoder.open_size > _OPEN_SIZE_MAX:
            self._send_rest()

    def finish(self) -> TaskRows:
        """Send the rest, and wait until everything is there."""
        self._send_rest()
        sent = self._deliveries.finish()
        return TaskRows(sent, packed(self._staged) if self._staged else None)

    def give_up(self) -> None:
        self._deliveries.give_up()

    def _send_rest(self) -> None:
        for parcel in self._encoder.take_rest():
            self._send(parcel, None)

    def _send(self, parcel: Parcel, rows: SinkRows | None) -> None:
        topic, place, body, count, row = parcel
        if body is None:
            assert rows is not None, "rows that go alone are handed out while they are there"
            outgoing = self._alone(rows, row, topic)
        else:
            outgoing = Outgoing(self._names.wire(topic), body, 0, 0, _BATCH_PROPERTIES, "", True, ())
        self._deliveries.send(outgoing, None if place is None else self._queues[topic][place], count)

    def _alone(self, rows: SinkRows, row: int, topic: str) -> Outgoing:
        try:
            message = rows.message(row, topic, drops_reserved=self._options.drops_reserved)
            if self._stage is None or self._batch_name is None:
                return self._outbox.message(message)
            return self._outbox.message(message, self._stage.half_properties(message, self._batch_name), TransactionType.PREPARED)
        except (MessageIllegal, UnicodeDecodeError) as problem:
            raise self._encoder.refusal(row, problem) from problem

    def _note(self, result: SendResult, queue: MessageQueue | None) -> None:
        self._staged.append(Staged(HalfPlace.of(result.queue.topic, result), None if queue is None else queue.queue_id))

    def _queue_count(self, topic: str) -> int:
        if topic not in self._queues:
            self._queues[topic] = self._sender.queues(topic)
        return len(self._queues[topic])
