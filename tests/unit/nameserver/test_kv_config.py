"""The key-value configuration survives restarts, crashes and damage of its file."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError
from orbitmq.nameserver.kv_config import KvConfig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def put(kv_config: KvConfig, namespace: str, key: str, value: str) -> None:
    asyncio.run(kv_config.put(namespace, key, value))


def test_each_change_is_in_the_file_as_the_original_writes_it_and_the_last_one_in_the_backup(
    path: Path,
) -> None:
    kv_config = KvConfig(path)
    put(kv_config, "n", "k", "v é")
    assert path.read_text("utf-8") == '{"configTable":{"n":{"k":"v é"}}}'
    asyncio.run(kv_config.delete("n", "k"))
    assert path.read_text("utf-8") == '{"configTable":{"n":{}}}'
    assert atomic_file.backup_path(path).read_text("utf-8") == '{"configTable":{"n":{"k":"v é"}}}'


def test_values_are_there_after_a_restart(path: Path) -> None:
    put(KvConfig(path), "n", "k", "v")
    assert KvConfig(path).get("n", "k") == "v"
    assert KvConfig(path).table("n") == {"k": "v"}
    assert KvConfig(path).table("x") is None


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b'{"configTable":7}', b'{"configTable":{"n":3}}', b"\xff"]
)
def test_a_damaged_file_is_replaced_by_its_backup(path: Path, damaged: bytes) -> None:
    kv_config = KvConfig(path)
    put(kv_config, "n", "k", "old")
    put(kv_config, "n", "k", "new")
    path.write_bytes(damaged)
    assert KvConfig(path).get("n", "k") == "old"


def test_damage_of_both_is_told_instead_of_starting_empty(path: Path) -> None:
    put(KvConfig(path), "n", "k", "v")
    path.write_bytes(b"{")
    with pytest.raises(CorruptFileError):
        KvConfig(path)


def test_changes_at_the_same_moment_share_writes_and_all_are_on_disk_when_they_return(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    original = atomic_file.write

    def counted(target: Path, data: bytes, *, keep_backup: bool) -> None:
        writes.append(data)
        original(target, data, keep_backup=keep_backup)

    monkeypatch.setattr(atomic_file, "write", counted)

    async def scenario() -> None:
        kv_config = KvConfig(path)
        await asyncio.gather(*(kv_config.put("n", f"k{number}", "v") for number in range(50)))

    asyncio.run(scenario())
    assert KvConfig(path).table("n") == {f"k{number}": "v" for number in range(50)}
    assert len(writes) == 2


def test_a_change_that_cannot_be_saved_is_refused_and_never_served(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv_config = KvConfig(path)
    put(kv_config, "n", "k", "old")

    async def change_all() -> list[BaseException | None]:
        changes = (
            kv_config.put("n", "k", "new"),
            kv_config.put("m", "k1", "v"),
            kv_config.delete("n", "k"),
        )
        return list(await asyncio.gather(*changes, return_exceptions=True))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert [type(each) for each in asyncio.run(change_all())] == [OSError] * 3
        assert (kv_config.get("n", "k"), kv_config.table("m")) == ("old", None)
    put(kv_config, "n", "k2", "v")
    assert kv_config.table("n") == KvConfig(path).table("n") == {"k": "old", "k2": "v"}


def test_changes_that_fail_together_do_not_take_a_later_one_with_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv_config = KvConfig(path)
    original, failed = atomic_file.write, list[bytes]()

    def fails_once(target: Path, data: bytes, *, keep_backup: bool) -> None:
        if not failed:
            failed.append(data)
            full(0)
        original(target, data, keep_backup=keep_backup)

    async def scenario() -> list[BaseException | None]:
        return list(
            await asyncio.gather(
                kv_config.put("n", "k1", "v"), kv_config.put("n", "k2", "v"), return_exceptions=True
            )
        )

    monkeypatch.setattr(atomic_file, "write", fails_once)
    first, second = asyncio.run(scenario())
    kept = {key: "v" for key, outcome in (("k1", first), ("k2", second)) if outcome is None}
    assert (
        isinstance(first, OSError),
        KvConfig(path).table("n") or {},
        kv_config.table("n") or {},
    ) == (True, kept, kept)
