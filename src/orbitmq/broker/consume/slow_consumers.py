"""Protection from slow consumers: disables a group that reads too far behind, so that the page
cache stays with the messages of others.

Enabled by disableConsumeIfConsumerReadSlowly; the limit is consumerFallbehindThreshold. Checked
every few minutes, and only for queues that the group pulled since the last check: a group that does
not read does no harm. Where Apache RocketMQ notes the lag with every pull, this asks the queue at
the time of the check. Invariant: a group is disabled once, and only an operator enables it again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final, NamedTuple

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.common.slices import Slices, slices_of
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueOffset

PERIOD_S: Final = 180.0

_KEYS_PER_SLICE: Final = 500
_PULLS_PER_SLICE: Final = 250

log = logging.getLogger(__name__)


class _Pull(NamedTuple):
    group: str
    topic: str
    queue_id: int
    offset: int


class SlowConsumers:
    """Disables groups that read too far behind."""

    def __init__(
        self, settings: BrokerConfig, offsets: Offsets, groups: Groups, store: MessageStore
    ) -> None:
        self._settings = settings
        self._offsets = offsets
        self._groups = groups
        self._store = store
        self._seen: set[_Pull] = set()

    def check(self) -> Slices[None]:
        """Disable the groups that read too far behind; in slices, so pulls that arrive meanwhile
        may be checked now or next time.
        """
        if not self._settings.disable_consume_if_consumer_read_slowly:
            self._seen.clear()
            return
        pulls: set[_Pull] = set()
        for part in slices_of(list(self._offsets.pulls.items()), _KEYS_PER_SLICE):
            for (group, topic), queues in part:
                pulls.update(
                    [_Pull(group, topic, queue_id, offset) for queue_id, offset in queues.items()]
                )
            if len(part) == _KEYS_PER_SLICE:
                yield
        for at, pull in enumerate([pull for pull in pulls if pull not in self._seen]):
            if at % _PULLS_PER_SLICE == _PULLS_PER_SLICE - 1:
                yield
            config = self._groups.table.get(pull.group)
            if (
                config is not None
                and config.consume_enable
                and (behind := self._bytes_behind(pull)) > self._threshold
            ):
                self._groups.update(replace(config, consume_enable=False, attributes={}))
                log.warning(
                    "group_disabled group=%s topic=%s queue=%d bytes_behind=%d limit=%d hint='it"
                    " reads messages that left the page cache; to enable it, run mqadmin"
                    " updateSubGroup -g %s -s true with its other settings, and raise"
                    " consumerFallbehindThreshold'",
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
        """Return how many bytes of the log follow what the group reads next."""
        queue = self._store.queues.plain.find(
            pull.topic, pull.queue_id
        ) or self._store.queues.batch.find(pull.topic, pull.queue_id)
        entry = None if queue is None else queue.get(QueueOffset(pull.offset))
        return 0 if entry is None else self._store.log.end_offset - entry.log_offset
