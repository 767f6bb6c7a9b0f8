"""The repair: which findings can be mended, and how; and doing it, a copy of everything first.

The log is the truth: it is only ever cut, where nothing good follows or where that was asked for. Queues and index that are damaged are
moved away, and the store is opened once as after a crash, which builds them again from the log by the same code that a broker runs.

What the log cannot give back is put back: a queue of which it has no record any more, whose offsets would begin at 0 again; and a queue
of a topic that was deleted stays deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orbitmq.common import atomic_file
from orbitmq.common.clock import Clock
from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.message_store import MessageStore
from orbitmq.store.recovery import ProgressListener
from orbitmq.store.store_lock import AbortMark, StoreLock
from orbitmq.store.tools.backup import Backup
from orbitmq.store.tools.check import Checked
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Action, Finding, Mend, Severity
from orbitmq.store.types import QueueKey

_STORE_HOST = bytes(8)  # of messages that are put: a repair puts none
_QUEUE_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
_REOPENED = (Action.CUT_LOG, Action.REBUILD_QUEUE, Action.REBUILD_INDEX, Action.WRITE_CHECKPOINT, Action.RESIZE_LOG_FILE)


class Step(NamedTuple):
    """One thing that a repair will do, and why."""

    action: Action
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair will do, in its order, and what it cannot."""

    steps: tuple[Step, ...]
    left: tuple[Finding, ...]


def plan(checked: Checked, *, truncate_damage: bool = False) -> Plan:
    """What mends the findings; bad records in the middle of the log stay, unless the log is to be cut before the first."""
    mends = checked.findings.mends()
    cut: tuple[int, str] | None = next(((int(mend.target), why) for mend, why in mends if mend.action is Action.CUT_LOG), None)
    if truncate_damage:
        cut = min(
            [*((int(mend.target), why) for mend, why in mends if mend.action is Action.GIVE_UP_LOG), *([cut] if cut else [])], default=None
        )
    steps = [Step(mend.action, mend.target, why) for mend, why in mends if mend.action not in (Action.CUT_LOG, Action.GIVE_UP_LOG)]
    steps = [step for step in steps if step.action is not Action.REBUILD_QUEUE or _key(step.target) not in checked.restarted]
    if cut is not None:
        steps.append(Step(Action.CUT_LOG, str(cut[0]), cut[1]))
    if checked.blocked is not None and not (truncate_damage and cut is not None):
        steps = [step for step in steps if step.action not in _REOPENED]
    order = list(Action)
    steps.sort(key=lambda step: order.index(step.action))
    planned = {Mend(step.action, step.target) for step in steps}
    left = [
        finding
        for finding in checked.findings
        if finding.severity is not Severity.NOTE and finding.mend not in planned and not _is_cut(finding, cut)
    ]
    return Plan(tuple(steps), tuple(left))


def plan_rebuild(directory: StoreDirectory, checked: Checked) -> Plan:
    """Everything that follows from the log, built again; StoreError when the log is not one that can be opened."""
    if checked.blocked is not None:
        raise StoreError(f"nothing can be built from this log: {checked.blocked}; `orbitmq store check` names the remedy")
    wanted = plan(checked)
    steps = [step for step in wanted.steps if step.action in (Action.CUT_LOG, Action.RESIZE_LOG_FILE, Action.MOVE_AWAY)]
    keys = sorted({*directory.plain, *directory.batch} - checked.restarted)
    steps += [Step(Action.REBUILD_QUEUE, f"{key.topic}/{key.queue_id}", "asked for") for key in keys]
    return Plan((*steps, Step(Action.REBUILD_INDEX, "index", "asked for")), wanted.left)


