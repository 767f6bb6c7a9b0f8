"""Keys of messages that come later: by delay levels and by the timer wheel, and of taking them back."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.common.config import APACHE_5, Long, Settings, key


@dataclass(frozen=True, kw_only=True)
class TimerSettings(Settings):
    """Those of the original's `MessageStoreConfig`."""

    SECTION: ClassVar[str] = "messageStoreConfig"

    message_delay_level: str = key(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "How long each delay level waits: numbers with s, m, h or d."
    )
    flush_delay_offset_interval: Long = key(10_000, "How often `delayOffset.json` is saved, ms.", minimum=1, dynamic=True)
    timer_wheel_enable: bool = key(
        True, "Whether messages may be sent that come at a time of their own (`TIMER_DELIVER_MS` and the like).", releases=APACHE_5
    )
    timer_precision_ms: int = key(
        1000,
        "How long a slot of the timer wheel is, ms: 1000, 100 or what else divides a second. Within its slot a message comes to the "
        "millisecond. A store with timer files keeps the value that it was written with.",
        minimum=1,
        maximum=60_000,
        releases=APACHE_5,
    )
    timer_roll_window_slot: int = key(
        172_800,
        "A timed message that is further away than so many slots is put into the timer topic anew when half of that, or all, is over; at "
        "most half of `fileReservedTime`, as it is at the start.",
        minimum=2,
        maximum=604_800,
        releases=APACHE_5,
    )
    timer_flush_interval_ms: int = key(
        1000, "How often the timer's files are brought to disk, ms.", minimum=1, releases=APACHE_5, dynamic=True
    )
    timer_max_delay_sec: int = key(
        259_200, "The longest delay of a timed message, s.", minimum=1, maximum=2_000_000_000, dynamic=True, releases=APACHE_5
    )
    timer_congest_num_each_slot: int = key(
        2_147_483_647, "Above so many messages in one slot, further ones for it are refused.", minimum=1, dynamic=True, releases=APACHE_5
    )
    timer_stop_enqueue: bool = key(
        False, "While true, messages of the timer topic are not taken into the wheel.", dynamic=True, releases=APACHE_5
    )
    timer_stop_dequeue: bool = key(False, "While true, no timed message is delivered.", dynamic=True, releases=APACHE_5)
    mapped_file_size_timer_log: int = key(
        104_857_600,
        "The size of a file of the timer log, bytes, of which an entry takes 52.",
        minimum=120,
        maximum=1 << 30,
        releases=APACHE_5,
    )
    append_topic_for_timer_delete_key: bool = key(
        False, "Whether a recall names `topic+id` instead of the id alone; both are understood.", dynamic=True, releases=APACHE_5
    )


@dataclass(frozen=True, kw_only=True)
class RecallSettings(Settings):
    """Those of the original's `BrokerConfig`."""

    SECTION: ClassVar[str] = "brokerConfig"

    recall_message_enable: bool = key(
        False, "Whether producers may take back timed messages before they come.", dynamic=True, releases=APACHE_5
    )
    allow_recall_when_broker_not_writeable: bool = key(
        True, "Whether they may also while `brokerPermission` does not let them send.", dynamic=True, releases=APACHE_5
    )
    delay_offset_update_version_step: Long = key(
        200,
        "After so many deliveries of delayed messages `delayOffset.json` gets a new version.",
        minimum=1,
        releases=APACHE_5,
        dynamic=True,
    )
