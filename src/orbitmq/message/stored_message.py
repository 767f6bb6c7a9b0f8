"""StoredMessage: one record as a value, and what consumers see of it.

Created by `record_read.RecordCursor`. It keeps the body and the properties in their stored form, so
writing it again yields the same bytes; `inflated` and `inner_messages` return what a consumer sees.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.message import batch, compression, message_id, properties
from orbitmq.message.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP, compression_type
from orbitmq.message.record_write import MessageRecord


class StoredMessage(NamedTuple):
    """A message with its position in the log and in its queue. A tuple, since tens of thousands are
    created.
    """

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    flag: int
    sys_flag: int
    born_time_ms: int
    born_host: bytes
    store_time_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    body_crc: int
    raw_properties: bytes
    size: int

    @property
    def msg_id(self) -> str:
        """Return the offset id; the messages of an inner batch share it."""
        return message_id.offset_id(self.store_host, self.log_offset)

    def properties(self) -> dict[str, str]:
        """Return the properties by name."""
        return properties.parse(self.raw_properties)

    def inflated(self, size_max: int) -> StoredMessage:
        """Return it with its body inflated and the flag updated, as consumers receive it."""
        kind = compression_type(self.sys_flag)
        if kind is None:
            return self
        return self._replace(
            body=compression.inflate(self.body, kind, size_max),
            sys_flag=self.sys_flag & ~COMPRESSED,
        )

    @property
    def is_inner_batch(self) -> bool:
        """Return whether the body holds several messages that a reader must unpack."""
        return self.sys_flag & (NEED_UNWRAP | INNER_BATCH) == NEED_UNWRAP | INNER_BATCH

    def inner_messages(self) -> list[StoredMessage]:
        """Return the messages of an inner batch, whose body must be inflated already; of any other
        record the record itself.

        They have no size, checksum and retries of their own.
        """
        if not self.is_inner_batch:
            return [self]
        return [
            self._replace(
                queue_offset=self.queue_offset + number,
                flag=item.flag,
                body=item.body,
                raw_properties=item.properties,
                size=0,
                body_crc=0,
                reconsume_times=0,
                prepared_offset=0,
            )
            for number, item in enumerate(batch.decode(self.body))
        ]

    def to_message(self) -> MessageRecord:
        """Return the message as it would be stored again."""
        return MessageRecord(
            self.topic.encode(),
            self.body,
            born_host=self.born_host,
            born_time_ms=self.born_time_ms,
            queue_id=self.queue_id,
            flag=self.flag,
            sys_flag=self.sys_flag,
            reconsume_times=self.reconsume_times,
            prepared_offset=self.prepared_offset,
            properties=self.raw_properties,
        )
