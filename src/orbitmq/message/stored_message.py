"""StoredMessage: one record as a value, and what a reader makes of it.

Made by `record_read.RecordCursor`. It keeps the body and the properties as they are stored, so that writing it again gives the
same bytes; `inflated` and `inner_messages` give what a consumer sees.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.message import batch, compression, message_id, properties
from orbitmq.message.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP, compression_type
from orbitmq.message.record_write import Message


class StoredMessage(NamedTuple):
    """A message with its place in the log and in its queue. A tuple, since those are made by the ten thousand."""

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
        """The offset id; the messages of an inner batch share it."""
        return message_id.offset_id(self.store_host, self.log_offset)

    def properties(self) -> dict[str, str]:
        """The properties by name."""
        return properties.parse(self.raw_properties)

    def inflated(self, size_max: int) -> StoredMessage:
        """The same with its body not compressed and the flag saying so, as consumers get it."""
        kind = compression_type(self.sys_flag)
        if kind is None:
            return self
        return self._replace(body=compression.inflate(self.body, kind, size_max), sys_flag=self.sys_flag & ~COMPRESSED)

    @property
    def is_inner_batch(self) -> bool:
        """Whether the body holds several messages that a reader must take out."""
        return self.sys_flag & (NEED_UNWRAP | INNER_BATCH) == NEED_UNWRAP | INNER_BATCH

    def inner_messages(self) -> list[StoredMessage]:
        """The messages of an inner batch, whose body must not be compressed any more; of another record itself alone.

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

    def to_message(self) -> Message:
        """The message as it would be stored once more."""
        return Message(
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
