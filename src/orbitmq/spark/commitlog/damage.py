"""Reports damage that a read skipped: in the log, and as files in a folder of the user's choice.

Each damaged part of a commit log gets one file of JSON lines, written by the task that reads the
part; reading it again writes the same file. `spark.read.json(folder)` shows them all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.common import atomic_file
from orbitmq.common.errors import ConfigurationError

_SUFFIX: Final = ".damage.json"
log = logging.getLogger(__name__)


class DamagedRegion(NamedTuple):
    """Bytes that are not valid records: `at` in the file, `log_offset` in the commit log."""

    broker_name: str
    file: str
    at: int
    log_offset: int
    size: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.file} is corrupt at byte {self.at} (log offset {self.log_offset}):"
            f" {self.reason}"
        )


def clear_report(folder: Path) -> None:
    """Remove the report of an earlier read; a folder with any other file is refused."""
    if folder.exists():
        if not folder.is_dir():
            raise ConfigurationError(
                f"option damageReport={str(folder)!r} is a file; give a folder"
            )
        names = sorted(folder.iterdir())
        if foreign := next(
            (path for path in names if not path.name.endswith((_SUFFIX, f"{_SUFFIX}.tmp"))), None
        ):
            raise ConfigurationError(
                f"option damageReport={str(folder)!r}: the folder contains {foreign.name}; give a"
                " folder used only for the report"
            )
        for path in names:
            path.unlink(missing_ok=True)


def report_damage(regions: Sequence[DamagedRegion], folder: Path | None, part: str) -> None:
    """Report the damaged regions of one part."""
    for region in regions:
        log.warning("log_damage_skipped %s: %d bytes", region, region.size)
    if regions and folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(_line(region)) for region in regions]
        atomic_file.write(
            folder / f"{part}{_SUFFIX}",
            "".join(f"{line}\n" for line in lines).encode(),
            keep_backup=False,
        )


def _line(region: DamagedRegion) -> dict[str, str | int]:
    return {
        "brokerName": region.broker_name,
        "file": region.file,
        "fileOffset": region.at,
        "commitLogOffset": region.log_offset,
        "bytes": region.size,
        "reason": region.reason,
    }
