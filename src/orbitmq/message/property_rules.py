"""The one table of what a send needs because of the properties of its message.

Fast path and general path both use it, so a rule for a property exists once. The table fails
closed: an unlisted name that begins like RocketMQ's own takes the general path.

Values only. The fast path reads the table as bytes (`packed`), so that it makes no objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from orbitmq.message import properties


class Need(IntEnum):
    """What a send with a property needs."""

    PLAIN = 0  # nothing: the property is stored as it is
    DEFER = 1  # the message is stored in a holding topic until it is due or its transaction ends
    INTERNAL = 2  # brokers write it into deferred messages; with a deferral, the general path
    GENERAL = 3  # the general path


class DeferralKind(IntEnum):
    """Why a message is deferred."""

    LEVEL = 1  # until the time of its delay level
    TIMED = 2  # until a time of its own
    HALF = 3  # until its transaction ends


class PropertyRule(NamedTuple):
    """What a send with a property needs, and which deferral the property asks for, if any."""

    need: Need
    deferral: DeferralKind | None = None


PLAIN: Final = PropertyRule(Need.PLAIN)
_INTERNAL: Final = PropertyRule(Need.INTERNAL)
GENERAL: Final = PropertyRule(Need.GENERAL)

RULES: Final[Mapping[str, PropertyRule]] = {
    **dict.fromkeys(
        (
            properties.KEYS,
            properties.TAGS,
            properties.WAIT,
            properties.RETRY_TOPIC,
            properties.PRODUCER_GROUP,
            properties.MIN_OFFSET,
            properties.MAX_OFFSET,
            properties.BUYER_ID,
            properties.MQ2_FLAG,
            properties.TRANSFER_FLAG,
            properties.CORRECTION_FLAG,
            properties.ORIGIN_MESSAGE_ID,
            properties.ORIGIN_GROUP,
            properties.RECONSUME_TIME,
            properties.MAX_RECONSUME_TIMES,
            properties.MSG_REGION,
            properties.TRACE_ON,
            properties.UNIQUE_KEY,
            properties.EXTEND_UNIQUE_INFO,
            properties.DUPLICATION_INFO,
            properties.CONSUME_START_TIME,
            properties.PRIORITY,
            properties.CHECK_IMMUNITY_TIME_S,
            properties.INSTANCE_ID,
            properties.CORRELATION_ID,
            properties.REPLY_TO_CLIENT,
            properties.TTL,
            properties.ARRIVE_TIME,
            properties.PUSH_REPLY_TIME,
            properties.CLUSTER,
            properties.MESSAGE_TYPE,
            properties.FIRST_POP_TIME,
            properties.SHARDING_KEY,
            properties.FORWARD_QUEUE_ID,
            properties.REDIRECT,
            properties.TRACE_CONTEXT,
            properties.BORN_HOST,
            properties.BORN_TIMESTAMP,
            properties.CRC32,
            properties.DLQ_ORIGIN_TOPIC,
            properties.DLQ_ORIGIN_MESSAGE_ID,
        ),
        PLAIN,
    ),
    properties.DELAY: PropertyRule(Need.DEFER, DeferralKind.LEVEL),
    # The time follows from that of the arrival.
    properties.TIMER_DELAY_SEC: PropertyRule(Need.GENERAL, DeferralKind.TIMED),
    properties.TIMER_DELAY_MS: PropertyRule(Need.GENERAL, DeferralKind.TIMED),
    properties.TIMER_DELIVER_MS: PropertyRule(Need.DEFER, DeferralKind.TIMED),
    properties.TRANSACTION_PREPARED: PropertyRule(Need.DEFER, DeferralKind.HALF),
    **dict.fromkeys(
        (
            properties.REAL_TOPIC,
            properties.REAL_QUEUE_ID,
            properties.TRANSACTION_ID,
            properties.TRANSACTION_CHECK_TIMES,
        ),
        _INTERNAL,
    ),
    **dict.fromkeys(
        (
            properties.PREPARED_QUEUE_OFFSET,
            properties.INNER_NUM,
            properties.INNER_BASE,
            properties.INNER_MULTI_DISPATCH,
            properties.INNER_MULTI_QUEUE_OFFSET,
            properties.POP_CK,
            properties.POP_CK_OFFSET,
            properties.LITE_TOPIC,
            properties.TIMER_ENQUEUE_MS,
            properties.TIMER_DEQUEUE_MS,
            properties.TIMER_ROLL_TIMES,
            properties.TIMER_OUT_MS,
            properties.TIMER_DEL_UNIQUE_KEY,
            properties.TIMER_DELAY_LEVEL,
        ),
        GENERAL,
    ),
}
# How names begin that RocketMQ keeps for itself; applications seldom choose such a name.
RESERVED_PREFIXES: Final = ("__", "_SYS_", "TIMER", "TRAN_", "REAL_", "INNER_", "POP_CK", "DELAY_")

# The properties that ask for delivery at a later time, in the order in which the original looks.
DELAYING: Final = tuple(
    name
    for name, rule in RULES.items()
    if rule.deferral in (DeferralKind.LEVEL, DeferralKind.TIMED)
)


def rule_of(name: str) -> PropertyRule:
    """Return the rule for a property of that name, which applications may have chosen."""
    known = RULES.get(name)
    if known is not None:
        return known
    return GENERAL if name.startswith(RESERVED_PREFIXES) else PLAIN


# Codes of rules in the packed table: a DeferralKind, or one of these.
CODE_PLAIN: Final = 0
CODE_INTERNAL: Final = 4
CODE_GENERAL: Final = 5


def packed() -> tuple[bytes, bytes]:
    """Return the table as bytes for kernels: entries, and where those of each first byte begin.

    An entry is the code of the rule, 1 for a prefix or 0 for a whole name, the name's length, and
    the name. Entries are grouped by the first byte of the name; whole names come before prefixes.
    The second table has for each byte, and once more behind the last, the offset of its first entry
    as two bytes, little-endian. First bytes of which all names are plain have no entries.
    """
    names = [(name.encode(), code_of(rule), 0) for name, rule in RULES.items()]
    names += [(prefix.encode(), CODE_GENERAL, 1) for prefix in RESERVED_PREFIXES]
    entries, starts = bytearray(), bytearray()
    for first in range(256):
        starts += len(entries).to_bytes(2, "little")
        group = [each for each in names if each[0][0] == first]
        if all(code == CODE_PLAIN for _, code, _ in group):
            continue
        for name, code, is_prefix in sorted(group, key=lambda each: (each[2], each[0])):
            entries += bytes((code, is_prefix, len(name))) + name
    starts += len(entries).to_bytes(2, "little")
    return bytes(entries), bytes(starts)


def code_of(rule: PropertyRule) -> int:
    """Return the code of a rule in the packed table."""
    if rule.need is Need.DEFER:
        assert rule.deferral is not None
        return rule.deferral
    return {Need.PLAIN: CODE_PLAIN, Need.INTERNAL: CODE_INTERNAL, Need.GENERAL: CODE_GENERAL}[
        rule.need
    ]
