"""The keys of the message store. What a value means to the store is said by `orbitmq.broker.store_settings`."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, Use, key
from orbitmq.store.config import FlushMode

_ONE_MASTER = "Replication is not part of this broker: it is a master without slaves."
_ONE_COPY = (
    "There is no replication yet, so a message has one copy: leave the key out, and set `flushDiskType=SYNC_FLUSH` if sends should wait "
    "for the disk."
)


class BrokerRole(Enum):
    """What a broker is among its replicas."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class BadRecord(Enum):
    """What a recovery does with a damaged record that has good ones behind it."""

    QUARANTINE = "quarantine"
    TRUNCATE = "truncate"


@dataclass(frozen=True, kw_only=True)
class StoreSettings(Settings):
    """Files, flushing, reads and retention."""

    SECTION: ClassVar[str] = "messageStoreConfig"

    store_path_root_dir: str = key("~/store", "Where everything is kept.", important=True, in_home=True)
    store_path_commit_log: str | None = key(
        None, "Where messages are kept, several folders separated by `,`; `commitlog` in `storePathRootDir` when not set.", important=True
    )
    read_only_commit_log_store_paths: str | None = key(
        None, "Those of the folders that get no new file, separated by `,`.", releases=APACHE_5
    )
    mapped_file_size_commit_log: int = key(1 << 30, "The size of one file of the commit log, bytes.", minimum=4096)
    mapped_file_size_consume_queue: int = key(
        6_000_000, "The size of one file of a queue, bytes; taken up to the next multiple of 20.", minimum=20
    )
    enable_consume_queue_ext: bool = key(False, "Whether queues have files with more of each message, for filters.")
    mapped_file_size_consume_queue_ext: int = key(50_331_648, "The size of one such file, bytes.", minimum=1024)
    mapper_file_size_batch_consume_queue: int = key(
        13_800_000, "The size of one file of a queue of batches, bytes; taken up to the next multiple of 46.", minimum=46, releases=APACHE_5
    )
    message_index_enable: bool = key(True, "Whether messages can be found by key.", important=True)
    index_file_write_enable: bool = key(True, "Whether the files for that are written.", releases=APACHE_5)
    max_hash_slot_num: int = key(5_000_000, "How many slots one index file has.", minimum=1)
    max_index_num: int = key(20_000_000, "How many entries one index file has.", minimum=2)
    max_msgs_num_batch: int = key(64, "How many messages a query by key gives at most.", minimum=1, dynamic=True)
    default_query_max_num: int = key(32, "How many it gives when it is not said.", minimum=1, dynamic=True)

    flush_disk_type: FlushMode = key(
        FlushMode.ASYNC, "`SYNC_FLUSH` acknowledges a message when the disk has it, `ASYNC_FLUSH` when the log has it.", important=True
    )
    sync_flush_timeout: int = key(5000, "How long a sender waits for the disk, ms.", minimum=1, dynamic=True)
    os_page_cache_busy_time_out_mills: Long = key(
        1000, "Sends are refused when writes of the log held the broker for longer, ms.", minimum=1, dynamic=True
    )
    flush_interval_commit_log: int = key(
        500, "How often the log is flushed with `ASYNC_FLUSH`, ms.", minimum=1, important=True, dynamic=True
    )
    flush_commit_log_least_pages: int = key(4, "… when so many pages of 4 KiB are new.", minimum=0, dynamic=True)
    flush_commit_log_thorough_interval: int = key(10_000, "… and however few are, ms.", minimum=1, dynamic=True)
    flush_interval_consume_queue: int = key(1000, "How often queues are flushed, ms.", minimum=1, dynamic=True)
    flush_consume_queue_least_pages: int = key(2, "… when so many pages of 4 KiB are new.", minimum=0, dynamic=True)
    flush_consume_queue_thorough_interval: int = key(60_000, "… and however few are, ms.", minimum=1, dynamic=True)

    max_message_size: int = key(4_194_304, "The longest body that is taken, bytes.", minimum=1, maximum=(1 << 30) - (1 << 20), dynamic=True)
    max_topic_length: int = key(127, "The longest topic that is taken, bytes.", minimum=1, maximum=255, releases=APACHE_5, dynamic=True)
    enabled_append_prop_crc: bool = key(
        False, "Whether records carry a checksum of the whole record.", name="enabledAppendPropCRC", releases=APACHE_5
    )
    force_verify_prop_crc: bool = key(
        False,
        "Whether a record without the right checksum of the whole record is taken for damaged: for stores that had them from the start.",
        name="forceVerifyPropCRC",
        releases=APACHE_5,
    )

    max_filter_message_size: int = key(
        16_000,
        "How far one read looks for messages that its filter takes, bytes of the queue, 20 for each message.",
        minimum=20,
        releases=APACHE_5,
        dynamic=True,
    )
    max_transfer_bytes_on_message_in_memory: int = key(
        262_144, "How many bytes one read gives of messages that memory holds.", minimum=1, important=True, dynamic=True
    )
    max_transfer_count_on_message_in_memory: int = key(32, "… and how many messages.", minimum=1, important=True, dynamic=True)
    max_transfer_bytes_on_message_in_disk: int = key(
        65_536, "How many bytes one read gives of older messages.", minimum=1, important=True, dynamic=True
    )
    max_transfer_count_on_message_in_disk: int = key(8, "… and how many messages.", minimum=1, important=True, dynamic=True)
    access_message_in_memory_max_ratio: int = key(
        40,
        "What part of the memory is taken to hold the newest messages, in percent.",
        minimum=0,
        maximum=100,
        important=True,
        dynamic=True,
    )

    delete_when: str = key("04", "The hours of the day, separated by `;`, at which expired files go.", dynamic=True, important=True)
    file_reserved_time: int = key(
        72, "A file that was not written to for so many hours is expired.", minimum=0, dynamic=True, important=True
    )
    clean_resource_interval: int = key(10_000, "How often it is looked for files to delete, ms.", minimum=1000, dynamic=True)
    delete_file_batch_max: int = key(
        10, "How many files of the log go in one round.", minimum=1, dynamic=True, important=True, releases=APACHE_5
    )
    delete_commit_log_files_interval: int = key(100, "The pause between two of them, ms.", minimum=0, dynamic=True)
    disk_max_used_space_ratio: int = key(
        75, "Above so many percent of the disk, taken as 10 to 95, expired files go at any hour.", dynamic=True
    )
    disk_space_clean_forcibly_ratio: int = key(
        85,
        "Above so many percent files go that are not expired, and a folder gets no new one while another has room.",
        dynamic=True,
        releases=APACHE_5,
    )
    disk_space_warning_level_ratio: int = key(90, "Above so many percent messages are refused.", dynamic=True, releases=APACHE_5)
    clean_file_forcibly_enable: bool = key(
        True, "Whether files that are not expired may go when the disk is full.", dynamic=True, important=True
    )

    data_read_ahead_enable: bool = key(
        True,
        "Whether the system reads the log ahead of consumers; off, it reads what is asked for.",
        dynamic=True,
        releases=APACHE_5,
    )
    broker_role: BrokerRole = key(
        BrokerRole.ASYNC_MASTER, "`SLAVE` and `SYNC_MASTER` are refused: there is no replication yet.", important=True
    )
    in_sync_replicas: int = key(1, _ONE_COPY, use=Use.REFUSED, releases=APACHE_5)
    min_in_sync_replicas: int = key(1, _ONE_COPY, use=Use.REFUSED, releases=APACHE_5)
    all_ack_in_sync_state_set: bool = key(False, _ONE_COPY, use=Use.REFUSED, releases=APACHE_5)
    ha_listen_port: int = key(0, "There is no replication yet: nothing listens for slaves.", minimum=0, maximum=65535, use=Use.NO_EFFECT)
    enable_dleger_commit_log: bool = key(
        False, f"{_ONE_MASTER} DLedger's log has another format, too: leave the key out.", name="enableDLegerCommitLog", use=Use.REFUSED
    )
    duplication_enable: bool = key(False, _ONE_MASTER, use=Use.REFUSED)
    store_type: str = key("default", "Queues are kept in files: there is no RocksDB here.", use=Use.REFUSED, releases=APACHE_5)


@dataclass(frozen=True, kw_only=True)
class OwnStoreSettings(Settings):
    """What the original has no key for."""

    SECTION: ClassVar[str] = "orbitmq"

    recover_bad_record: BadRecord = key(
        BadRecord.QUARANTINE,
        "A damaged record with good ones behind it: `quarantine` passes over it, `truncate` ends the log there, as the original does.",
        releases=OWN,
    )
    protect_unconsumed: bool = key(
        False,
        "Whether an expired file stays while a group has not consumed what is in it, unless the disk is full.",
        dynamic=True,
        releases=OWN,
    )
