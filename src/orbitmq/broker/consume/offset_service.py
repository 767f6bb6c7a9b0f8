"""Committed offsets of consumer groups, as consumers query and commit them.

Rules live in `Offsets`. Differences from Apache RocketMQ: an offset below zero is not committed
(there it would erase the group's progress), nor one of a queue that does not exist; a new group
begins at 0 in a queue that never had a message (docs/decisions/0016-first-message.md). Invariant: a
commit that is refused changes nothing.
"""

from __future__ import annotations

from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import Topics
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.store.queues import Queues
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import QueueKey, QueueOffset


class OffsetService:
    """Queries and commits offsets."""

    def __init__(
        self, *, topics: Topics, groups: Groups, offsets: Offsets, store: MessageStore
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store

    def query(self, group: str, topic: str, queue_id: int, *, is_zero_if_new: bool = True) -> int:
        """Return the committed offset of a group.

        A group without one begins at 0 if `is_zero_if_new` and the queue has no message yet, or
        still has its first one in memory; otherwise RefusedError, and the consumer asks for the end
        of the queue.
        """
        offset = self._offsets.query(group, topic, queue_id)
        if offset is not None:
            return offset
        if not is_zero_if_new:
            raise RefusedError(
                Refusal.NO_OFFSET, "Not found, do not set to zero, maybe this group boot first"
            )
        if self._is_unused(topic, queue_id) or self._is_young(topic, queue_id):
            return 0
        raise RefusedError(
            Refusal.NO_OFFSET, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )

    def _is_unused(self, topic: str, queue_id: int) -> bool:
        """Return whether a topic has that queue, and nothing was ever stored in it.

        A consumer without an offset asks for the end of the queue next, and would begin after a
        message that arrives in between.
        """
        config = self._topics.find(topic)
        if config is None or not 0 <= queue_id < max(
            config.read_queue_nums, config.write_queue_nums
        ):
            return False
        return self._store.queues.max_offset(topic, queue_id) == 0

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue still has its first message, and in memory: then a new group
        begins with it.
        """
        found = self._store.reads.get(QueueKey(topic, queue_id), QueueOffset(0), count_max=1)
        return found.min_offset <= 0 and found.status is GetStatus.FOUND and not found.suggest_slave

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, client: str) -> bool:
        """Commit an offset; return False if a pending reset takes precedence."""
        if group not in self._groups:
            raise RefusedError(
                Refusal.NO_GROUP,
                f"Group {group} not exist! Pull or send a heartbeat first, or create it",
            )
        config = self._topics.find(topic)
        if config is None:
            raise RefusedError(
                Refusal.NO_TOPIC, f"Topic {topic} not exist! Send to it, or create it"
            )
        if queue_id < 0 or offset < 0:
            raise RefusedError(
                Refusal.INVALID_PARAMETER,
                f"offset {offset} of queue {queue_id} of {topic} cannot be committed for {group}:"
                " both begin with 0",
            )
        check_queue(config, queue_id, self._store.queues)
        if self._offsets.server_side_reset and self._offsets.has_reset(group, topic, queue_id):
            return False
        self._offsets.commit(group, topic, queue_id, offset, client=client)
        return True


def check_queue(topic: TopicConfig, queue_id: int, queues: Queues) -> None:
    """Raise RefusedError unless the topic has that queue, or had it: an offset of any other queue
    would be kept for ever.
    """
    count = max(topic.read_queue_nums, topic.write_queue_nums)
    if (
        queue_id >= count
        and queues.plain.find(topic.name, queue_id) is None
        and queues.batch.find(topic.name, queue_id) is None
    ):
        raise RefusedError(
            Refusal.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic {topic.name} has {count} queues: name one of 0"
            f" to {count - 1}",
        )
