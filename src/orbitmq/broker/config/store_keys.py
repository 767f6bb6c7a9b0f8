"""Keys of the message store; `store_config` translates them."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, Use, key
from orbitmq.store.config import FlushMode

_NO_DLEDGER = "Elected masters are not supported yet."


class BadRecord(Enum):
    """How recovery treats a corrupt record that is followed by valid ones."""

    QUARANTINE = "quarantine"
    TRUNCATE = "truncate"


@dataclass(frozen=True, kw_only=True)
class StoreSettings(Settings):
    """Files, flushing, reads and retention."""

    SECTION: ClassVar[str] = "messageStoreConfig"

    store_path_root_dir: str = key(
        "~/store", "Directory of the store.", important=True, in_home=True
    )
    store_path_commit_log: str | None = key(
        None,
        "Directories of the commit log, separated by `,`; `commitlog` in `storePathRootDir` if not"
        " set.",
        important=True,
        is_path=True,
    )
    read_only_commit_log_store_paths: str | None = key(
        None,
        "Commit log directories that get no new files, separated by `,`.",
        releases=APACHE_5,
        is_path=True,
    )
    mapped_file_size_commit_log: int = key(
        1 << 30, "Size of a commit log file, bytes.", minimum=4096
    )
    mapped_file_size_consume_queue: int = key(
        6_000_000,
        "Size of a consume queue file, bytes; rounded up to a multiple of 20.",
        minimum=20,
    )
    enable_consume_queue_ext: bool = key(
        False, "Whether consume queues have ext files with data for filters."
    )
    mapped_file_size_consume_queue_ext: int = key(
        50_331_648, "Size of an ext file, bytes.", minimum=1024
    )
    mapper_file_size_batch_consume_queue: int = key(
        13_800_000,
        "Size of a batch consume queue file, bytes; rounded up to a multiple of 46.",
        minimum=46,
        releases=APACHE_5,
    )
    message_index_enable: bool = key(True, "Whether messages can be found by key.", important=True)
    index_file_write_enable: bool = key(True, "Whether index files are written.", releases=APACHE_5)
    max_hash_slot_num: int = key(5_000_000, "Hash slots per index file.", minimum=1)
    max_index_num: int = key(20_000_000, "Entries per index file.", minimum=2)
    max_msgs_num_batch: int = key(
        64, "Maximum number of messages that a query by key returns.", minimum=1, dynamic=True
    )
    default_query_max_num: int = key(
        32, "Number of messages that a query by unique key returns.", minimum=1, dynamic=True
    )

    flush_disk_type: FlushMode = key(
        FlushMode.ASYNC,
        "`SYNC_FLUSH` acknowledges a message once it is flushed to disk, `ASYNC_FLUSH` once it is"
        " written to the log.",
        important=True,
    )
    sync_flush_timeout: int = key(
        5000, "Timeout of a flush that a send waits for, ms.", minimum=1, dynamic=True
    )
    os_page_cache_busy_time_out_mills: Long = key(
        1000,
        "Sends are refused if writes of the log block the broker for longer, ms.",
        minimum=1,
        dynamic=True,
    )
    flush_interval_commit_log: int = key(
        500,
        "Flush interval of the log with `ASYNC_FLUSH`, ms.",
        minimum=1,
        important=True,
        dynamic=True,
    )
    flush_commit_log_least_pages: int = key(
        4, "Minimum of dirty 4 KiB pages for such a flush.", minimum=0, dynamic=True
    )
    flush_commit_log_thorough_interval: int = key(
        10_000, "Flush interval regardless of that minimum, ms.", minimum=1, dynamic=True
    )
    flush_interval_consume_queue: int = key(
        1000, "Flush interval of consume queues, ms.", minimum=1, dynamic=True
    )
    flush_consume_queue_least_pages: int = key(
        2, "Minimum of dirty 4 KiB pages for such a flush.", minimum=0, dynamic=True
    )
    flush_consume_queue_thorough_interval: int = key(
        60_000, "Flush interval regardless of that minimum, ms.", minimum=1, dynamic=True
    )

    max_message_size: int = key(
        4_194_304,
        "Maximum size of a message body, bytes.",
        minimum=1,
        maximum=(1 << 30) - (1 << 20),
        dynamic=True,
    )
    max_topic_length: int = key(
        127,
        "Maximum length of a topic name, bytes.",
        minimum=1,
        maximum=255,
        releases=APACHE_5,
        dynamic=True,
    )
    enabled_append_prop_crc: bool = key(
        False,
        "Whether records carry a checksum of the whole record.",
        name="enabledAppendPropCRC",
        releases=APACHE_5,
    )
    force_verify_prop_crc: bool = key(
        False,
        "Whether a record without a valid checksum of the whole record is corrupt: for stores that"
        " had them from the start.",
        name="forceVerifyPropCRC",
        releases=APACHE_5,
    )

    max_filter_message_size: int = key(
        16_000,
        "How far one read scans for messages that match its filter, bytes of the queue, 20 per"
        " message.",
        minimum=20,
        releases=APACHE_5,
        dynamic=True,
    )
    max_transfer_bytes_on_message_in_memory: int = key(
        262_144,
        "Maximum bytes per read of messages in the page cache.",
        minimum=1,
        important=True,
        dynamic=True,
    )
    max_transfer_count_on_message_in_memory: int = key(
        32, "Maximum number of messages per such read.", minimum=1, important=True, dynamic=True
    )
    max_transfer_bytes_on_message_in_disk: int = key(
        65_536,
        "Maximum bytes per read of older messages.",
        minimum=1,
        important=True,
        dynamic=True,
    )
    max_transfer_count_on_message_in_disk: int = key(
        8, "Maximum number of messages per such read.", minimum=1, important=True, dynamic=True
    )
    access_message_in_memory_max_ratio: int = key(
        40,
        "Share of the memory assumed to cache the newest messages, percent.",
        minimum=0,
        maximum=100,
        important=True,
        dynamic=True,
    )

    delete_when: str = key(
        "04",
        "The hours of the day, separated by `;`, at which expired files are deleted.",
        dynamic=True,
        important=True,
    )
    file_reserved_time: int = key(
        72,
        "Retention: hours after its last write until a file expires.",
        minimum=0,
        dynamic=True,
        important=True,
    )
    clean_resource_interval: int = key(
        10_000, "Interval of the scan for files to delete, ms.", minimum=1000, dynamic=True
    )
    delete_file_batch_max: int = key(
        10,
        "Maximum number of log files deleted per scan.",
        minimum=1,
        dynamic=True,
        important=True,
        releases=APACHE_5,
    )
    delete_commit_log_files_interval: int = key(
        100, "Pause between two deletions, ms.", minimum=0, dynamic=True
    )
    disk_max_used_space_ratio: int = key(
        75,
        "Disk usage, percent (10 to 95), above which expired files are deleted at any hour.",
        dynamic=True,
    )
    disk_space_clean_forcibly_ratio: int = key(
        85,
        "Disk usage, percent, above which files are deleted before they expire, and a directory"
        " gets no new file while another has room.",
        dynamic=True,
        releases=APACHE_5,
    )
    disk_space_warning_level_ratio: int = key(
        90,
        "Disk usage, percent, above which messages are refused.",
        dynamic=True,
        releases=APACHE_5,
    )
    clean_file_forcibly_enable: bool = key(
        True,
        "Whether files may be deleted before they expire if the disk is full.",
        dynamic=True,
        important=True,
    )

    data_read_ahead_enable: bool = key(
        True,
        "Whether the operating system reads the log ahead, or only what is requested.",
        dynamic=True,
        releases=APACHE_5,
    )
    enable_dleger_commit_log: bool = key(
        False,
        f"{_NO_DLEDGER} DLedger's log has another format: omit the key.",
        name="enableDLegerCommitLog",
        use=Use.REFUSED,
    )
    duplication_enable: bool = key(
        False, "A log is duplicated by slaves: set `brokerRole`, and omit the key.", use=Use.REFUSED
    )
    store_type: str = key(
        "default",
        "Consume queues are files: RocksDB is not supported.",
        use=Use.REFUSED,
        releases=APACHE_5,
    )


@dataclass(frozen=True, kw_only=True)
class OwnStoreSettings(Settings):
    """Keys that Apache does not have."""

    SECTION: ClassVar[str] = "orbitmq"

    recover_bad_record: BadRecord = key(
        BadRecord.QUARANTINE,
        "Treatment of a corrupt record that is followed by valid ones: `quarantine` skips it,"
        " `truncate` ends the log there, as Apache does.",
        releases=OWN,
    )
    protect_unconsumed: bool = key(
        False,
        "Whether an expired file is kept until all groups have consumed it, unless the disk is"
        " full.",
        dynamic=True,
        releases=OWN,
    )
