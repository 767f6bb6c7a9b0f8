"""Checks the small files of a store: checkpoint, configuration, names and lengths of all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbitmq.common import atomic_file
from orbitmq.protocol import fastjson
from orbitmq.store.batch_consume_queue import ENTRY_SIZE as BATCH_ENTRY_SIZE
from orbitmq.store.consume_queue import ENTRY_SIZE
from orbitmq.store.tools.directory import CHECKPOINT_SIZE, Folder, StoreDirectory
from orbitmq.store.tools.findings import Finding, Findings, Mend, RepairAction, Severity
from orbitmq.store.types import QueueKey

_NUMBERS_SIZE = 48
PAGE_SIZE = 4096
_LISTS = ("users.json", "acls.json")  # all others are objects
_JSON_WITHOUT_SUFFIX = ("transactionMetrics", "timermetrics")
REBUILD = "the next start, or orbitmq store repair, rebuilds the queue from the log"


def check_names(directory: StoreDirectory, findings: Findings) -> None:
    """Report files that are missing between others, have another length, or are misplaced."""
    _check_log(directory, findings)
    queues: list[tuple[dict[QueueKey, Folder], int, int, str]] = [
        (directory.plain, directory.queue_file_size, ENTRY_SIZE, "mappedFileSizeConsumeQueue"),
        (
            directory.batch,
            directory.batch_file_size,
            BATCH_ENTRY_SIZE,
            "mapperFileSizeBatchConsumeQueue",
        ),
        (directory.ext, directory.ext_file_size, 1, "mappedFileSizeConsumeQueueExt"),
    ]
    for folders, size, entry_size, setting in queues:
        for key, folder in folders.items():
            _check_queue(directory, findings, key, folder, size, entry_size, setting)
    for path in [
        *directory.other_files(),
        *directory.index_foreign,
        *(path for f in directory.log_folders for path in f.foreign),
    ]:
        findings.add(
            Finding(
                Severity.NOTE,
                "foreign",
                directory.relative(path),
                None,
                "it is not a file of a store",
                "move it elsewhere; it is ignored",
            )
        )
    for key, folder in [*directory.plain.items(), *directory.batch.items()]:
        for path in folder.foreign:
            what = f"it is not a file of queue {key.topic}/{key.queue_id}"
            findings.add(
                Finding(
                    Severity.NOTE,
                    "foreign",
                    directory.relative(path),
                    None,
                    what,
                    "move it elsewhere; it is ignored",
                )
            )


def _check_log(directory: StoreDirectory, findings: Findings) -> None:
    size, end = directory.log_file_size, None
    if directory.log_size_is_guessed and size % PAGE_SIZE:
        (extent,) = directory.log_files
        findings.add(
            Finding(
                Severity.LOSS,
                "log-size",
                directory.relative(extent.path),
                size,
                f"it has {size} bytes, which is not a length of commit-log files: it"
                " was truncated or extended",
                "give the broker's mappedFileSizeCommitLog with --config: orbitmq store repair then"
                " restores its length",
            )
        )
    for extent in directory.log_files:
        name, is_last = directory.relative(extent.path), extent == directory.log_files[-1]
        if not extent.length and is_last:
            what = "it is empty: its creator died before setting its length"
            findings.add(
                Finding(
                    Severity.NOTE,
                    "log-empty-file",
                    name,
                    None,
                    what,
                    "nothing: the next start removes it",
                    Mend(RepairAction.MOVE_AWAY, str(extent.path)),
                )
            )
            continue
        if extent.length != size:
            what = f"it has {extent.length} bytes, a log file has {size}"
            mend = Mend(RepairAction.RESIZE_LOG_FILE, str(extent.path))
            findings.add(
                Finding(
                    Severity.DAMAGE,
                    "log-length",
                    name,
                    min(extent.length, size),
                    what,
                    "orbitmq store repair gives it the length of the others",
                    mend,
                )
            )
        if extent.start % size:
            what = f"its name is not a multiple of {size}, the length of log files"
            findings.add(
                Finding(
                    Severity.LOSS,
                    "log-name",
                    name,
                    None,
                    what,
                    "rename it, or give the right length with --config",
                )
            )
        elif end is not None and extent.start > end:
            what = (
                f"the log files before it end at {end}: {(extent.start - end) // size} are missing"
            )
            remedy = (
                "restore them from a replica or a backup, or drop everything from there on: orbitmq"
                " store repair --truncate-damage"
            )
            findings.add(
                Finding(
                    Severity.LOSS,
                    "log-gap",
                    name,
                    None,
                    what,
                    remedy,
                    Mend(RepairAction.GIVE_UP_LOG, str(end)),
                )
            )
        elif end is not None and extent.start < end:
            what = f"the file before it ends at {end}: it exists twice"
            findings.add(
                Finding(Severity.LOSS, "log-twice", name, None, what, "move one of them away")
            )
        end = extent.start + size


def _check_queue(
    directory: StoreDirectory,
    findings: Findings,
    key: QueueKey,
    folder: Folder,
    size: int,
    entry_size: int,
    setting: str,
) -> None:
    mend = Mend(RepairAction.REBUILD_QUEUE, f"{key.topic}/{key.queue_id}")
    end = None
    for extent in folder.files:
        name = directory.relative(extent.path)
        if extent.length != size or size % entry_size:
            what = f"it has {extent.length} bytes, such a file has {size} ({setting})"
            findings.add(Finding(Severity.DAMAGE, "queue-length", name, None, what, REBUILD, mend))
        if extent.start % size or (end is not None and extent.start != end):
            what = (
                f"it does not follow the file before it, which ends at {end}"
                if end is not None
                else f"its name is not a multiple of {size}"
            )
            findings.add(Finding(Severity.DAMAGE, "queue-gap", name, None, what, REBUILD, mend))
        end = extent.start + size


def check_checkpoint(
    directory: StoreDirectory, findings: Findings, log_end: int, store_time_ms: int
) -> None:
    """Check that the checkpoint is readable, and states nothing beyond the log."""
    path = directory.root / "checkpoint"
    mend = Mend(RepairAction.WRITE_CHECKPOINT, "checkpoint")
    remedy = "orbitmq store repair rewrites it"

    def add(offset: int | None, what: str) -> None:
        findings.add(
            Finding(Severity.DAMAGE, "checkpoint", "checkpoint", offset, what, remedy, mend)
        )

    if not path.is_file():
        if directory.log_files:
            findings.add(
                Finding(
                    Severity.NOTE,
                    "checkpoint",
                    "checkpoint",
                    None,
                    "there is none",
                    "nothing: the next start scans the whole log",
                    mend,
                )
            )
        return
    content = path.read_bytes()
    if len(content) != CHECKPOINT_SIZE:
        add(None, f"it has {len(content)} bytes, a checkpoint has {CHECKPOINT_SIZE}")
    if any(content[_NUMBERS_SIZE:]):
        add(_NUMBERS_SIZE, f"there are bytes after its {_NUMBERS_SIZE}")
    numbers = directory.checkpoint
    if numbers is None:
        if len(content) == CHECKPOINT_SIZE:
            add(0, "it has a number below 0")
        return
    for at, name in enumerate(numbers._fields):
        value, limit = numbers[at], log_end if name.endswith("_offset") else store_time_ms
        if value > limit and name != "master_flushed_offset":
            kind = "at" if name.endswith("_offset") else "of the time"
            add(
                8 * at,
                f"its {name} is {value}, the log ends {kind} {limit}: the number is corrupt, or the"
                " end of the log is lost",
            )


def check_configs(directory: StoreDirectory, findings: Findings) -> dict[str, int] | None:
    """Check that every configuration file, or else its backup, is readable; return the topics with
    their queue counts, None if unknown.
    """
    folder = directory.root / "config"
    names = directory.layer.list(folder)
    topics: dict[str, int] | None = None
    for name in sorted({name.removesuffix(".bak") for name in names}):
        if not (name.endswith(".json") or name in _JSON_WITHOUT_SUFFIX):
            continue
        path, backup = folder / name, folder / f"{name}.bak"
        content, problem = _read(path)
        kept, backup_problem = _read(backup)
        if name == "topics.json":
            known = content if problem is None else kept
            table = known.get("topicConfigTable") if isinstance(known, dict) else None
            topics = (
                {str(topic): _queue_count(config) for topic, config in table.items()}
                if isinstance(table, dict)
                else None
            )
        file = directory.relative(path)
        if problem is None:
            if backup_problem not in (None, "missing"):
                mend = Mend(RepairAction.RESTORE_BACKUP, name)
                findings.add(
                    Finding(
                        Severity.DAMAGE,
                        "config-backup",
                        f"{file}.bak",
                        None,
                        f"the backup is {backup_problem}",
                        "orbitmq store repair recreates it from the file",
                        mend,
                    )
                )
        elif backup_problem is None:
            mend = Mend(RepairAction.RESTORE_CONFIG, name)
            findings.add(
                Finding(
                    Severity.DAMAGE,
                    "config",
                    file,
                    None,
                    f"it is {problem}; its backup is valid",
                    "orbitmq store repair restores it; the last change is lost",
                    mend,
                )
            )
        else:
            what = f"it is {problem}, and its backup is {backup_problem}"
            findings.add(
                Finding(
                    Severity.LOSS,
                    "config",
                    file,
                    None,
                    what,
                    "restore it from a replica or a backup, or move both away to start without it",
                )
            )
    return topics


def _queue_count(config: Any) -> int:
    """Return the number of queues of a topic, for readers or writers."""
    counts = (
        [config.get(name) for name in ("readQueueNums", "writeQueueNums")]
        if isinstance(config, dict)
        else []
    )
    return max((count for count in counts if isinstance(count, int)), default=0)


def _read(path: Path) -> tuple[Any, str | None]:
    """Return the content of a JSON file, or what is wrong with it."""
    wanted, name = (list, "list") if path.name.removesuffix(".bak") in _LISTS else (dict, "object")

    def check(data: bytes) -> Any:
        content = fastjson.loads(data)
        if not isinstance(content, wanted):
            raise ValueError(f"it is not a JSON {name}")
        return content

    return atomic_file.read_checked(path, check)
