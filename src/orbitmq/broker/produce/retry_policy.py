"""Retries of messages that a consumer could not consume: how often they are redelivered, after
which delay, and where they are held meanwhile.

The rules that sending back (`send_back`) and sending to a retry topic (`service`) share. Pure,
except that topics and groups are created when first needed. A group's retry policy
(`groupRetryPolicy`) is not used here: as in Apache RocketMQ, it applies to consumers that pop.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import READ_WRITE, Topics
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig

DEAD_LETTER_QUEUE: Final = 0
_DEAD_LETTER_QUEUES: Final = 1
_FIRST_LEVEL: Final = 3  # a delay level: ten seconds, unless messageDelayLevel says otherwise


def group_of(groups: Groups, name: str) -> GroupConfig:
    """Return the group, created if allowed. Raises RefusedError if it does not exist."""
    found = groups.find(name)
    if found is None:
        raise RefusedError(
            Refusal.NO_GROUP,
            f"subscription group not exist, {name}: create it, or set"
            " autoCreateSubscriptionGroup=true",
        )
    return found


def times_max(group: GroupConfig, wanted: int | None) -> int:
    """Return the maximum number of redeliveries: the consumer's value, else the group's."""
    return group.retry_max_times if wanted is None else wanted


def delay_level(wanted: int, reconsume_times: int) -> int:
    """Return the delay level of the next redelivery after `reconsume_times` earlier
    ones: the consumer's value, else one that grows each time.
    """
    return wanted or _FIRST_LEVEL + reconsume_times


def dead_letter_topic(topics: Topics, group: str) -> TopicConfig:
    """Return the dead-letter topic of the group."""
    return topics.for_send_back(DEAD_LETTER_PREFIX + group, _DEAD_LETTER_QUEUES, READ_WRITE)
