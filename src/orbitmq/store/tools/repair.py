"""The repair: plans how findings can be repaired, and does it, with a copy of everything first.

The log is the truth: it is only ever truncated, where no valid record follows or on request.
Corrupt queues and index are moved away, and the store is opened once as after a crash, which
rebuilds them from the log with the broker's own code.

What the log cannot restore is put back: a queue without a record in the log, whose offsets would
restart at 0; and a queue of a deleted topic stays deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orbitmq.common import atomic_file
from orbitmq.common.clock import Clock
from orbitmq.common.errors import CorruptFileError, StoreError
from orbitmq.protocol.bodies.topics import decode_topic_file
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.message_store import MessageStore
from orbitmq.store.recovery import ProgressListener
from orbitmq.store.store_lock import AbortMark, StoreLock
from orbitmq.store.tools.backup import Backup
from orbitmq.store.tools.check import Checked
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Finding, Mend, RepairAction, Severity
from orbitmq.store.topic_lives import AnyTopic, LivesProof
from orbitmq.store.types import QueueKey

_STORE_HOST = bytes(8)  # unused: a repair puts no messages
_QUEUE_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
_REOPENED = (
    RepairAction.CUT_LOG,
    RepairAction.REBUILD_QUEUE,
    RepairAction.REBUILD_INDEX,
    RepairAction.WRITE_CHECKPOINT,
    RepairAction.RESIZE_LOG_FILE,
    RepairAction.ACCEPT_LOSS,
)


class RecordedLives(AnyTopic):
    """Topic beginnings from topics.json; the existence of topics is not checked here."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beginnings: Mapping[str, int] = {}

    def load(self) -> None:
        """Read the file, or its backup; nothing is known if neither is readable."""
        with suppress(CorruptFileError):
            found = atomic_file.read_or_backup(self._path, decode_topic_file)
            self._beginnings = {} if found is None else found.beginnings

    def begin_of(self, topic: str) -> int:
        return self._beginnings.get(topic, 0)

    def learn(self, proven: LivesProof, log_end: int) -> None:
        """Limit beginnings to the end of the log."""
        self._beginnings = {topic: min(begin, log_end) for topic, begin in self._beginnings.items()}


