"""Keys of transactions: whether they are served, and when producers are checked."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import APACHE_5, Long, Settings, key


@dataclass(frozen=True, kw_only=True)
class TransactionKeys(Settings):
    """Keys of Apache's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    reject_transaction_message: bool = key(
        False, "Whether transactional messages are refused.", dynamic=True
    )
    transaction_time_out: Long = key(
        6000,
        "Minimum age of a half message before its producer is checked, ms; the property"
        " `CHECK_IMMUNITY_TIME_IN_SECONDS` overrides it.",
        minimum=0,
        dynamic=True,
        important=True,
    )
    transaction_check_max: int = key(
        15,
        "Maximum number of checks of a half message before it goes to TRANS_CHECK_MAX_TIME_TOPIC."
        " Only checks that were sent count; while no producer of its group is online, it stays"
        " pending for up to seven eighths of `fileReservedTime`.",
        minimum=1,
        dynamic=True,
        important=True,
    )
    transaction_check_interval: Long = key(
        30_000,
        "Interval of transaction checks, ms. 60000 in 4.9.",
        minimum=1,
        dynamic=True,
        important=True,
    )
    transaction_metric_flush_interval: Long = key(
        10_000,
        "Interval of saves of `transactionMetrics` (half messages by topic), ms.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )
