"""Which names topics and groups may have, and which topics are the broker's own: the rules of the original's TopicValidator.

Pure: names in, a refusal out. The remarks begin as the original's do, since tools show and match them, and go on with what to do.
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.common.errors import RequestRefused
from orbitmq.protocol.codes import ResponseCode

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = SYSTEM_PREFIX + "wheel_timer"
SYNC_MEMBERS_PREFIX: Final = SYSTEM_PREFIX + "SYNC_BROKER_MEMBER_"
REVIVE_PREFIX: Final = SYSTEM_PREFIX + "REVIVE_LOG_"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"

FORBIDDEN_TO_SEND: Final = frozenset(
    {
        *(SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC),
        *(ROCKSDB_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC),
    }
)
SYSTEM_TOPICS: Final = FORBIDDEN_TO_SEND | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC}

TOPIC_CHARS_MAX: Final = 127
RETRY_TOPIC_CHARS_MAX: Final = 255
GROUP_CHARS_MAX: Final = 120  # so that retry and dead-letter topics can be named after it

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str) -> None:
    """RequestRefused unless a topic may have that name."""
    _check(topic, "topic")
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > RETRY_TOPIC_CHARS_MAX:
            raise _refused(
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length: {RETRY_TOPIC_CHARS_MAX}; "
                f"it has {len(topic)} characters: use a shorter group name"
            )
    elif len(topic) > TOPIC_CHARS_MAX:
        raise _refused(
            f"The specified topic: {topic}, is longer than topic max length: {TOPIC_CHARS_MAX}; "
            f"it has {len(topic)} characters: use a shorter name"
        )


def check_group(group: str) -> None:
    """RequestRefused unless a consumer group may have that name."""
    _check(group, "group")
    if len(group) > GROUP_CHARS_MAX:
        raise _refused(
            f"The specified group: {group}, is longer than group max length: {GROUP_CHARS_MAX}; "
            f"it has {len(group)} characters: use a shorter name"
        )


def is_valid_group(group: str) -> bool:
    """Whether a consumer group may have that name."""
    return len(group) <= GROUP_CHARS_MAX and _NAME.fullmatch(group) is not None


def _check(name: str, what: str) -> None:
    if _NAME.fullmatch(name) is not None:
        return
    if not name or name.isspace():
        raise _refused(f"The specified {what} is blank. Give a name of letters, digits, %, |, _ or -")
    wrong = next(char for char in name if not _NAME.match(char))
    raise _refused(f"The specified {what}: {name}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$; the first is {wrong!r}")


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
