"""Small files that are replaced as a whole: a crash at any point leaves the old content or the new, readable.

Knows bytes and paths, not formats: the caller's `check` says what whole content is. Blocking (two fsyncs at least), so an event loop
calls it in an executor. One writer per path that is replaced: the temporary names are fixed, so that a crash leaves no litter that grows.

Order of a write, and what a crash after each step leaves:

    1  <file>.tmp written and synced        file old, .bak older
    2  <file>.bak.tmp = the old file        file old, .bak older
    3  <file>.tmp renamed to <file>, sync   file new, .bak older
    4  <file>.bak.tmp renamed to .bak, sync file new, .bak old

The backup is replaced last, when the new content is safe: a damaged old file never takes the place of the only good copy.

A write that fails did not happen: if step 3 cannot be synced, the file gets its old content back. One whose step 4 fails did happen: it is
durable, and the log tells that the backup is one write older than it should be.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.common.errors import DamagedFile, ProtocolError

T = TypeVar("T")
log = logging.getLogger(__name__)


PRIVATE: Final = 0o600  # for files that hold secrets: nobody but the owner reads them


def write(path: str | os.PathLike[str], data: bytes, *, keep_backup: bool = True, new_mode: int = 0o666) -> None:
    """Replace the content of `path` by `data`, durably; the content it had is kept as `<file>.bak` unless it was empty.

    A file that was there keeps its permissions; a new one has `new_mode`, as far as the process grants it.
    """
    target = Path(path).resolve()  # a link stays a link: what it points at is replaced
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
    """Make a file that is not there yet, durably and as a whole, folders included; FileExistsError when somebody else did before."""
    folder = path.parent
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_directory(each.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # several processes may try
    try:
        _write_synced(temporary, data, 0o666)
        _link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(folder)


def _link(source: Path, to: Path) -> None:
    """Give a file a second name that nobody has taken; where the file system has no hard links, a moment lies between look and name."""
    try:
        os.link(source, to)
    except FileExistsError:
        raise
    except OSError:
        if to.exists():
            raise FileExistsError(str(to)) from None
        source.replace(to)


def read_or_backup(path: str | os.PathLike[str], check: Callable[[bytes], T]) -> T | None:
    """The checked content of `path`, or of its backup when the file is missing, empty or damaged; None when there is no content at all.

    `check` parses the bytes and raises ValueError or ProtocolError when they are not whole.
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
            log.warning("file_without_content file=%s reason=%r backup=%r", target, why_not, why_no_backup)
        return None
    raise DamagedFile(
        f"{target} is {why_not}, and its backup {backup} is {why_no_backup}: restore one of them, or move both away to start empty"
    )


def backup_path(path: str | os.PathLike[str]) -> Path:
    """Where the content that `path` had before the last write is kept."""
    return _beside(Path(path), ".bak")


_NO_CONTENT = ("missing", "empty")


def read_checked(path: Path, check: Callable[[bytes], T]) -> tuple[T | None, str | None]:
    """The checked content of one file, or why there is none."""
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
    """Remove what a failed write left; a disk that refuses that too is no obstacle to the next write."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _keep(source: Path, to: Path) -> None:
    """Give the content of `source` a second name, or a copy where the file system has no hard links."""
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
