"""Names of RocketMQ's system topics and groups, and the prefixes that mark the purpose of
a topic.
"""

from __future__ import annotations

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

PREDEFINED_GROUPS: Final = (  # present on every broker
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

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

SYSTEM_TOPICS: Final = frozenset(
    {
        *(
            SCHEDULE_TOPIC,
            HALF_TOPIC,
            OP_HALF_TOPIC,
            CHECK_MAX_TIME_TOPIC,
            SELF_TEST_TOPIC,
            OFFSET_MOVED_TOPIC,
        ),
        *(
            ROCKSDB_HALF_TOPIC,
            ROCKSDB_OP_HALF_TOPIC,
            AUTO_CREATE_TOPIC,
            BENCHMARK_TOPIC,
            TRACE_TOPIC,
            CHECKPOINT_TOPIC,
        ),
    }
)
FORBIDDEN_TO_SEND: Final = (SYSTEM_TOPICS | {TIMER_TOPIC}) - {
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}
WAITING_TOPICS: Final = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, CHECK_MAX_TIME_TOPIC}
)  # topics whose messages are meant for other topics
