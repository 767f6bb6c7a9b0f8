"""Writes the broker's own messages: deferred messages that come due, messages that are sent back,
committed transactions, and those given up.

Knows how to store them, not why. Thread rule: the loop thread. Invariant: if `put` raises, nothing
was stored, and the same call may be retried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbitmq.broker.plugins.interfaces import PluggableStore
from orbitmq.broker.produce.send_listener import SendListener
from orbitmq.common.errors import StoreError
from orbitmq.message import properties
from orbitmq.message.message_type import MessageType
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset


class InternalMessageWriter:
    """Stores the broker's own messages; `listener` counts them like those of producers."""

    def __init__(
        self, store: MessageStore, messages: PluggableStore, listener: SendListener
    ) -> None:
        self._store = store
        self._messages = messages
        self._listener = listener

    @property
    def log_end(self) -> int:
        """Return the log offset of the next write."""
        return self._store.log.end_offset

    def written_since(self, log_begin: int) -> Iterator[LogOffset]:
        """Yield the log offsets of the records from an offset on, up to the first corrupt one."""
        if self._store.log.min_offset <= log_begin < self._store.log.end_offset:
            for record in self._store.log.scan(LogOffset(log_begin), check_body=False):
                yield LogOffset(record.log_offset)

    def put(
        self, *messages: MessageRecord, message_type: MessageType = MessageType.NORMAL
    ) -> Sequence[Appended]:
        """Store messages of that type in one write, in order, all or none. Raises StoreError or
        InvalidMessageError otherwise.
        """
        begun_ms = self._listener.monotonic_ms()
        try:
            appended = [self._messages.append(message) for message in messages]
            self._store.commit()
        except BaseException as error:
            self._store.log.discard()
            if isinstance(error, StoreError):
                self._listener.put_failed(self._listener.monotonic_ms() - begun_ms, len(messages))
            raise
        for message, place in zip(messages, appended, strict=True):
            self._listener.stored(bytes(message.topic).decode(), 1, place.size, message_type)
        self._listener.put_took(self._listener.monotonic_ms() - begun_ms, len(messages))
        return appended


def copy_of(
    stored: StoredMessage,
    topic: str,
    queue_id: int,
    more: Mapping[str, str | None],
    *,
    without: Sequence[str] = (),
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    prepared_offset: int = 0,
) -> MessageRecord:
    """Return a copy of the message for another queue: body, flags, birth and properties stay,
    except where arguments replace them.
    """
    raw = stored.raw_properties
    for name in {properties.CRC32, *without, *more}:
        raw = properties.without(raw, name)
    return MessageRecord(
        topic.encode(),
        stored.body,
        born_host=stored.born_host,
        born_time_ms=stored.born_time_ms,
        queue_id=queue_id,
        flag=stored.flag,
        sys_flag=stored.sys_flag if sys_flag is None else sys_flag,
        reconsume_times=stored.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_offset=prepared_offset,
        properties=properties.extended(raw, more),
    )
