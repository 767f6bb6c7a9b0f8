"""Findings: what a check reports about a store: where, how severe, and the remedy.

Bounded: of one kind in one file the first few are kept, the others counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

DETAILS_MAX = 20  # findings of one kind in one file kept one by one


class Severity(Enum):
    """How severe a finding is."""

    NOTE = "note"  # nothing to do
    DAMAGE = "damage"  # no message is lost: it can be repaired from the log or a backup
    LOSS = "loss"  # a message or a setting is unreadable


class RepairAction(Enum):
    """What `repair` can do; the value describes it."""

    RESIZE_LOG_FILE = "give it the length of the others"
    MOVE_AWAY = "move it away"
    CUT_LOG = "cut the log here"
    GIVE_UP_LOG = "cut the log before the damage"  # only on request
    WRITE_BLANK = "rewrite the blank that ends the file"
    REBUILD_QUEUE = "rebuild the queue from the log"
    REBUILD_INDEX = "rebuild the index from the log"
    RESTORE_CONFIG = "restore it from its backup"
    RESTORE_BACKUP = "recreate the backup"
    WRITE_CHECKPOINT = "rewrite the checkpoint"
    ACCEPT_LOSS = "continue without the records that the log lacks"


class Mend(NamedTuple):
    """One repair of one target: a path below the root, or a log offset."""

    action: RepairAction
    target: str


class Finding(NamedTuple):
    """One finding; `offset` is the byte of the file."""

    severity: Severity
    kind: str
    file: str
    offset: int | None
    what: str
    remedy: str
    mend: Mend | None = None


class Findings:
    """All findings, in order."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._severities: Counter[Severity] = Counter()

    def add(self, finding: Finding) -> None:
        """Keep the finding, or count it if there are enough of its kind."""
        key = finding.kind, finding.file
        self._counts[key] += 1
        self._severities[finding.severity] += 1
        if self._counts[key] <= DETAILS_MAX:
            self._found.append(finding)

    def __iter__(self) -> Iterator[Finding]:
        """Iterate over the findings; the last of a kind in a file is followed by the number of
        more.
        """
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
        """Whether there are only notes."""
        return not self.count(Severity.DAMAGE) and not self.count(Severity.LOSS)

    def mends(self) -> list[tuple[Mend, str]]:
        """Return the repairs, each once, with its reason."""
        wanted: dict[Mend, str] = {}
        for finding in self._found:
            if finding.mend is not None:
                wanted.setdefault(finding.mend, finding.what)
        return list(wanted.items())
