"""Messages that a consumer could not consume: how often they come again, after which delay, and where they are in the meantime.

The rules that sending back (`processors.send_back`) and sending to a retry topic (`processors.send`) share. Pure, but for the topics and
groups that come to be when they are first needed. A group's retry policy (`groupRetryPolicy`) says nothing here: as in the original, it is
for consumers that pop.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.groups import Groups
from orbitmq.broker.topics import READ_WRITE, Topics
from orbitmq.common.errors import RequestRefused
from orbitmq.common.topic_names import DEAD_LETTER_PREFIX
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.versions import V3_4_9

DEAD_LETTER_QUEUE: Final = 0
_DEAD_LETTER_QUEUES: Final = 1
_FIRST_LEVEL: Final = 3  # of delays: ten seconds, unless messageDelayLevel says otherwise


def group_of(groups: Groups, name: str) -> GroupConfig:
    """The group, created if groups are; refused when there is none."""
    found = groups.find(name)
    if found is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {name}: create it, or set autoCreateSubscriptionGroup=true",
        )
    return found


def times_max(group: GroupConfig, wanted: int | None, client_version: int) -> int:
    """How often a message comes again: as the consumer says, if it is new enough to mean it, else as its group says."""
    return wanted if wanted is not None and client_version >= V3_4_9 else group.retry_max_times


def delay_level(wanted: int, reconsume_times: int) -> int:
    """The level of the delay before a message comes again that did so many times before: as the consumer says, else longer each time."""
    return wanted or _FIRST_LEVEL + reconsume_times


def dead_letter_topic(topics: Topics, group: str) -> TopicConfig:
    """Where the group's messages go that came too often."""
    return topics.for_send_back(DEAD_LETTER_PREFIX + group, _DEAD_LETTER_QUEUES, READ_WRITE)