class Repair:
    """Carries a plan out."""

    def __init__(self, directory: StoreDirectory, checked: Checked, clock: Clock) -> None:
        self._directory = directory
        self._checked = checked
        self._clock = clock
        self._layer = OsFileLayer()
        self.backup = Backup(directory, clock.now_ms())

    def run(self, steps: Iterable[Step], progress: ProgressListener | None = None) -> None:
        """Do the steps; StoreError when the store is open, then nothing is changed."""
        steps = list(steps)
        lock = StoreLock(self._layer, self._directory.root)
        lock.acquire()
        try:
            for step in steps:
                self._do(step)
            reopen = any(step.action in _REOPENED for step in steps)
            if reopen:
                for key in self._checked.silent:  # nothing in the log confirms what they have
                    self._move_queue(key)
                self.backup.move(self._directory.root / "checkpoint")  # it would say that nothing is to be done
                AbortMark(self._layer, self._directory.root).set()
        finally:
            lock.release()
        if reopen:
            self._open_once(progress)
            self._put_back({*self._checked.silent, *(_key(step.target) for step in steps if step.action is Action.REBUILD_QUEUE)})
            self._remove_deleted()

    def _do(self, step: Step) -> None:
        root, target = self._directory.root, step.target
        match step.action:
            case Action.RESTORE_CONFIG:
                path = root / "config" / target
                self.backup.move(path)
                atomic_file.write(path, atomic_file.backup_path(path).read_bytes(), keep_backup=False)
            case Action.RESTORE_BACKUP:
                path = root / "config" / target
                self.backup.move(atomic_file.backup_path(path))
                atomic_file.write(atomic_file.backup_path(path), path.read_bytes(), keep_backup=False)
            case Action.RESIZE_LOG_FILE:
                self._resize(Path(target))
            case Action.MOVE_AWAY:
                self.backup.move(Path(target))
            case Action.CUT_LOG:
                self._cut(int(target))
            case Action.WRITE_BLANK:
                self._write_blank(int(target))
            case Action.REBUILD_QUEUE:
                self._move_queue(_key(target))
            case Action.REBUILD_INDEX:
                self.backup.move(root / "index")
            case Action.WRITE_CHECKPOINT | Action.GIVE_UP_LOG:
                pass  # written when the store is closed; a log is given up by a cut

    def _move_queue(self, key: QueueKey) -> None:
        """Take a queue out of the store, with all that belongs to it."""
        for folder in _QUEUE_FOLDERS:
            self.backup.move(self._directory.root / folder / key.topic / str(key.queue_id))

    def _resize(self, path: Path) -> None:
        """Cut what is too long, or add zeros."""
        size, wanted = self._layer.size(path), self._directory.log_file_size
        if size > wanted:
            self.backup.copy_range(path, wanted, size)
        self._change(path, lambda descriptor: self._layer.truncate(descriptor, wanted))

    def _cut(self, end: int) -> None:
        """Let the log end there: files behind it are moved away, what stands behind it in its own file is kept and cleared."""
        size = self._directory.log_file_size
        for extent in reversed(self._directory.log_files):
            if extent.start > end:
                self.backup.move(extent.path)
            elif extent.start + size > end:
                begin = end - extent.start
                self.backup.copy_range(extent.path, begin, size)
                self._change(extent.path, partial(self._layer.clear, offset=begin, length=size - begin))

    def _write_blank(self, offset: int) -> None:
        size = self._directory.log_file_size
        begin = offset % size
        path = next(extent.path for extent in self._directory.log_files if extent.start == offset - begin)
        self.backup.copy_range(path, begin, begin + 8)
        self._change(path, lambda descriptor: self._layer.pwrite(descriptor, (size - begin).to_bytes(4), begin))

    def _open_once(self, progress: ProgressListener | None) -> None:
        config = self._directory.store_config(delay_levels_ms=self._checked.delays_ms)
        store = MessageStore(self._layer, self._clock, config, _STORE_HOST)
        try:
            store.open(progress)
            store.close()
        except (StoreError, OSError) as error:
            raise StoreError(
                f"the store could not be opened to build it again: {error}; what was taken away is in {self.backup.folder}"
            ) from error

    def _put_back(self, keys: Iterable[QueueKey]) -> None:
        """Queues that the log has no record of keep what they had."""
        for key in keys:
            for name in _QUEUE_FOLDERS:
                path = self._directory.root / name / key.topic / str(key.queue_id)
                made = any(
                    (self._directory.root / other / key.topic / str(key.queue_id)).exists() for other in _QUEUE_FOLDERS if other != name
                )
                if self.backup.place(path).exists() and not path.exists() and not made:
                    self.backup.put_back(path)

    def _remove_deleted(self) -> None:
        """Queues of deleted topics, which the log still has records of, do not come back."""
        for key in self._checked.deleted:
            for name in _QUEUE_FOLDERS:
                folder = self._directory.root / name / key.topic
                shutil.rmtree(folder / str(key.queue_id), ignore_errors=True)
                with suppress(OSError):  # not there, or another queue is in it
                    folder.rmdir()

    def _change(self, path: Path, change: Callable[[int], None]) -> None:
        """Change a file by its descriptor, durably."""
        descriptor = self._layer.open(path)
        try:
            change(descriptor)
            self._layer.fdatasync(descriptor)
        finally:
            self._layer.close(descriptor)


def _is_cut(finding: Finding, cut: tuple[int, str] | None) -> bool:
    """Whether what was found is in a part of the log that goes."""
    mend = finding.mend
    return cut is not None and mend is not None and mend.action in (Action.GIVE_UP_LOG, Action.CUT_LOG) and int(mend.target) >= cut[0]


def _key(target: str) -> QueueKey:
    topic, _, queue_id = target.rpartition("/")
    return QueueKey(topic, int(queue_id))


def refuse_open(directory: StoreDirectory) -> None:
    """StoreError when a process has the store open."""
    owner = directory.lock_owner()
    if owner is not None:
        raise StoreError(f"process {owner} has the store {directory.root} open: stop it first; a store that is open is not repaired")
