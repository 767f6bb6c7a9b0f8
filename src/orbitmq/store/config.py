"""What the store can be told. Plain values; the names that the original's configuration files use are mapped to them by the broker."""

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
PAGE_SIZE = 4096  # what the original counts dirty bytes in

# The work of filters: steps, times the bytes of properties that each of them may look at and FILTER_STEP_WORK more. Some milliseconds.
FILTER_STEP_WORK = 64
FILTER_WORK_MAX = 4_000_000


class FlushMode(Enum):
    """When a message is acknowledged: as soon as it is in the log, or when the disk has it."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """One store. Where a default is not Apache's, its line says so."""

    root: Path

    # The commit log.
    commit_log_folders: tuple[Path, ...] = ()  # none: `commitlog` in the root
    read_only_commit_log_folders: tuple[Path, ...] = ()  # files there are used, new ones are not made there
    commit_log_file_size: int = 1 << 30
    limits: RecordLimits = field(default_factory=RecordLimits)
    record_crc: bool = False  # enabledAppendPropCRC: records get a checksum of all of their bytes
    record_crc_required: bool = False  # forceVerifyPropCRC: a record without the right one is bad
    batch_size_max: int = 8 << 20  # ours: how much is gathered before it is written
    folder_full_ratio: float = 0.85  # diskSpaceCleanForciblyRatio: a fuller disk gets no new file while another has room

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
    open_queue_files_max: int = OPEN_FILES_MAX  # ours: what is more is closed, and opened again when it is needed
    index_enabled: bool = True
    index_shape: IndexShape = field(default_factory=IndexShape)
    filter_entries_max: int = 800  # how many entries one read looks at: maxFilterMessageSize / 20
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS

    # Reads.
    check_body_on_read: bool = True  # ours: a body that does not have its checksum is not handed out
    memory_percent_max: int = 40  # accessMessageInMemoryMaxRatio: what of the memory is taken to hold the end of the log
    hot_bytes_max: int = 262_144  # maxTransferBytesOnMessageInMemory: how much one read gives of that end
    hot_count_max: int = 32
    cold_bytes_max: int = 65_536  # maxTransferBytesOnMessageInDisk: … and of what is before it
    cold_count_max: int = 8

    # Retention; see `retention_rules`. The forced level is `folder_full_ratio`, above, which is the same setting.
    reserved_ms: int = 72 * 3_600_000  # fileReservedTime, in hours there
    delete_hours: tuple[int, ...] = (4,)  # deleteWhen: `retention_rules.delete_hours` reads its text
    disk_used_ratio_max: float = 0.75  # diskMaxUsedSpaceRatio: above it what is expired goes at any hour
    disk_warning_ratio: float = 0.90  # diskSpaceWarningLevelRatio: above it puts are refused
    clean_forcibly: bool = True  # cleanFileForciblyEnable
    clean_interval_ms: int = 10_000  # cleanResourceInterval
    delete_files_max: int = 10  # deleteFileBatchMax, in one round
    delete_pause_ms: int = 100  # deleteCommitLogFilesInterval, between two files
    clean_queues_max: int = 20  # ours: how many queues one tick looks at
    protect_unconsumed: bool = False  # ours: what is expired stays while a group has not consumed it

    # Recovery.
    truncate_damage: bool = False  # recoverBadRecord=truncate: the original's rule

    def log_folders(self) -> tuple[Path, ...]:
        """Where the commit log may write, in the order of its turns."""
        return self.commit_log_folders or (self.root / "commitlog",)