class RepairStep(NamedTuple):
    """One step of a repair, and its reason."""

    action: RepairAction
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a repair, in order, and what it cannot repair."""

    steps: tuple[RepairStep, ...]
    left: tuple[Finding, ...]


def plan(checked: Checked, *, truncate_damage: bool = False) -> Plan:
    """Plan the repair of the findings; corrupt records in the middle of the log stay, unless the
    log is to be truncated before the first.
    """
    mends = checked.findings.mends()
    cut: tuple[int, str] | None = next(
        ((int(mend.target), why) for mend, why in mends if mend.action is RepairAction.CUT_LOG),
        None,
    )
    if truncate_damage:
        cut = min(
            [
                *(
                    (int(mend.target), why)
                    for mend, why in mends
                    if mend.action is RepairAction.GIVE_UP_LOG
                ),
                *([cut] if cut else []),
            ],
            default=None,
        )
    steps = [
        RepairStep(mend.action, mend.target, why)
        for mend, why in mends
        if mend.action not in (RepairAction.CUT_LOG, RepairAction.GIVE_UP_LOG)
    ]
    steps = [
        step
        for step in steps
        if step.action is not RepairAction.REBUILD_QUEUE
        or _key(step.target) in checked.cut
        or _key(step.target) not in checked.restarted
    ]
    if cut is not None:
        steps.append(RepairStep(RepairAction.CUT_LOG, str(cut[0]), cut[1]))
    if checked.blocked is not None and not (truncate_damage and cut is not None):
        steps = [step for step in steps if step.action not in _REOPENED]
    order = list(RepairAction)
    steps.sort(key=lambda step: order.index(step.action))
    planned = {Mend(step.action, step.target) for step in steps}
    left = [
        finding
        for finding in checked.findings
        if finding.severity is not Severity.NOTE
        and finding.mend not in planned
        and not _is_cut(finding, cut)
    ]
    return Plan(tuple(steps), tuple(left))


def plan_rebuild(directory: StoreDirectory, checked: Checked) -> Plan:
    """Plan the rebuild of everything derived from the log; StoreError if the log cannot be
    opened.
    """
    if checked.blocked is not None:
        raise StoreError(
            f"nothing can be rebuilt from this log: {checked.blocked}; `orbitmq store check` names"
            " the remedy"
        )
    wanted = plan(checked)
    steps = [
        step
        for step in wanted.steps
        if step.action
        in (RepairAction.CUT_LOG, RepairAction.RESIZE_LOG_FILE, RepairAction.MOVE_AWAY)
    ]
    keys = sorted({*directory.plain, *directory.batch} - checked.restarted)
    steps += [
        RepairStep(RepairAction.REBUILD_QUEUE, f"{key.topic}/{key.queue_id}", "requested")
        for key in keys
    ]
    return Plan((*steps, RepairStep(RepairAction.REBUILD_INDEX, "index", "requested")), wanted.left)


class Repair:
    """Carries out a plan."""

    def __init__(self, directory: StoreDirectory, checked: Checked, clock: Clock) -> None:
        self._directory = directory
        self._checked = checked
        self._clock = clock
        self._layer = OsFileLayer()
        self.backup = Backup(directory, clock.now_ms())

    def run(self, steps: Iterable[RepairStep], progress: ProgressListener | None = None) -> None:
        """Do the steps; StoreError if the store is open, and then nothing is changed."""
        steps = list(steps)
        lock = StoreLock(self._layer, self._directory.root)
        lock.acquire()
        try:
            for step in steps:
                self._do(step)
            reopen = any(step.action in _REOPENED for step in steps)
            if reopen:
                for key in self._checked.silent:  # nothing in the log confirms them
                    self._move_queue(key)
                # It would state that there is nothing to do.
                self.backup.move(self._directory.root / "checkpoint")
                AbortMark(self._layer, self._directory.root).set()
        finally:
            lock.release()
        if reopen:
            self._open_once(progress)
            rebuilt = {
                _key(step.target) for step in steps if step.action is RepairAction.REBUILD_QUEUE
            }
            self._put_back((self._checked.silent | rebuilt) - self._checked.cut)
            self._remove_deleted()

    def _do(self, step: RepairStep) -> None:
        root, target = self._directory.root, step.target
        match step.action:
            case RepairAction.RESTORE_CONFIG:
                path = root / "config" / target
                self.backup.move(path)
                atomic_file.write(
                    path, atomic_file.backup_path(path).read_bytes(), keep_backup=False
                )
            case RepairAction.RESTORE_BACKUP:
                path = root / "config" / target
                self.backup.move(atomic_file.backup_path(path))
                atomic_file.write(
                    atomic_file.backup_path(path), path.read_bytes(), keep_backup=False
                )
            case RepairAction.RESIZE_LOG_FILE:
                self._resize(Path(target))
            case RepairAction.MOVE_AWAY:
                self.backup.move(Path(target))
            case RepairAction.CUT_LOG:
                self._cut(int(target))
            case RepairAction.WRITE_BLANK:
                self._write_blank(int(target))
            case RepairAction.REBUILD_QUEUE if _key(target) in self._checked.cut:
                self._copy_queue(_key(target))
            case RepairAction.REBUILD_QUEUE:
                self._move_queue(_key(target))
            case RepairAction.REBUILD_INDEX:
                self.backup.move(root / "index")
            case (
                RepairAction.WRITE_CHECKPOINT | RepairAction.GIVE_UP_LOG | RepairAction.ACCEPT_LOSS
            ):
                pass  # written when the store is closed; a log is dropped by CUT_LOG

    def _move_queue(self, key: QueueKey) -> None:
        """Move a queue out of the store, with all its files."""
        for folder in _QUEUE_FOLDERS:
            self.backup.move(self._directory.root / folder / key.topic / str(key.queue_id))

    def _copy_queue(self, key: QueueKey) -> None:
        """Copy a queue that the store itself truncates to the end of the log: the rest of it may
        have its next offset.
        """
        self._move_queue(key)
        for folder in _QUEUE_FOLDERS:
            path = self._directory.root / folder / key.topic / str(key.queue_id)
            if self.backup.place(path).exists():
                shutil.copytree(self.backup.place(path), path)

    def _resize(self, path: Path) -> None:
        """Truncate what is too long, or add zeros."""
        size, wanted = self._layer.size(path), self._directory.log_file_size
        if size > wanted:
            self.backup.copy_range(path, wanted, size)
        self._change(path, lambda descriptor: self._layer.truncate(descriptor, wanted))

    def _cut(self, end: int) -> None:
        """Truncate the log: files after `end` are moved away, the rest of its own file is copied
        and cleared.
        """
        size = self._directory.log_file_size
        for extent in reversed(self._directory.log_files):
            if extent.start > end:
                self.backup.move(extent.path)
            elif extent.start + size > end:
                begin = end - extent.start
                self.backup.copy_range(extent.path, begin, size)
                self._change(
                    extent.path, partial(self._layer.clear, offset=begin, length=size - begin)
                )

    def _write_blank(self, offset: int) -> None:
        size = self._directory.log_file_size
        begin = offset % size
        path = next(
            extent.path for extent in self._directory.log_files if extent.start == offset - begin
        )
        self.backup.copy_range(path, begin, begin + 8)
        self._change(
            path,
            lambda descriptor: self._layer.pwrite(descriptor, (size - begin).to_bytes(4), begin),
        )

    def _open_once(self, progress: ProgressListener | None) -> None:
        config = self._directory.store_config(delay_levels_ms=self._checked.delays_ms)
        store = MessageStore(
            self._layer,
            self._clock,
            config,
            _STORE_HOST,
            lives=RecordedLives(self._directory.root / "config" / "topics.json"),
        )
        for bad in self._checked.bad:  # the queue of a corrupt record is not trusted
            store.quarantine.add(bad)
        try:
            store.open(progress)
            store.close()
        except (StoreError, OSError) as error:
            raise StoreError(
                f"the store could not be opened to rebuild it: {error}; what was moved away is"
                f" in {self.backup.folder}"
            ) from error

    def _put_back(self, keys: Iterable[QueueKey]) -> None:
        """Put back queues without a record in the log."""
        for key in keys:
            for name in _QUEUE_FOLDERS:
                path = self._directory.root / name / key.topic / str(key.queue_id)
                made = any(
                    (self._directory.root / other / key.topic / str(key.queue_id)).exists()
                    for other in _QUEUE_FOLDERS
                    if other != name
                )
                if self.backup.place(path).exists() and not path.exists() and not made:
                    self.backup.put_back(path)

    def _remove_deleted(self) -> None:
        """Remove queues of deleted topics that were rebuilt because the log still has records of
        them.
        """
        for key in self._checked.deleted:
            for name in _QUEUE_FOLDERS:
                folder = self._directory.root / name / key.topic
                shutil.rmtree(folder / str(key.queue_id), ignore_errors=True)
                with suppress(OSError):  # missing, or not empty
                    folder.rmdir()

    def _change(self, path: Path, change: Callable[[int], None]) -> None:
        """Change a file through its descriptor, durably."""
        descriptor = self._layer.open(path)
        try:
            change(descriptor)
            self._layer.fdatasync(descriptor)
        finally:
            self._layer.close(descriptor)


def _is_cut(finding: Finding, cut: tuple[int, str] | None) -> bool:
    """Whether the finding is in a part of the log that is truncated."""
    mend = finding.mend
    return (
        cut is not None
        and mend is not None
        and mend.action in (RepairAction.GIVE_UP_LOG, RepairAction.CUT_LOG)
        and int(mend.target) >= cut[0]
    )


def _key(target: str) -> QueueKey:
    topic, _, queue_id = target.rpartition("/")
    return QueueKey(topic, int(queue_id))


def refuse_open(directory: StoreDirectory) -> None:
    """Raise StoreError if a process has the store open."""
    owner = directory.lock_owner()
    if owner is not None:
        raise StoreError(
            f"process {owner} has the store {directory.root} open: stop it first; an open store is"
            " not repaired"
        )
