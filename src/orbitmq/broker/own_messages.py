"""Messages that the broker writes by itself: those that come due, are sent back, were committed, were given up.

Knows how they get into the store, nothing of why. Thread rule: the loop thread. Invariant: what `put` raises for was not stored, and may be
tried again as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbitmq.broker.plugins.interfaces import PluggableStore
from orbitmq.broker.processors.send import SendListener
from orbitmq.common.errors import StoreError
from orbitmq.message import properties
from orbitmq.message.message_type import MessageType
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset


class OwnMessages:
    """The way of a broker's own messages into its store; `listener` hears of them as of those of producers."""

    def __init__(self, store: MessageStore, messages: PluggableStore, listener: SendListener) -> None:
        self._store = store
        self._messages = messages
        self._listener = listener

    @property
    def log_end(self) -> int:
        """Where in the commit log the next write begins."""
        return self._store.log.end_offset

    def written_since(self, log_begin: int) -> Iterator[LogOffset]:
        """Where the records of the commit log begin, from an offset on; up to one that is damaged."""
        if self._store.log.min_offset <= log_begin < self._store.log.end_offset:
            for record in self._store.log.scan(LogOffset(log_begin), check_body=False):
                yield LogOffset(record.log_offset)

    def put(self, *messages: Message, message_type: MessageType = MessageType.NORMAL) -> Sequence[Appended]:
        """Store them, as messages of that type, in one write, in that order, all or none; StoreError or MessageIllegal when not."""
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
) -> Message:
    """The message once more, for another place: with its body, flags, birth and properties, but for what is said."""
    raw = stored.raw_properties
    for name in {properties.CRC32, *without, *more}:
        raw = properties.without(raw, name)
    return Message(
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
