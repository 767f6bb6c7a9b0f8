"""The rules of the retention, each at its edge: hours, ages, levels of the disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orbitmq.common.errors import ConfigurationError
from orbitmq.store import retention_rules as rules
from orbitmq.store.config import StoreConfig
from orbitmq.store.retention_rules import DiskLevel, DiskUse
from support.store.retention import HOUR_MS

CONFIG = StoreConfig(root=Path("store"))


@pytest.mark.parametrize(
    ("text", "hours"), [("04", (4,)), ("4", (4,)), ("02;14", (2, 14)), ("00;23", (0, 23))]
)
def test_hours_of_deletion_are_read_as_they_are_written(text: str, hours: tuple[int, ...]) -> None:
    assert rules.delete_hours(text) == hours


@pytest.mark.parametrize("text", ["", "24", "-1", "4,5", "04;", "four", " 4"])
def test_hours_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="deleteWhen"):
        rules.delete_hours(text)


@pytest.mark.parametrize(
    ("ratio", "level"),
    [
        (0.75, DiskLevel.OK),
        (0.7501, DiskLevel.DELETE_EXPIRED),
        (0.85, DiskLevel.DELETE_EXPIRED),
        (0.8501, DiskLevel.DELETE_FORCIBLY),
        (0.90, DiskLevel.DELETE_FORCIBLY),
        (0.9001, DiskLevel.REFUSE_PUTS),
    ],
)
def test_a_level_begins_above_its_ratio(ratio: float, level: DiskLevel) -> None:
    assert rules.disk_level(CONFIG, ratio) is level


@pytest.mark.parametrize(
    ("wanted", "forced", "warning"), [(0.0, 0.30, 0.35), (0.5, 0.5, 0.5), (1.0, 0.85, 0.90)]
)
def test_forced_and_warning_ratios_stay_within_bounds(
    wanted: float, forced: float, warning: float
) -> None:
    config = StoreConfig(root=Path("store"), folder_full_ratio=wanted, disk_warning_ratio=wanted)
    assert (rules.forced_ratio(config), rules.warning_ratio(config)) == (forced, warning)


def test_the_emptiest_folder_of_the_log_counts_and_the_queues_beside_it() -> None:
    full, empty, queues = DiskUse(0.95, Path("a")), DiskUse(0.2, Path("b")), DiskUse(0.5, Path("q"))
    assert rules.deciding_use([full, empty], None) == empty
    assert rules.deciding_use([full, empty], queues) == queues
    assert rules.deciding_use([full], queues) == full
    assert rules.deciding_use([], None) is None


def test_a_file_expires_in_the_very_millisecond() -> None:
    assert not rules.is_expired(1000, 500, 1499)
    assert rules.is_expired(1000, 500, 1500)


def test_the_hour_is_the_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    noon_utc = 1_772_712_000_000  # 2026-03-05T12:00:00Z
    try:
        monkeypatch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        config = StoreConfig(root=Path("store"), delete_hours=(20,))
        assert rules.reason_to_delete(config, DiskLevel.OK, noon_utc, manual=False) == "hour"
        assert rules.reason_to_delete(config, DiskLevel.OK, noon_utc - 1, manual=False) is None
        assert (
            rules.reason_to_delete(config, DiskLevel.OK, noon_utc + HOUR_MS, manual=False) is None
        )
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_refusal_names_folder_ratio_limit_and_remedy() -> None:
    assert rules.refusal(CONFIG, DiskUse(0.90, Path("/data/log"))) is None
    text = rules.refusal(CONFIG, DiskUse(0.934, Path("/data/log")))
    assert text is not None
    for part in ("/data/log", "93.4%", "90%", "diskSpaceWarningLevelRatio", "free space"):
        assert part in text


def test_a_full_disk_is_a_reason_before_the_hour_and_the_hour_before_a_request() -> None:
    config = StoreConfig(root=Path("store"), delete_hours=tuple(range(24)))
    assert rules.reason_to_delete(config, DiskLevel.DELETE_EXPIRED, 0, manual=True) == "disk"
    assert rules.reason_to_delete(config, DiskLevel.OK, 0, manual=True) == "hour"
    assert (
        rules.reason_to_delete(
            StoreConfig(root=Path("store"), delete_hours=()), DiskLevel.OK, 0, manual=True
        )
        == "manual"
    )


@pytest.mark.parametrize("level", list(DiskLevel))
def test_files_are_forced_out_from_the_forced_level_on_if_that_is_allowed(level: DiskLevel) -> None:
    assert rules.is_forced(CONFIG, level) == (level >= DiskLevel.DELETE_FORCIBLY)
    assert not rules.is_forced(StoreConfig(root=Path("store"), clean_forcibly=False), level)
