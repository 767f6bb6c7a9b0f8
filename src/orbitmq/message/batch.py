"""Several messages in one body: what SEND_BATCH_MESSAGE carries, and what an inner batch stores as
it is.

```
4 size of the item   4 magic 0   4 checksum 0   4 flag   4 body length, body   2 properties length,
properties
```
repeated. Topic, queue and the rest are those of the message around them. An item whose lengths do
not add up to its size refuses
the whole body: the original counts items by their size and reads them by their lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import properties
from orbitmq.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.message.layout import PROPERTIES_SIZE_MAX
from orbitmq.message.record_write import MessageRecord

_HEAD = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
_SIZE_MIN = _HEAD.size + _PROPERTIES_LENGTH.size
_SIZE = struct.Struct(">i")
ITEMS_MAX = 10_000  # of a batch: each becomes a record, and all are appended at once


class BatchItem(NamedTuple):
    """One message of a batch; `properties` is their text in UTF-8."""

    flag: int
    body: bytes
    properties: bytes

    @property
    def size(self) -> int:
        """How many bytes it takes in the batch's body."""
        return _SIZE_MIN + len(self.body) + len(self.properties)


def encode(items: Iterable[BatchItem]) -> bytes:
    """The body that holds `items`."""
    parts: list[bytes] = []
    for item in items:
        flag, body, raw_properties = item
        if len(raw_properties) > PROPERTIES_SIZE_MAX:
            raise InvalidMessageError(
                f"an item of a batch has properties of {len(raw_properties)} bytes: at most"
                f" {PROPERTIES_SIZE_MAX}"
            )
        parts += (
            _HEAD.pack(item.size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_LENGTH.pack(len(raw_properties)),
            raw_properties,
        )
    return b"".join(parts)


def check_count(body: bytes) -> None:
    """Refuse a batch of too many items, by their sizes alone; what does not consist of items
    passes.
    """
    at, end = 0, len(body) - _SIZE_MIN
    for _ in range(ITEMS_MAX):
        if at > end:
            return
        (size,) = _SIZE.unpack_from(body, at)
        if size < _SIZE_MIN:
            return
        at += size
    if at < len(body):
        raise InvalidMessageError(
            f"a batch of more than {ITEMS_MAX} messages; send at most {ITEMS_MAX} at once"
        )


def decode(body: bytes) -> list[BatchItem]:
    """The items of a batch's body; InvalidMessageError when it does not consist of whole items."""
    items: list[BatchItem] = []
    at, end = 0, len(body)
    while at < end:
        if end - at < _SIZE_MIN:
            raise InvalidMessageError(
                f"a batch of {end} bytes ends in {end - at} that are no item: the shortest has"
                f" {_SIZE_MIN}"
            )
        size, _, _, flag, body_size = _HEAD.unpack_from(body, at)
        body_at = at + _HEAD.size
        properties_at = body_at + body_size + _PROPERTIES_LENGTH.size
        if body_size < 0 or properties_at > end:
            raise InvalidMessageError(
                f"item {len(items)} of a batch says a body of {body_size} bytes, {end - body_at}"
                " are left"
            )
        (properties_size,) = _PROPERTIES_LENGTH.unpack_from(
            body, properties_at - _PROPERTIES_LENGTH.size
        )
        stop = properties_at + properties_size
        if properties_size < 0 or stop > end or stop - at != size:
            raise InvalidMessageError(
                f"item {len(items)} of a batch says {size} bytes, body and properties of"
                f" {body_size} and {properties_size}, and {end - at} are left: these do not fit"
                " together"
            )
        items.append(BatchItem(flag, body[body_at : body_at + body_size], body[properties_at:stop]))
        at = stop
    return items


def split(batch: MessageRecord) -> list[MessageRecord]:
    """One message per item, for ordinary records: all but flag, body and properties is that of the
    batch.
    """
    return [
        MessageRecord(
            batch.topic,
            item.body,
            born_host=batch.born_host,
            born_time_ms=batch.born_time_ms,
            queue_id=batch.queue_id,
            flag=item.flag,
            sys_flag=batch.sys_flag,
            reconsume_times=batch.reconsume_times,
            prepared_offset=batch.prepared_offset,
            properties=item.properties,
        )
        for item in decode(bytes(batch.body))
    ]


def make_inner(batch: MessageRecord) -> int:
    """Turn a batch into one that is stored as a single record, and return how many queue offsets it
    takes.
    """
    count = len(decode(bytes(batch.body)))
    batch.sys_flag |= NEED_UNWRAP | INNER_BATCH
    batch.properties = properties.extended(batch.properties, {properties.INNER_NUM: str(count)})
    return count


def set_inner_base(batch: MessageRecord, queue_offset: int) -> None:
    """Say in an inner batch, at the moment of its append, which queue offset its first
    message has.
    """
    batch.properties = properties.extended(
        properties.without(batch.properties, properties.INNER_BASE),
        {properties.INNER_BASE: str(queue_offset)},
    )


def check_inner(message: MessageRecord, *, queue_holds_batches: bool) -> None:
    """Refuse an inner batch in a queue that holds none, and a message that claims a count without
    being one.
    """
    is_inner = message.sys_flag & INNER_BATCH != 0
    if is_inner and not queue_holds_batches:
        raise InvalidMessageError(
            f"topic {message.topic.decode('utf-8', 'replace')} does not store batches as one"
            " record: create it with queue.type=BatchCQ"
        )
    if not is_inner and properties.INNER_NUM in properties.parse(message.properties):
        raise InvalidMessageError(
            f"property {properties.INNER_NUM} on a message that is no batch; take it out"
        )
