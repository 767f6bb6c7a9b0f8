"""Keys of replies, and of guards: against members of a group that subscribe differently, and against sends that come twice."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import OWN, Long, Settings, key


class SubscriptionConflict(Enum):
    """What is done about members of one group that do not subscribe the same."""

    WARN = "warn"
    REFUSE = "refuse"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class ReplySettings(Settings):
    """Those of the original's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    store_reply_message_enable: bool = key(
        True, "Whether replies to requests are also stored, in the topic <cluster>_REPLY_TOPIC.", dynamic=True
    )
    reply_thread_pool_queue_capacity: int = key(
        10_000, "How many replies may wait for their turn to be brought to who asked.", minimum=1, dynamic=True
    )


@dataclass(frozen=True, kw_only=True)
class GuardSettings(Settings):
    """What the original has no key for."""

    SECTION: ClassVar[str] = "orbitmq"

    subscription_conflict: SubscriptionConflict = key(
        SubscriptionConflict.WARN,
        "What is done when members of one group subscribe differently, so that messages pass them by: `warn` logs it and shows it in "
        "`orbitmq group show`, `refuse` also turns the newcomer away, `off` does nothing.",
        dynamic=True,
        important=True,
        releases=OWN,
    )
    dedup_window_ms: Long = key(
        0,
        "For so long a send with the UNIQ_KEY of a stored message is answered as that one was, and not stored; 0 = off. See retries.md.",
        minimum=0,
        releases=OWN,
    )
    dedup_window_keys_max: int = key(
        200_000,
        "How many keys are known for that at most, some 400 bytes of memory each; the oldest are forgotten first.",
        minimum=1,
        releases=OWN,
    )
