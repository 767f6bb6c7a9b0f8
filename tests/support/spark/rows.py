"""What the tests of rows share: the rows that messages should make, by the ordinary way, and those
that a batch has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from orbitmq.client.messages import ReceivedMessage
from orbitmq.message import hosts
from orbitmq.message.properties import KEYS, UNIQUE_KEY
from orbitmq.message.stored_message import StoredMessage

BROKER = "broker-ä"
INFLATED_MAX = 64 << 20
US_MAX = (1 << 63) - 1


def rows_of(records: Iterable[StoredMessage], broker: str = BROKER) -> list[dict[str, Any]]:
    """The rows of records, all columns, as consumers would see their messages; times in
    microseconds.
    """
    return [
        _row(ReceivedMessage.of(each, broker))
        for stored in records
        for each in stored.inflated(INFLATED_MAX).inner_messages()
    ]


def _row(message: ReceivedMessage) -> dict[str, Any]:
    stored = message.stored
    return {
        "topic": stored.topic,
        "brokerName": message.queue.broker_name,
        "queueId": stored.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": stored.log_offset,
        "msgId": message.offset_msg_id,
        "uniqueKey": message.properties.get(UNIQUE_KEY),
        "keys": message.properties.get(KEYS),
        "tags": message.tags,
        "body": message.body,
        "properties": list(message.properties.items()),
        "bornTimestamp": _time(message.born_at_ms),
        "storeTimestamp": _time(message.stored_at_ms),
        "bornHost": hosts.text_of(stored.born_host),
        "storeHost": hosts.text_of(stored.store_host),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": stored.sys_flag,
        "flag": stored.flag,
    }


def _time(time_ms: int) -> int | None:
    return time_ms * 1000 if abs(time_ms) * 1000 <= US_MAX else None


def rows_in(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows that Arrow has, times in microseconds."""
    batch.validate(full=True)
    for number, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            batch = batch.set_column(number, field.name, batch.column(number).cast(pa.int64()))
    return list(batch.to_pylist())
