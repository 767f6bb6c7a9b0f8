"""Keys of filters by SQL92 expressions."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import Long, Settings, key


@dataclass(frozen=True, kw_only=True)
class FilterSettings(Settings):
    """Keys of Apache's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    enable_property_filter: bool = key(
        False,
        "Whether consumers may filter messages by SQL92 expressions. On in `orbitmq up` and"
        " LocalCluster. See filters.md.",
        dynamic=True,
    )
    filter_support_retry: bool = key(
        False,
        "Whether redelivered messages are filtered again, by the expression for their original"
        " topic.",
        dynamic=True,
    )
    enable_calc_filter_bit_map: bool = key(
        False,
        "Whether each stored message is matched against all filters of its topic; with"
        " `enableConsumeQueueExt`, pulls then skip the others without reading them.",
        dynamic=True,
    )
    expect_consumer_num_use_filter: int = key(
        32, "Expected number of filtering groups per topic.", minimum=1, maximum=32_768
    )
    max_error_rate_of_bloom_filter: int = key(
        20, "Maximum false-positive rate of the filter bit map, percent.", minimum=1, maximum=99
    )
    filter_data_clean_time_span: Long = key(
        86_400_000, "Retention of the filters of groups that left, ms.", minimum=0, dynamic=True
    )
