"""Keys of replies, of subscription conflicts, and of the deduplication window."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import OWN, Long, Settings, key


class SubscriptionConflict(Enum):
    """The reaction to members of one group that subscribe differently."""

    WARN = "warn"
    REFUSE = "refuse"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class ReplySettings(Settings):
    """Keys of Apache's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    store_reply_message_enable: bool = key(
        True,
        "Whether replies to requests are also stored in the topic <cluster>_REPLY_TOPIC.",
        dynamic=True,
    )
    reply_thread_pool_queue_capacity: int = key(
        10_000,
        "Maximum number of replies queued for delivery to their requesters.",
        minimum=1,
        dynamic=True,
    )


@dataclass(frozen=True, kw_only=True)
class GuardSettings(Settings):
    """Keys that Apache does not have."""

    SECTION: ClassVar[str] = "orbitmq"

    subscription_conflict: SubscriptionConflict = key(
        SubscriptionConflict.WARN,
        "Reaction to members of one group that subscribe differently and therefore miss messages:"
        " `warn` logs it and shows it in `orbitmq group show`, `refuse` also refuses new members,"
        " `off` does nothing.",
        dynamic=True,
        important=True,
        releases=OWN,
    )
    dedup_window_ms: Long = key(
        0,
        "Deduplication window, ms: a send with the UNIQ_KEY of a message stored within it gets that"
        " message's reply and is not stored; 0 = off. See retries.md.",
        minimum=0,
        releases=OWN,
    )
    dedup_window_keys_max: int = key(
        200_000,
        "Maximum number of keys in the deduplication window, about 400 bytes of memory each; the"
        " oldest are evicted first.",
        minimum=1,
        releases=OWN,
    )
