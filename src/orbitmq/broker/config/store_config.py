"""Translates configuration keys into the configuration of the store."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.broker.config.delay_keys import TimerSettings
from orbitmq.broker.config.replication_keys import BrokerRole, ReplicationSettings
from orbitmq.broker.config.store_keys import BadRecord, OwnStoreSettings, StoreSettings
from orbitmq.common.errors import ConfigurationError
from orbitmq.message.record import RecordLimits
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ENTRY_SIZE
from orbitmq.store.index_file import IndexShape
from orbitmq.store.open_files import OPEN_FILES_MAX
from orbitmq.store.retention_rules import delete_hours

_HOUR_MS: Final = 3_600_000
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": _HOUR_MS, "d": 24 * _HOUR_MS}
_DISK_PERCENT: Final = (
    10,
    95,
)  # Apache's limits of diskMaxUsedSpaceRatio
_SLAVE_MEMORY_PERCENT_LESS: Final = 10
_PATH_SEPARATOR: Final = ","
_OPEN_QUEUE_FILES_MAX: Final = 65_536


@dataclass(frozen=True, kw_only=True)
class StoreKeys(StoreSettings, ReplicationSettings, TimerSettings, OwnStoreSettings):
    """All keys of the store."""


def store_config(settings: StoreKeys) -> StoreConfig:
    """Return the store's configuration; its retention settings may be applied again at run time."""
    low, high = _DISK_PERCENT
    is_slave = settings.broker_role is BrokerRole.SLAVE
    return StoreConfig(
        root=Path(settings.store_path_root_dir),
        commit_log_folders=_folders(settings.store_path_commit_log),
        read_only_commit_log_folders=_folders(settings.read_only_commit_log_store_paths),
        commit_log_file_size=settings.mapped_file_size_commit_log,
        limits=RecordLimits(
            body_size_max=settings.max_message_size, topic_size_max=settings.max_topic_length
        ),
        record_crc=settings.enabled_append_prop_crc,
        record_crc_required=settings.force_verify_prop_crc,
        folder_full_ratio=settings.disk_space_clean_forcibly_ratio / 100,
        flush_mode=settings.flush_disk_type,
        sync_flush_timeout_ms=settings.sync_flush_timeout,
        flush_log_interval_ms=settings.flush_interval_commit_log,
        flush_log_pages_min=settings.flush_commit_log_least_pages,
        flush_log_thorough_interval_ms=settings.flush_commit_log_thorough_interval,
        flush_queues_interval_ms=settings.flush_interval_consume_queue,
        flush_queues_pages_min=settings.flush_consume_queue_least_pages,
        flush_queues_thorough_interval_ms=settings.flush_consume_queue_thorough_interval,
        queue_file_size=settings.mapped_file_size_consume_queue,
        queue_ext_file_size=(
            settings.mapped_file_size_consume_queue_ext
            if settings.enable_consume_queue_ext
            else None
        ),
        batch_queue_file_size=settings.mapper_file_size_batch_consume_queue,
        open_queue_files_max=_open_queue_files_max(),
        index_enabled=settings.message_index_enable and settings.index_file_write_enable,
        index_shape=IndexShape(settings.max_hash_slot_num, settings.max_index_num),
        filter_entries_max=settings.max_filter_message_size // ENTRY_SIZE,
        delay_levels_ms=delay_levels_ms(settings.message_delay_level),
        # A slave leaves memory to its master's readers, as in the original.
        memory_percent_max=max(
            settings.access_message_in_memory_max_ratio
            - (_SLAVE_MEMORY_PERCENT_LESS if is_slave else 0),
            0,
        ),
        hot_bytes_max=settings.max_transfer_bytes_on_message_in_memory,
        hot_count_max=settings.max_transfer_count_on_message_in_memory,
        cold_bytes_max=settings.max_transfer_bytes_on_message_in_disk,
        cold_count_max=settings.max_transfer_count_on_message_in_disk,
        reserved_ms=settings.file_reserved_time * _HOUR_MS,
        delete_hours=delete_hours(settings.delete_when),
        disk_used_ratio_max=min(max(settings.disk_max_used_space_ratio, low), high) / 100,
        disk_warning_ratio=settings.disk_space_warning_level_ratio / 100,
        clean_forcibly=settings.clean_file_forcibly_enable,
        clean_interval_ms=settings.clean_resource_interval,
        delete_files_max=settings.delete_file_batch_max,
        delete_pause_ms=settings.delete_commit_log_files_interval,
        protect_unconsumed=settings.protect_unconsumed,
        follows_master=is_slave,
        # What a slave drops it gets again from its master.
        truncate_damage=is_slave or settings.recover_bad_record is BadRecord.TRUNCATE,
    )


def _open_queue_files_max() -> int:
    """Return half of the open-file limit of this process: the other half is for connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        _OPEN_QUEUE_FILES_MAX
        if limit == resource.RLIM_INFINITY
        else max(min(limit // 2, _OPEN_QUEUE_FILES_MAX), OPEN_FILES_MAX)
    )


def delay_levels_ms(text: str) -> tuple[int, ...]:
    """Return the delay of each level of messageDelayLevel, from level 1 on. Raises
    ConfigurationError if the text is invalid.
    """
    levels = [re.fullmatch(r"([0-9]{1,12})([smhd])", word) for word in text.split()]
    if not levels or not all(levels):
        raise ConfigurationError(
            f"messageDelayLevel={text} cannot be used: it takes numbers with s, m, h or d,"
            " separated by spaces, such as 1s 5s 10m 2h"
        )
    return tuple(int(level[1]) * _UNIT_MS[level[2]] for level in levels if level is not None)


def _folders(paths: str | None) -> tuple[Path, ...]:
    return tuple(
        Path(path.strip()) for path in (paths or "").split(_PATH_SEPARATOR) if path.strip()
    )
