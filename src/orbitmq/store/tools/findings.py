"""Findings: what a check says of a store, where it is, how bad that is, and what mends it.

Bounded: of one kind in one file the first few are kept, the others counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

DETAILS_MAX = 20  # findings of one kind in one file that are kept one by one


class Severity(Enum):
    """How bad a finding is."""

    NOTE = "note"  # nothing to do
    DAMAGE = "damage"  # no message is lost by it: it can be mended from the log, or from a backup
    LOSS = "loss"  # a message, or a setting, cannot be read any more


class Action(Enum):
    """What `repair` can do; the value says it of a target."""

    RESIZE_LOG_FILE = "give it the length of the others"
    MOVE_AWAY = "move it away"
    CUT_LOG = "cut the log here"
    GIVE_UP_LOG = "cut the log before the damage"  # only when it is asked for
    WRITE_BLANK = "write the blank that ends the file again"
    REBUILD_QUEUE = "build the queue again from the log"
    REBUILD_INDEX = "build the index again from the log"
    RESTORE_CONFIG = "restore it from its backup"
    RESTORE_BACKUP = "make the backup again"
    WRITE_CHECKPOINT = "write the checkpoint anew"


class Mend(NamedTuple):
    """One thing to do to one target: a path below the root, or a log offset."""

    action: Action
    target: str


class Finding(NamedTuple):
    """One thing that was found; `offset` is the byte of the file."""

    severity: Severity
    kind: str
    file: str
    offset: int | None
    what: str
    remedy: str
    mend: Mend | None = None


class Findings:
    """All that was found, in its order."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._severities: Counter[Severity] = Counter()

    def add(self, finding: Finding) -> None:
        """Keep the finding, or count it when there are enough of its kind."""
        key = finding.kind, finding.file
        self._counts[key] += 1
        self._severities[finding.severity] += 1
        if self._counts[key] <= DETAILS_MAX:
            self._found.append(finding)

    def __iter__(self) -> Iterator[Finding]:
        """The findings, and behind the last of a kind in a file how many more of it there are."""
        left = Counter({key: min(count, DETAILS_MAX) for key, count in self._counts.items()})
        for finding in self._found:
            yield finding
            key = finding.kind, finding.file
            left[key] -= 1
            more = self._counts[key] - DETAILS_MAX
            if not left[key] and more > 0:
                yield finding._replace(offset=None, what=f"and {more} more of the same kind")

    def __len__(self) -> int:
        return sum(self._counts.values())

    def count(self, severity: Severity) -> int:
        return self._severities[severity]

    @property
    def clean(self) -> bool:
        """Whether there are notes at most."""
        return not self.count(Severity.DAMAGE) and not self.count(Severity.LOSS)

    def mends(self) -> list[tuple[Mend, str]]:
        """What to do, each once, with what it is for."""
        wanted: dict[Mend, str] = {}
        for finding in self._found:
            if finding.mend is not None:
                wanted.setdefault(finding.mend, finding.what)
        return list(wanted.items())
