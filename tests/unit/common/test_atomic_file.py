"""Small files are replaced atomically, whatever fails on the way."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError, ProtocolError

OLDER, OLD, NEW = b'{"v":1}', b'{"v":2}', b'{"v":3}'


class PowerLoss(BaseException):
    """A simulated power loss. Not an Exception: no handler of the code under test may clean up
    after it.
    """


class Steps:
    """Counts the calls that change the disk, and simulates a power loss before the n-th."""

    NAMES = ("open", "fsync", "link", "replace", "unlink")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cut_before: int | None = None) -> None:
        self.calls: list[str] = []
        self._cut_before = cut_before
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if len(self.calls) == self._cut_before:
                raise PowerLoss
            names = [Path(a).name for a in args if isinstance(a, str | os.PathLike)]
            self.calls.append(" ".join([name, *names]))
            return real(*args, **kwargs)

        return step


def prepared(tmp_path: Path) -> Path:
    path = tmp_path / "kvConfig.json"
    atomic_file.write(path, OLDER)
    atomic_file.write(path, OLD)
    return path


def test_a_write_syncs_the_content_before_the_rename_and_the_directory_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepared(tmp_path)
    with monkeypatch.context() as patch:
        steps = Steps(patch)
        atomic_file.write(path, NEW)
    directory = tmp_path.name
    assert [call for call in steps.calls if not call.startswith("unlink")] == [
        "open kvConfig.json.tmp",
        "fsync",
        "link kvConfig.json kvConfig.json.bak.tmp",
        "replace kvConfig.json.tmp kvConfig.json",
        f"open {directory}",
        "fsync",
        "replace kvConfig.json.bak.tmp kvConfig.json.bak",
        f"open {directory}",
        "fsync",
    ]
    assert (path.read_bytes(), atomic_file.backup_path(path).read_bytes()) == (NEW, OLD)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]


@pytest.mark.parametrize("damage", [None, b"", b'{"v":'], ids=["whole", "emptied", "cut"])
def test_a_power_loss_before_any_step_leaves_the_old_or_the_new_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    seen = set()
    for cut in range(100):
        directory = tmp_path / str(cut)
        directory.mkdir()
        path = prepared(directory)
        if damage is not None:
            path.write_bytes(damage)
        with monkeypatch.context() as patch:
            steps = Steps(patch, cut_before=cut)
            with contextlib.suppress(PowerLoss):
                atomic_file.write(path, NEW)
        content = atomic_file.read_or_backup(path, json.loads)
        assert content is not None
        seen.add(content["v"])
        assert content["v"] in ({2, 3} if damage is None else {1, 3}), (
            f"cut before step {cut}, after {steps.calls}"
        )
        atomic_file.write(path, NEW)  # leftovers of the crash do not matter
        assert path.read_bytes() == NEW
        if len(steps.calls) < cut:
            break
    else:
        pytest.fail("the write never came to its end")
    assert seen == ({2, 3} if damage is None else {1, 3})


def test_a_full_disk_leaves_the_old_content_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepared(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            atomic_file.write(path, NEW)
    assert path.read_bytes() == OLD
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]


class OneFault:
    """A disk whose n-th changing call fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
        self._left = fails
        for name in Steps.NAMES:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args, **kwargs)

        return step

    @property
    def is_over(self) -> bool:
        return self._left < 0


@pytest.mark.parametrize("keeps_backup", [True, False])
@pytest.mark.parametrize("old", [OLD, b"", None], ids=["replaced", "empty", "new"])
def test_a_write_that_fails_at_any_step_did_not_happen_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None, keeps_backup: bool
) -> None:
    failures = 0
    for fails in range(100):
        path = tmp_path / str(fails) / "kvConfig.json"
        path.parent.mkdir()
        if old is not None:
            path.write_bytes(old)
        with monkeypatch.context() as patch:
            fault = OneFault(patch, fails)
            try:
                atomic_file.write(path, NEW, keep_backup=keeps_backup)
                is_written = True
            except OSError:
                is_written = False
                failures += 1
        if is_written:
            assert path.read_bytes() == NEW, fails
        else:
            assert (path.read_bytes() if path.exists() else None) == old, fails
            assert {each.name for each in path.parent.iterdir()} <= {"kvConfig.json"}, fails
        if not fault.is_over:
            break
    assert failures >= 4


def test_without_hard_links_the_backup_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepared(tmp_path)

    def no_links(*args: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_links)
        atomic_file.write(path, NEW)
    assert (path.read_bytes(), atomic_file.backup_path(path).read_bytes()) == (NEW, OLD)


def test_a_write_keeps_the_mode_of_the_file_and_writes_through_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_bytes(OLD)
    real.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    atomic_file.write(link, NEW)
    assert link.is_symlink()
    assert real.read_bytes() == NEW
    assert real.stat().st_mode & 0o777 == 0o600


def test_no_backup_is_kept_when_none_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "marker"
    atomic_file.write(path, OLD, keep_backup=False)
    atomic_file.write(path, NEW, keep_backup=False)
    assert path.read_bytes() == NEW
    assert [p.name for p in tmp_path.iterdir()] == ["marker"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (None, "missing"),
        (b"", "empty"),
        (b'{"v":', "damaged (Expecting value: line 1 column 6 (char 5))"),
    ],
)
def test_the_backup_answers_for_a_file_that_is_not_whole_and_one_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None, reason: str
) -> None:
    path = prepared(tmp_path)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert atomic_file.read_or_backup(path, json.loads) == {"v": 1}
    assert [record.getMessage() for record in caplog.records] == [
        f"backup_used file={path} reason={reason!r} backup={path}.bak"
    ]


def test_no_content_at_all_is_none_and_silent_only_when_there_never_was_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kvConfig.json"
    assert atomic_file.read_or_backup(path, json.loads) is None
    assert caplog.records == []
    path.touch()
    assert atomic_file.read_or_backup(path, json.loads) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"file_without_content file={path} reason='empty' backup='missing'"
    ]


def test_damage_without_a_good_backup_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    def check(data: bytes) -> bytes:
        raise ProtocolError("no such bytes")

    path = prepared(tmp_path)
    with pytest.raises(CorruptFileError) as caught:
        atomic_file.read_or_backup(path, check)
    assert (
        str(caught.value)
        == f"{path} is damaged (no such bytes), and its backup {path}.bak is damaged (no such"
        " bytes): "
        "restore one of them, or move both away to start empty"
    )
