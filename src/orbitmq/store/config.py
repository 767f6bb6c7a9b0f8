"""Configuration of the store as plain values. The broker maps Apache's configuration keys to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from orbitmq.message.record import RecordLimits
from orbitmq.store.index_file import IndexShape
from orbitmq.store.open_files import OPEN_FILES_MAX
from orbitmq.store.queues import BATCH_FILE_SIZE, QUEUE_FILE_SIZE

_DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
DELAY_LEVELS_MS = tuple(1000 * seconds for seconds in _DELAYS_S)
PAGE_SIZE = 4096  # Apache counts dirty bytes in pages

# Cost of one filtered read: entries times steps, each weighing the properties' bytes plus
# FILTER_STEP_WORK. The limit amounts to a few milliseconds.
FILTER_STEP_WORK = 64
FILTER_WORK_MAX = 4_000_000


class FlushMode(Enum):
    """When a send is acknowledged: once the message is in the log, or once it is flushed."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of one store. Defaults that differ from Apache's are marked as ours."""

    root: Path

    # The commit log.
    commit_log_folders: tuple[Path, ...] = ()  # empty: `commitlog` in the root
    # Existing files there are used, new ones are not created there.
    read_only_commit_log_folders: tuple[Path, ...] = ()
    commit_log_file_size: int = 1 << 30
    limits: RecordLimits = field(default_factory=RecordLimits)
    record_crc: bool = False  # enabledAppendPropCRC: records carry a checksum of all their bytes
    record_crc_required: bool = False  # forceVerifyPropCRC: a record without a valid one is corrupt
    batch_size_max: int = 8 << 20  # ours: bytes buffered before a write
    # diskSpaceCleanForciblyRatio: a fuller disk gets no new file while another has room
    folder_full_ratio: float = 0.85

    # Flushing.
    flush_mode: FlushMode = FlushMode.ASYNC
    sync_flush_timeout_ms: int = 5_000
    flush_log_interval_ms: int = 500
    flush_log_pages_min: int = 4
    flush_log_thorough_interval_ms: int = 10_000
    flush_queues_interval_ms: int = 1_000
    flush_queues_pages_min: int = 2
    flush_queues_thorough_interval_ms: int = 60_000
    flush_checkpoint_interval_ms: int = 1_000

    # Queues and index.
    queue_file_size: int = QUEUE_FILE_SIZE
    queue_ext_file_size: int | None = None  # None: no ext files (enableConsumeQueueExt)
    batch_queue_file_size: int = BATCH_FILE_SIZE
    open_queue_files_max: int = OPEN_FILES_MAX  # ours: above it, the least recently used close
    index_enabled: bool = True
    index_shape: IndexShape = field(default_factory=IndexShape)
    filter_entries_max: int = 800  #  20/ 20
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS

    # Reads.
    check_body_on_read: bool = True  # ours: bodies with a wrong checksum are not delivered
    # accessMessageInMemoryMaxRatio: share of memory assumed to cache the end of the log
    memory_percent_max: int = 40
    hot_bytes_max: int = 262_144  # maxTransferBytesOnMessageInMemory: per read of the cached end
    hot_count_max: int = 32
    cold_bytes_max: int = 65_536  # maxTransferBytesOnMessageInDisk: per read of the rest
    cold_count_max: int = 8

    # Retention; see `retention_rules`. The forced level is `folder_full_ratio` above.
    reserved_ms: int = 72 * 3_600_000  # fileReservedTime, in hours there
    delete_hours: tuple[int, ...] = (4,)  # deleteWhen, parsed by `retention_rules.delete_hours`
    # diskMaxUsedSpaceRatio: above it, expired files are deleted at any hour
    disk_used_ratio_max: float = 0.75
    disk_warning_ratio: float = 0.90  # diskSpaceWarningLevelRatio: above it puts are refused
    clean_forcibly: bool = True  # cleanFileForciblyEnable
    clean_interval_ms: int = 10_000  # cleanResourceInterval
    delete_files_max: int = 10  # deleteFileBatchMax, per round
    delete_pause_ms: int = 100  # deleteCommitLogFilesInterval, between two files
    clean_queues_max: int = 20  # ours: queues examined per tick
    protect_unconsumed: bool = False  # ours: keep expired files until all groups consumed them

    # Replication.
    follows_master: bool = False  # brokerRole=SLAVE: the log grows by `receive` only

    # Recovery.
    truncate_damage: bool = False  # recoverBadRecord=truncate: Apache's rule

    def log_folders(self) -> tuple[Path, ...]:
        """Folders the commit log writes to, used round-robin."""
        return self.commit_log_folders or (self.root / "commitlog",)
