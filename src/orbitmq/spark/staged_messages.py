"""Messages that tasks have staged for a batch: what the driver needs to know of each to commit it. As Arrow tables, of 60 bytes or so each.

They travel from tasks to the driver, and into the transaction log. Knows nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from orbitmq.client.asked_producer import HalfPlace

_NAME: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        ("topic", _NAME),
        ("brokerName", _NAME),
        ("queueId", pa.int32()),  # null: its queue does not care when it comes
        ("halfOffset", pa.int64()),
        ("commitLogOffset", pa.int64()),
        ("uniqueKey", pa.string()),
    ]
)


class Staged(NamedTuple):
    """A half message; `queue_id` where the order matters in which those of a queue are committed."""

    half: HalfPlace
    queue_id: int | None


def packed(staged: Sequence[Staged]) -> bytes:
    """As bytes."""
    rows = ((half.topic, half.broker_name, queue_id, half.queue_offset, half.log_offset, half.msg_id) for half, queue_id in staged)
    columns = zip(SCHEMA, zip(*rows, strict=True), strict=True)
    arrays = [pa.array(values, _plain(field.type)).cast(field.type) for field, values in columns]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch(arrays, SCHEMA))
    return bytes(sink.getvalue())


def unpacked(parts: Iterable[bytes]) -> pa.Table:
    """All of them, in their order."""
    tables = [pa.ipc.open_stream(part).read_all() for part in parts]
    return pa.concat_tables(tables).unify_dictionaries() if tables else SCHEMA.empty_table()


def each_of(table: pa.Table) -> Iterator[Staged]:
    """One after the other."""
    for batch in table.to_batches():
        for topic, broker, queue_id, half_offset, log_offset, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Staged(HalfPlace(topic, broker, half_offset, log_offset, key, key), queue_id)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
