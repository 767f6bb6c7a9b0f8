"""Damage of a log that a read stepped over: told in the log, and in files of a folder that the user named.

One file of JSON lines for each part of a log that has damage, written by whoever reads that part; a part that is read again writes the
same file. `spark.read.json(folder)` shows them all.
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


class Region(NamedTuple):
    """Bytes that are no good records: `at` of a file, where the log has its offset `log_offset`."""

    broker_name: str
    file: str
    at: int
    log_offset: int
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} is damaged at byte {self.at} (log offset {self.log_offset}): {self.reason}"


def clear_report(folder: Path) -> None:
    """Remove what an earlier read reported; a folder that holds anything else is refused."""
    if folder.exists():
        if not folder.is_dir():
            raise ConfigurationError(f"option damageReport={str(folder)!r} is a file: name a folder")
        names = sorted(folder.iterdir())
        if foreign := next((path for path in names if not path.name.endswith((_SUFFIX, f"{_SUFFIX}.tmp"))), None):
            raise ConfigurationError(f"option damageReport={str(folder)!r}: the folder holds {foreign.name}; name one of its own")
        for path in names:
            path.unlink(missing_ok=True)


def report(regions: Sequence[Region], folder: Path | None, part: str) -> None:
    """Tell of the regions of one part."""
    for region in regions:
        log.warning("log_damage_skipped %s: %d bytes", region, region.size)
    if regions and folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(_line(region)) for region in regions]
        atomic_file.write(folder / f"{part}{_SUFFIX}", "".join(f"{line}\n" for line in lines).encode(), keep_backup=False)


def _line(region: Region) -> dict[str, str | int]:
    return {
        "brokerName": region.broker_name,
        "file": region.file,
        "fileOffset": region.at,
        "commitLogOffset": region.log_offset,
        "bytes": region.size,
        "reason": region.reason,
    }
