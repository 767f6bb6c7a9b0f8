"""Keys of filters by SQL92 expressions."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import Long, Settings, key


@dataclass(frozen=True, kw_only=True)
class FilterSettings(Settings):
    """Those of the original's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    enable_property_filter: bool = key(
        False,
        "Whether consumers may choose messages by SQL92 expressions. On in `orbitmq up` and LocalCluster. See filters.md.",
        dynamic=True,
    )
    filter_support_retry: bool = key(
        False, "Whether messages that come again are filtered once more, by the expression of the topic that they were in.", dynamic=True
    )
    enable_calc_filter_bit_map: bool = key(
        False,
        "Whether each message is compared with all filters of its topic when it is stored; with `enableConsumeQueueExt`, pulls pass over "
        "those that their group does not want without reading them.",
        dynamic=True,
    )
    expect_consumer_num_use_filter: int = key(32, "How many groups of a topic the bits of that are made for.", minimum=1, maximum=32_768)
    max_error_rate_of_bloom_filter: int = key(20, "How many percent of the messages may be read in vain for them.", minimum=1, maximum=99)
    filter_data_clean_time_span: Long = key(86_400_000, "How long a filter is kept of a group that left, ms.", minimum=0, dynamic=True)
