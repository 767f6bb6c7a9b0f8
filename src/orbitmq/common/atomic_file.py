"""Small files replaced atomically: after a crash at any point the old or the new content is
readable.

Knows bytes and paths, not formats: the caller's `check` decides whether content is complete.
Blocking (at least two fsyncs), so an event loop calls it in an executor. One writer per replaced
path: the temporary names are fixed, so crashes cannot accumulate leftover files.

Order of a write, and the state after a crash following each step:

    1  <file>.tmp written and synced        file old, .bak older
    2  <file>.bak.tmp = the old file        file old, .bak older
    3  <file>.tmp renamed to <file>, sync   file new, .bak older
    4  <file>.bak.tmp renamed to .bak, sync file new, .bak old

The backup is replaced last, once the new content is durable: a corrupt old file never replaces the
only good copy.

A write that fails has no effect: if step 3 cannot be synced, the old content is restored. If only
step 4 fails, the write is durable and the log reports that the backup is one write older than it
should be.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.common.errors import CorruptFileError, ProtocolError

T = TypeVar("T")
log = logging.getLogger(__name__)


PRIVATE: Final = 0o600  # for files that hold secrets: readable by the owner only


def write(
    path: str | os.PathLike[str], data: bytes, *, keep_backup: bool = True, new_mode: int = 0o666
) -> None:
    """Replace the content of `path` by `data`, durably; keep the previous content as `<file>.bak`
    unless it was empty.

    An existing file keeps its permissions; a new one gets `new_mode`, subject to the umask.
    """
    target = Path(path).resolve()  # a symbolic link stays one: its target is replaced
    temporary = _beside(target, ".tmp")
    old = _beside(target, ".bak.tmp")
    replaces = target.exists()
    backup = keep_backup and replaces and target.stat().st_size > 0
    try:
        _write_synced(temporary, data, target.stat().st_mode & 0o777 if replaces else new_mode)
        if replaces:
            _keep(target, old)
        temporary.replace(target)
    except OSError:
        _remove(temporary, old)
        raise
    try:
        _sync_directory(target.parent)
    except OSError:
        old.replace(target) if replaces else target.unlink()
        raise
    try:
        if backup:
            old.replace(backup_path(target))
            _sync_directory(target.parent)
        else:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.warning("backup_not_replaced file=%s reason=%r", target, error)


def create(path: Path, data: bytes) -> None:
    """Create a file durably and atomically, parent directories included; raise FileExistsError if
    it exists already.
    """
    folder = path.parent
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_directory(each.parent)
    # several processes may try at once
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write_synced(temporary, data, 0o666)
        _link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(folder)


def _link(source: Path, to: Path) -> None:
    """Hard-link a file to a name that is still free. Without hard links the check and the rename
    are two steps.
    """
    try:
        os.link(source, to)
    except FileExistsError:
        raise
    except OSError:
        if to.exists():
            raise FileExistsError(str(to)) from None
        source.replace(to)


def read_or_backup(path: str | os.PathLike[str], check: Callable[[bytes], T]) -> T | None:
    """Return the checked content of `path`, or of its backup if the file is missing, empty or
    corrupt; None if neither exists.

    `check` parses the bytes and raises ValueError or ProtocolError if they are incomplete.
    """
    target = Path(path)
    content, why_not = read_checked(target, check)
    if why_not is None:
        return content
    backup = backup_path(target)
    content, why_no_backup = read_checked(backup, check)
    if why_no_backup is None:
        log.warning("backup_used file=%s reason=%r backup=%s", target, why_not, backup)
        return content
    if why_not in _NO_CONTENT and why_no_backup in _NO_CONTENT:
        if (why_not, why_no_backup) != ("missing", "missing"):
            log.warning(
                "file_without_content file=%s reason=%r backup=%r", target, why_not, why_no_backup
            )
        return None
    raise CorruptFileError(
        f"{target} is {why_not}, and its backup {backup} is {why_no_backup}: restore one of them,"
        " or move both away to start empty"
    )


def backup_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the backup that holds the content before the last write."""
    return _beside(Path(path), ".bak")


_NO_CONTENT = ("missing", "empty")


def read_checked(path: Path, check: Callable[[bytes], T]) -> tuple[T | None, str | None]:
    """Return the checked content of one file, or the reason why there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, "missing"
    if not data:
        return None, "empty"
    try:
        return check(data), None
    except (ValueError, ProtocolError) as error:
        return None, f"damaged ({error})"


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _remove(*paths: Path) -> None:
    """Remove the leftovers of a failed write; if the disk refuses that too, the next
    write copes.
    """
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _keep(source: Path, to: Path) -> None:
    """Hard-link the content of `source` to a second name, or copy it where hard links are not
    supported.
    """
    to.unlink(missing_ok=True)
    try:
        os.link(source, to)
    except OSError:
        _write_synced(to, source.read_bytes(), source.stat().st_mode & 0o777)


def _sync_directory(directory: Path) -> None:
    """Make the renames in `directory` durable; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
