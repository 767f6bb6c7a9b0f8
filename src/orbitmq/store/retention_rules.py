"""The rules of retention: when commit-log files are deleted, which, and when the disk is too
full to take more.

Sans-IO: time, file ages and disk use come in, decisions go out. The rules are Apache's:

| disk used, more than | |
|---|---|
| diskMaxUsedSpaceRatio 0.75 | expired files are deleted at any hour, not only at those of deleteWhen |
| diskSpaceCleanForciblyRatio 0.85, at most that and at least 0.30 | files are deleted whether they are expired or not, the oldest first |
| diskSpaceWarningLevelRatio 0.90, at most that and at least 0.35 | the same, and puts are refused |

Of several commit-log folders the emptiest counts, for new files go there; the consume queues'
folder counts beside it, and the higher level of both is the store's. Apache stops refusing puts
only below the forced level, and does not check the queues' disk while the log's is above it; here
each measurement decides again, so puts are accepted as soon as the disk is at the warning level.
"""  # noqa: E501

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from orbitmq.common.errors import ConfigurationError
from orbitmq.store.config import StoreConfig

_FORCED_RATIOS = (0.30, 0.85)  # the range of the setting
_WARNING_RATIOS = (0.35, 0.90)


class DiskLevel(IntEnum):
    """How full the disk is, by the consequence."""

    OK = 0
    DELETE_EXPIRED = 1
    DELETE_FORCIBLY = 2
    REFUSE_PUTS = 3


class DiskUse(NamedTuple):
    """The used share of the disk below a folder."""

    ratio: float
    folder: Path


def forced_ratio(config: StoreConfig) -> float:
    """Return the disk use above which age does not matter."""
    return _clamp(config.folder_full_ratio, *_FORCED_RATIOS)


def warning_ratio(config: StoreConfig) -> float:
    """Return the disk use above which puts are refused."""
    return _clamp(config.disk_warning_ratio, *_WARNING_RATIOS)


def deciding_use(logs: Iterable[DiskUse], queues: DiskUse | None) -> DiskUse | None:
    """Return the use that decides the level: that of the emptiest log folder or of the queues,
    whichever is higher; None if unknown.
    """
    emptiest_log = min(logs, default=None)
    return max((use for use in (emptiest_log, queues) if use is not None), default=None)


def disk_level(config: StoreConfig, ratio: float) -> DiskLevel:
    """Return the level of a disk use."""
    if ratio > warning_ratio(config):
        return DiskLevel.REFUSE_PUTS
    if ratio > forced_ratio(config):
        return DiskLevel.DELETE_FORCIBLY
    return DiskLevel.DELETE_EXPIRED if ratio > config.disk_used_ratio_max else DiskLevel.OK


def refusal(config: StoreConfig, use: DiskUse) -> str | None:
    """Return why puts are refused, and the remedy; None if they are accepted."""
    if disk_level(config, use.ratio) is not DiskLevel.REFUSE_PUTS:
        return None
    return (
        f"the disk of {use.folder} is {use.ratio:.1%} full, and writes are refused above"
        f" {warning_ratio(config):.0%} (diskSpaceWarningLevelRatio): free space there or, for the"
        " commit log, add a folder on another disk to storePathCommitLog; messages are accepted"
        f" again automatically within {config.clean_interval_ms / 1000:g} s after that"
    )


def is_forced(config: StoreConfig, level: DiskLevel) -> bool:
    """Whether files that are not expired are deleted."""
    return level >= DiskLevel.DELETE_FORCIBLY and config.clean_forcibly


def reason_to_delete(
    config: StoreConfig, level: DiskLevel, now_ms: int, *, manual: bool
) -> str | None:
    """Return why a round at that time deletes files, or None."""
    if level is not DiskLevel.OK:
        return "disk"
    if time.localtime(now_ms // 1000).tm_hour in config.delete_hours:
        return "hour"
    return "manual" if manual else None


def is_expired(modified_ms: int, reserved_ms: int, now_ms: int) -> bool:
    """Whether a file last written at that time is expired."""
    return now_ms >= modified_ms + reserved_ms


def delete_hours(text: str) -> tuple[int, ...]:
    """Parse the local hours of deleteWhen, such as `04` or `02;14`; ConfigurationError if it is
    anything else.
    """
    hours = tuple(
        int(part) if part.isascii() and part.isdigit() else -1 for part in text.split(";")
    )
    if not all(0 <= hour <= 23 for hour in hours):
        raise ConfigurationError(
            f"deleteWhen={text} cannot be used: it takes hours from 00 to 23, separated by"
            " semicolons, such as 04 or 02;14"
        )
    return hours


def _clamp(ratio: float, lowest: float, highest: float) -> float:
    return min(max(ratio, lowest), highest)
