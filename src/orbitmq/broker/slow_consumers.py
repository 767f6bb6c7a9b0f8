"""Protection from slow consumers: a group that reads too far behind may read no more, and leaves the memory to the messages of others.

Switched on by disableConsumeIfConsumerReadSlowly; how far is too far by consumerFallbehindThreshold. Looked at every few minutes, and only
at queues that the group pulled since the last look: one that does not read harms nobody. Where the original notes with every pull how far
behind it is, this asks the queue, then and there. Invariant: a group is disabled once, and only an operator enables it again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import Offsets
from orbitmq.common.slices import Slices, slices_of
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueOffset

PERIOD_S: Final = 180.0

_KEYS_PER_SLICE: Final = 500
_PULLS_PER_SLICE: Final = 250

log = logging.getLogger(__name__)


class ProtectionSettings(Protocol):
    """What of the configuration protection looks at."""

    @property
    def disable_consume_if_consumer_read_slowly(self) -> bool: ...
    @property
    def consumer_fallbehind_threshold(self) -> int: ...


class _Pull(NamedTuple):
    group: str
    topic: str
    queue_id: int
    offset: int


class SlowConsumers:
    """See above."""

    def __init__(self, settings: ProtectionSettings, offsets: Offsets, groups: Groups, store: MessageStore) -> None:
        self._settings = settings
        self._offsets = offsets
        self._groups = groups
        self._store = store
        self._seen: set[_Pull] = set()

    def check(self) -> Slices[None]:
        """Disable the groups that read too far behind; in slices, so pulls meanwhile may be looked at now or next time."""
        if not self._settings.disable_consume_if_consumer_read_slowly:
            self._seen.clear()
            return
        pulls: set[_Pull] = set()
        for part in slices_of(list(self._offsets.pulls.items()), _KEYS_PER_SLICE):
            for (group, topic), queues in part:
                pulls.update([_Pull(group, topic, queue_id, offset) for queue_id, offset in queues.items()])
            if len(part) == _KEYS_PER_SLICE:
                yield
        for at, pull in enumerate([pull for pull in pulls if pull not in self._seen]):
            if at % _PULLS_PER_SLICE == _PULLS_PER_SLICE - 1:
                yield
            config = self._groups.table.get(pull.group)
            if config is not None and config.consume_enable and (behind := self._bytes_behind(pull)) > self._threshold:
                self._groups.update(replace(config, consume_enable=False, attributes={}))
                log.warning(
                    "group_disabled group=%s topic=%s queue=%d bytes_behind=%d limit=%d hint='it reads what is no more in memory; to let "
                    "it go on, say mqadmin updateSubGroup -g %s -s true with its other settings, and raise consumerFallbehindThreshold'",
                    pull.group,
                    pull.topic,
                    pull.queue_id,
                    behind,
                    self._threshold,
                    pull.group,
                )
        self._seen = pulls

    @property
    def _threshold(self) -> int:
        return self._settings.consumer_fallbehind_threshold

    def _bytes_behind(self, pull: _Pull) -> int:
        """How much of the log is behind what the group reads next."""
        queue = self._store.queues.plain.find(pull.topic, pull.queue_id) or self._store.queues.batch.find(pull.topic, pull.queue_id)
        entry = None if queue is None else queue.get(QueueOffset(pull.offset))
        return 0 if entry is None else self._store.log.end_offset - entry.log_offset
