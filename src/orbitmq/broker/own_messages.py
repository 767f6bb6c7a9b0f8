"""Messages that the broker writes by itself: those that come due, are sent back, were committed, were given up.

Knows how they get into the store, nothing of why. Thread rule: the loop thread. Invariant: what `put` raises for was not stored, and may be
tried again as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbitmq.broker.plugins.interfaces import PluggableStore
from orbitmq.broker.processors.send import SendListener
from orbitmq.message import properties
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore


class OwnMessages:
    """The way of a broker's own messages into its store; `listener` hears of them as of those of producers."""

    def __init__(self, store: MessageStore, messages: PluggableStore, listener: SendListener) -> None:
        self._store = store
        self._messages = messages
        self._listener = listener

    def put(self, *messages: Message) -> Sequence[Appended]:
        """Store them in one write, in that order, all or none; StoreError or MessageIllegal when not."""
        try:
            appended = [self._messages.append(message) for message in messages]
            self._store.commit()
        except BaseException:
            self._store.log.discard()
            raise
        for message, place in zip(messages, appended, strict=True):
            self._listener.stored(bytes(message.topic).decode(), 1, place.size)
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
