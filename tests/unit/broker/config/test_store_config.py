"""Every key of the store reaches the field that it is for."""

from __future__ import annotations

import dataclasses
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.config.broker_config import BrokerConfig, load_broker
from orbitmq.broker.config.store_config import delay_levels_ms, store_config
from orbitmq.common.errors import ConfigurationError
from orbitmq.message.record import RecordLimits
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.index_file import IndexShape

# Fields that no key sets.
OURS = {
    "batch_size_max",
    "flush_checkpoint_interval_ms",
    "check_body_on_read",
    "clean_queues_max",
    "open_queue_files_max",
}
KEYS: dict[str, tuple[str, str, Any]] = {
    "storePathRootDir": ("/data/store", "root", Path("/data/store")),
    "storePathCommitLog": (
        "/a/log, /b/log",
        "commit_log_folders",
        (Path("/a/log"), Path("/b/log")),
    ),
    "readOnlyCommitLogStorePaths": ("/b/log", "read_only_commit_log_folders", (Path("/b/log"),)),
    "mappedFileSizeCommitLog": ("4194304", "commit_log_file_size", 4 << 20),
    "maxMessageSize": ("1000", "limits", RecordLimits(body_size_max=1000)),
    "maxTopicLength": ("100", "limits", RecordLimits(topic_size_max=100)),
    "enabledAppendPropCRC": ("true", "record_crc", True),
    "forceVerifyPropCRC": ("true", "record_crc_required", True),
    "diskSpaceCleanForciblyRatio": ("80", "folder_full_ratio", 0.8),
    "flushDiskType": ("sync_flush", "flush_mode", FlushMode.SYNC),
    "syncFlushTimeout": ("6000", "sync_flush_timeout_ms", 6000),
    "flushIntervalCommitLog": ("200", "flush_log_interval_ms", 200),
    "flushCommitLogLeastPages": ("0", "flush_log_pages_min", 0),
    "flushCommitLogThoroughInterval": ("5000", "flush_log_thorough_interval_ms", 5000),
    "flushIntervalConsumeQueue": ("300", "flush_queues_interval_ms", 300),
    "flushConsumeQueueLeastPages": ("3", "flush_queues_pages_min", 3),
    "flushConsumeQueueThoroughInterval": ("7000", "flush_queues_thorough_interval_ms", 7000),
    "mappedFileSizeConsumeQueue": ("60000", "queue_file_size", 60_000),
    "enableConsumeQueueExt": ("true", "queue_ext_file_size", 50_331_648),
    "mapperFileSizeBatchConsumeQueue": ("4600", "batch_queue_file_size", 4600),
    "messageIndexEnable": ("false", "index_enabled", False),
    "indexFileWriteEnable": ("false", "index_enabled", False),
    "maxHashSlotNum": ("1000", "index_shape", IndexShape(1000, 20_000_000)),
    "maxIndexNum": ("4000", "index_shape", IndexShape(5_000_000, 4000)),
    "maxFilterMessageSize": ("32000", "filter_entries_max", 1600),
    "messageDelayLevel": (
        "1s 2m 3h 4d",
        "delay_levels_ms",
        (1000, 120_000, 10_800_000, 345_600_000),
    ),
    "accessMessageInMemoryMaxRatio": ("20", "memory_percent_max", 20),
    "maxTransferBytesOnMessageInMemory": ("1", "hot_bytes_max", 1),
    "maxTransferCountOnMessageInMemory": ("2", "hot_count_max", 2),
    "maxTransferBytesOnMessageInDisk": ("3", "cold_bytes_max", 3),
    "maxTransferCountOnMessageInDisk": ("4", "cold_count_max", 4),
    "fileReservedTime": ("48", "reserved_ms", 172_800_000),
    "deleteWhen": ("02;14", "delete_hours", (2, 14)),
    "diskMaxUsedSpaceRatio": ("50", "disk_used_ratio_max", 0.5),
    "diskSpaceWarningLevelRatio": ("95", "disk_warning_ratio", 0.95),
    "cleanFileForciblyEnable": ("false", "clean_forcibly", False),
    "cleanResourceInterval": ("20000", "clean_interval_ms", 20_000),
    "deleteFileBatchMax": ("5", "delete_files_max", 5),
    "deleteCommitLogFilesInterval": ("50", "delete_pause_ms", 50),
    "protectUnconsumed": ("true", "protect_unconsumed", True),
    "recoverBadRecord": ("truncate", "truncate_damage", True),
}


def test_the_defaults_are_the_stores_own() -> None:
    config = store_config(BrokerConfig())
    assert config == StoreConfig(
        root=Path.home() / "store", open_queue_files_max=config.open_queue_files_max
    )


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(64, 512), (1024, 512), (20_000, 10_000), (1 << 20, 65_536), (resource.RLIM_INFINITY, 65_536)],
)
def test_queues_may_have_half_of_the_files_that_the_process_may_open(
    limit: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert store_config(BrokerConfig()).open_queue_files_max == expected


@pytest.mark.parametrize("name", KEYS)
def test_a_key_sets_its_field_and_no_other(name: str) -> None:
    text, field, value = KEYS[name]
    default = store_config(BrokerConfig())
    changed = store_config(load_broker(environment={}, flags={name: text}).settings)
    assert changed == dataclasses.replace(default, **{field: value})
    assert changed != default


def test_a_slave_drops_damage_and_leaves_memory_to_the_readers_of_its_master() -> None:
    """What it drops it gets again."""
    flags = {"brokerRole": "SLAVE", "brokerId": "1", "accessMessageInMemoryMaxRatio": "30"}
    config = store_config(load_broker(environment={}, flags=flags).settings)
    assert (config.follows_master, config.truncate_damage, config.memory_percent_max) == (
        True,
        True,
        20,
    )


def test_every_field_has_a_key() -> None:
    assert {field for _, field, _ in KEYS.values()} | OURS | {"follows_master"} == {
        field.name for field in dataclasses.fields(StoreConfig)
    }


def test_the_size_of_ext_files_is_said_apart() -> None:
    flags = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4096"}
    assert (
        store_config(load_broker(environment={}, flags=flags).settings).queue_ext_file_size == 4096
    )


@pytest.mark.parametrize(("written", "taken"), [(0, 0.10), (9, 0.10), (95, 0.95), (100, 0.95)])
def test_the_disks_ratio_has_the_originals_bounds(written: int, taken: float) -> None:
    assert (
        store_config(BrokerConfig(disk_max_used_space_ratio=written)).disk_used_ratio_max == taken
    )


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from("smhd")), min_size=1))
def test_delay_levels_are_read_as_they_are_written(levels: list[tuple[int, str]]) -> None:
    unit_s = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    assert delay_levels_ms(" ".join(f"{number}{unit}" for number, unit in levels)) == tuple(
        1000 * number * unit_s[unit] for number, unit in levels
    )


@pytest.mark.parametrize(
    "text", ["", "1", "s", "1s 2", "-1s", "1S", "1s,2s", "1 s", "99999999999999s"]
)
def test_delay_levels_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="messageDelayLevel"):
        delay_levels_ms(text)
