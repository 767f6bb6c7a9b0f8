"""Staged messages of a batch as Arrow tables: what the driver needs to commit each, in about 60
bytes.

They travel from tasks to the driver and into the transaction log. Knows nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from orbitmq.client.producer.checkable_producer import HalfPlace

_NAME: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        ("topic", _NAME),
        ("brokerName", _NAME),
        ("queueId", pa.int32()),  # null: the commit order does not matter
        ("halfOffset", pa.int64()),
        ("commitLogOffset", pa.int64()),
        ("uniqueKey", pa.string()),
    ]
)


class StagedMessage(NamedTuple):
    """A half message; `queue_id` is set if the commit order within the queue matters."""

    half: HalfPlace
    queue_id: int | None


def encode_staged(staged: Sequence[StagedMessage]) -> bytes:
    """Encode staged messages as an Arrow stream."""
    rows = (
        (half.topic, half.broker_name, queue_id, half.queue_offset, half.log_offset, half.msg_id)
        for half, queue_id in staged
    )
    columns = zip(SCHEMA, zip(*rows, strict=True), strict=True)
    arrays = [
        pa.array(values, _value_type(field.type)).cast(field.type) for field, values in columns
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch(arrays, SCHEMA))
    return bytes(sink.getvalue())


def decode_staged(parts: Iterable[bytes]) -> pa.Table:
    """Decode and concatenate staged messages, in order."""
    tables = [pa.ipc.open_stream(part).read_all() for part in parts]
    return pa.concat_tables(tables).unify_dictionaries() if tables else SCHEMA.empty_table()


def iter_staged(table: pa.Table) -> Iterator[StagedMessage]:
    """Iterate over the staged messages of a table."""
    for batch in table.to_batches():
        for topic, broker, queue_id, half_offset, log_offset, key in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            yield StagedMessage(
                HalfPlace(topic, broker, half_offset, log_offset, key, key), queue_id
            )


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
