"""Keys of scheduled delivery: delay levels, timer wheel, and recalls."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import APACHE_5, Long, Settings, key


@dataclass(frozen=True, kw_only=True)
class TimerSettings(Settings):
    """Keys of Apache's `MessageStoreConfig`."""

    SECTION: ClassVar[str] = "messageStoreConfig"

    message_delay_level: str = key(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delay of each level: numbers with s, m, h or d.",
    )
    flush_delay_offset_interval: Long = key(
        10_000, "Interval of saves of `delayOffset.json`, ms.", minimum=1, dynamic=True
    )
    timer_wheel_enable: bool = key(
        True,
        "Whether messages may be scheduled for a given time (`TIMER_DELIVER_MS` and the like).",
        releases=APACHE_5,
    )
    timer_precision_ms: int = key(
        1000,
        "Length of a slot of the timer wheel, ms: 1000, 100 or another divisor of a second."
        " Delivery within a slot is exact to the millisecond. A store with timer files keeps the"
        " value that it was written with.",
        minimum=1,
        maximum=60_000,
        releases=APACHE_5,
    )
    timer_roll_window_slot: int = key(
        172_800,
        "A timed message more slots away than this is rolled (stored again in the timer topic)"
        " after half or all of that time; at most half of `fileReservedTime` as of the start.",
        minimum=2,
        maximum=604_800,
        releases=APACHE_5,
    )
    timer_flush_interval_ms: int = key(
        1000,
        "Interval of saves of the timer's files, ms.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )
    timer_max_delay_sec: int = key(
        259_200,
        "Maximum delay of a timed message, s.",
        minimum=1,
        maximum=2_000_000_000,
        dynamic=True,
        releases=APACHE_5,
    )
    timer_congest_num_each_slot: int = key(
        2_147_483_647,
        "Maximum number of messages in one slot; more are refused.",
        minimum=1,
        dynamic=True,
        releases=APACHE_5,
    )
    timer_stop_enqueue: bool = key(
        False,
        "While true, messages of the timer topic are not taken into the wheel.",
        dynamic=True,
        releases=APACHE_5,
    )
    timer_stop_dequeue: bool = key(
        False, "While true, no timed message is delivered.", dynamic=True, releases=APACHE_5
    )
    mapped_file_size_timer_log: int = key(
        104_857_600,
        "Size of a timer log file, bytes; an entry takes 52.",
        minimum=120,
        maximum=1 << 30,
        releases=APACHE_5,
    )
    append_topic_for_timer_delete_key: bool = key(
        False,
        "Whether a recall names `topic+id` instead of the id alone; both are accepted.",
        dynamic=True,
        releases=APACHE_5,
    )


@dataclass(frozen=True, kw_only=True)
class RecallSettings(Settings):
    """Keys of Apache's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    recall_message_enable: bool = key(
        False,
        "Whether producers may recall timed messages before their delivery.",
        dynamic=True,
        releases=APACHE_5,
    )
    allow_recall_when_broker_not_writeable: bool = key(
        True,
        "Whether recalls are allowed even while `brokerPermission` forbids sends.",
        dynamic=True,
        releases=APACHE_5,
    )
    delay_offset_update_version_step: Long = key(
        200,
        "Deliveries of delayed messages per new version of `delayOffset.json`.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )
