"""Keys of transactions: whether they are served, and when their producers are asked."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import APACHE_5, Long, Settings, key


@dataclass(frozen=True, kw_only=True)
class TransactionKeys(Settings):
    """Those of the original's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    reject_transaction_message: bool = key(False, "Whether messages of transactions are refused.", dynamic=True)
    transaction_time_out: Long = key(
        6000,
        "How old a half message is before its producer is asked, ms, unless it says otherwise (`CHECK_IMMUNITY_TIME_IN_SECONDS`).",
        minimum=0,
        dynamic=True,
        important=True,
    )
    transaction_check_max: int = key(
        15,
        "How often a producer is asked about a half message before that goes to TRANS_CHECK_MAX_TIME_TOPIC. Only questions count that were "
        "asked: one whose producers are all gone waits for them, for seven eighths of `fileReservedTime` at most.",
        minimum=1,
        dynamic=True,
        important=True,
    )
    transaction_check_interval: Long = key(
        30_000, "How often producers are asked, ms. 60000 in 4.9.", minimum=1, dynamic=True, important=True
    )
    transaction_metric_flush_interval: Long = key(
        10_000,
        "How often `transactionMetrics`, the number of half messages by topic, is saved, ms.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )
